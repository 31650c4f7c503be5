"""Many conversations at once, beside one commit for each turn: `python -m benchmarks.throughput`.

Between two rounds the index takes in what was said, as it does whenever nobody writes for a moment: otherwise
it would do so beside the floor. What is left where there never is such a moment is measured after that.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.floors import Floor
from benchmarks.measuring import middle_half
from benchmarks.settings import ALONE, DEFAULT, opened
from benchmarks.turns import ANSWER, QUESTION, bodies
from recollect.manager import ConversationManager
from recollect.stores.sqlite import SQLiteBackend
from recollect.stores.sqlite.indexing import MOST_WAITING

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


class Measured(NamedTuple):
    """Turns a second, round by round."""

    ours: list[float]
    floor: list[float]
    without_pause: list[float]


async def measure(folder: Path, settings: str) -> Measured:
    """The first round only warms up."""
    floor = await asyncio.to_thread(OneCommitEach, folder / "floor.db")
    async with opened(f"sqlite:///{folder}/ours.db", settings) as (memory, manager):
        assert isinstance(memory.backend, SQLiteBackend)
        ids = [(await manager.get_or_create_conversation(str(n))).id for n in range(CONVERSATIONS)]
        ours = Ours(manager, ids)
        rounds = []
        for _ in range(1 + ROUNDS):
            rate = await ours.round()
            await memory.backend.catch_up()
            rounds.append((rate, await asyncio.to_thread(floor.round)))
        for _ in range(1 + MOST_WAITING // (2 * CONVERSATIONS * TURNS)):
            await ours.round()
        without_pause = [await ours.round() for _ in range(ROUNDS)]
    rates, floors = zip(*rounds[1:], strict=True)
    return Measured(list(rates), list(floors), without_pause)


async def main() -> dict[str, float]:
    found = {}
    for settings in (DEFAULT, ALONE):
        with tempfile.TemporaryDirectory() as folder:
            measured = await measure(Path(folder), settings)
        ratios = [one / other for one, other in zip(measured.ours, measured.floor, strict=True)]
        ours, floor, without_pause = map(statistics.median, measured)
        print(settings)
        print(f"  64 conversations at once   {ours:>9,.0f} turns/s")
        print(f"  without a pause            {without_pause:>9,.0f} turns/s")
        print(f"  one commit for each turn   {floor:>9,.0f} turns/s")
        print(f"  ratio, the middle half     {middle_half(ratios):>9}")
        found[f"64 conversations : one commit a turn, {settings}"] = statistics.median(ratios)
        found[f"the same without a pause, {settings}"] = without_pause / floor
    return found


if __name__ == "__main__":
    for name, ratio in asyncio.run(main()).items():
        print(f"{name:66} {ratio:.2f}")
