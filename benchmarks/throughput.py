"""Many conversations at once, beside one commit for each turn: `python -m benchmarks.throughput`."""

import asyncio
import tempfile
import time
from pathlib import Path

import recollect
from benchmarks.floors import Floor
from benchmarks.turns import ANSWER, QUESTION, bodies

CONVERSATIONS = 64
TURNS = 60


async def ours(folder: Path) -> float:
    """Turns a second from 64 tasks, each in a conversation of its own."""
    async with recollect.open(f"sqlite:///{folder}/ours.db", sweep_every=None) as memory:
        manager = memory.of("bench")
        ids = [(await manager.get_or_create_conversation(str(n))).id for n in range(CONVERSATIONS)]

        async def talk(conversation_id: str) -> None:
            for _ in range(TURNS):
                async with manager.turn(conversation_id) as turn:
                    turn.user(QUESTION)
                    turn.assistant(ANSWER)

        begin = time.perf_counter()
        await asyncio.gather(*(talk(conversation_id) for conversation_id in ids))
        return CONVERSATIONS * TURNS / (time.perf_counter() - begin)


def one_commit_each(folder: Path) -> float:
    """Turns a second of the engine called directly, one durable transaction each."""
    floor = Floor(folder / "floor.db", synchronous="full")
    keys = [floor.conversation() for _ in range(CONVERSATIONS)]
    rows = bodies()
    begin = time.perf_counter()
    for _ in range(TURNS):
        for key in keys:
            floor.turn(key, rows)
    return CONVERSATIONS * TURNS / (time.perf_counter() - begin)


async def main() -> dict[str, float]:
    runs = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            floor = await asyncio.to_thread(one_commit_each, Path(folder))
            runs.append((await ours(Path(folder)), floor))
    best, floor = (max(values) for values in zip(*runs, strict=True))
    print(f"64 conversations at once   {best:>9,.0f} turns/s")
    print(f"one commit for each turn   {floor:>9,.0f} turns/s")
    return {"64 conversations : one commit a turn": best / floor}


if __name__ == "__main__":
    for name, ratio in asyncio.run(main()).items():
        print(f"{name:58} {ratio:.2f}")
