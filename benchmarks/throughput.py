"""Many conversations at once, beside one commit for each turn: `python -m benchmarks.throughput`.

One commit for each turn is measured twice: through the same manager, which tells what committing together is
worth; and as the floor, the engine called directly, which has none of a turn's other work.

Between two rounds the index takes in the new messages, as it does whenever the store is idle, and no
vectors are made: otherwise both would run beside the next round. What is left where there never is
such a moment is measured after that.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.stores.sqlite import SQLiteBackend, workers
from aforesaid.stores.sqlite.search import MAX_WAITING
from benchmarks.floors import Floor
from benchmarks.measuring import middle_half
from benchmarks.settings import ALONE, DEFAULT, OWNER, opened
from benchmarks.turns import ANSWER, QUESTION, bodies

CONVERSATIONS = 64
TURNS = 100
"""Turns of each conversation in one round."""
ROUNDS = 9


class Ours:
    """64 tasks, each in a conversation of its own."""

    def __init__(self, manager: ConversationManager, ids: list[str]) -> None:
        self._manager = manager
        self._ids = ids

    async def round(self) -> float:
        """Turns a second."""
        begin = time.perf_counter()
        await asyncio.gather(*map(self._talk, self._ids))
        return CONVERSATIONS * TURNS / (time.perf_counter() - begin)

    async def _talk(self, conversation_id: str) -> None:
        for _ in range(TURNS):
            async with self._manager.turn(conversation_id) as turn:
                turn.user(QUESTION)
                turn.assistant(ANSWER)


class OneCommitEach:
    """The engine called directly, one durable transaction for each turn."""

    def __init__(self, path: Path) -> None:
        self._floor = Floor(path, synchronous="full")
        self._keys = [self._floor.conversation() for _ in range(CONVERSATIONS)]
        self._rows = bodies()

    def round(self) -> float:
        """Turns a second."""
        begin = time.perf_counter()
        for _ in range(TURNS):
            for key in self._keys:
                self._floor.turn(key, self._rows)
        return CONVERSATIONS * TURNS / (time.perf_counter() - begin)


async def quiet(memory: Memory) -> None:
    """Finish the work of idle times, except vectors, which would take longer than all rounds."""
    assert isinstance(memory.backend, SQLiteBackend)
    await memory.backend.catch_up()
    if memory.search_resources.indexer is not None:
        memory.search_resources.indexer.forget(OWNER)


class Measured(NamedTuple):
    """Turns a second, round by round."""

    grouped: list[float]
    single: list[float]
    floor: list[float]
    without_pause: list[float]


async def measure(folder: Path, settings: str) -> Measured:
    """The first round only warms up."""
    floor = await asyncio.to_thread(OneCommitEach, folder / "floor.db")
    async with opened(f"sqlite:///{folder}/ours.db", settings) as (memory, manager):
        ids = [(await manager.get_or_create_conversation(str(n))).id for n in range(CONVERSATIONS)]
        ours = Ours(manager, ids)
        rounds = []
        for _ in range(1 + ROUNDS):
            grouped = await ours.round()
            await quiet(memory)
            with patch.object(workers, "MAX_BATCH", 1):
                single = await ours.round()
            await quiet(memory)
            rounds.append((grouped, single, await asyncio.to_thread(floor.round)))
        for _ in range(1 + MAX_WAITING // (2 * CONVERSATIONS * TURNS)):
            await ours.round()
        without_pause = [await ours.round() for _ in range(ROUNDS)]
    together, one_by_one, floors = map(list, zip(*rounds[1:], strict=True))
    return Measured(together, one_by_one, floors, without_pause)


def shares(ours: list[float], other: list[float]) -> list[float]:
    return [one / another for one, another in zip(ours, other, strict=True)]


async def main() -> dict[str, float]:
    found = {}
    for settings in (DEFAULT, ALONE):
        with tempfile.TemporaryDirectory() as folder:
            measured = await measure(Path(folder), settings)
        grouped, single, floor, without_pause = map(statistics.median, measured)
        print(settings)
        print(f"  64 conversations at once         {grouped:>9,.0f} turns/s")
        print(f"  without a pause                  {without_pause:>9,.0f} turns/s")
        print(f"  one commit for each turn         {single:>9,.0f} turns/s")
        print(f"  the same, the engine called      {floor:>9,.0f} turns/s")
        for name, other in (("one commit each", measured.single), ("the engine called", measured.floor)):
            ratios = shares(measured.grouped, other)
            print(f"  beside {name:26} {middle_half(ratios):>9} (the middle half)")
            found[f"64 conversations : {name}, {settings}"] = statistics.median(ratios)
        found[f"without a pause : the engine called, {settings}"] = without_pause / floor
    return found


if __name__ == "__main__":
    for name, ratio in asyncio.run(main()).items():
        print(f"{name:66} {ratio:.2f}")
