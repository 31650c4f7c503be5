"""Many conversations at once, beside one commit for each turn: `python -m benchmarks.throughput`."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import recollect
from benchmarks.floors import Floor
from benchmarks.measuring import middle_half
from benchmarks.turns import ANSWER, QUESTION, bodies
from recollect.manager import ConversationManager

CONVERSATIONS = 64
TURNS = 12
"""Turns of each conversation in one round."""
ROUNDS = 15


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


async def measure(folder: Path) -> list[tuple[float, float]]:
    """Ours and the floor, round by round. The first round only warms up."""
    floor = await asyncio.to_thread(OneCommitEach, folder / "floor.db")
    async with recollect.open(f"sqlite:///{folder}/ours.db", sweep_every=None) as memory:
        manager = memory.of("bench")
        ids = [(await manager.get_or_create_conversation(str(n))).id for n in range(CONVERSATIONS)]
        ours = Ours(manager, ids)
        rounds = [(await ours.round(), await asyncio.to_thread(floor.round)) for _ in range(1 + ROUNDS)]
    return rounds[1:]


async def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        rounds = await measure(Path(folder))
    ours, floor = (statistics.median(values) for values in zip(*rounds, strict=True))
    ratios = [one / other for one, other in rounds]
    print(f"64 conversations at once   {ours:>9,.0f} turns/s")
    print(f"one commit for each turn   {floor:>9,.0f} turns/s")
    print(f"ratio, the middle half     {middle_half(ratios):>9}")
    return {"64 conversations : one commit a turn": statistics.median(ratios)}


if __name__ == "__main__":
    for name, ratio in asyncio.run(main()).items():
        print(f"{name:58} {ratio:.2f}")
