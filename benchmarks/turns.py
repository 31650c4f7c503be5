"""The cost of a durable turn, beside the floor: `python -m benchmarks.turns`.

A lone turn is handed from one thread to another and back. Where those wake up, on one core or on two, is the
system's to decide; it decides differently for a turn and for the floor, and a core that slept takes longer to
wake up than the rows take to be written. `--one-core` keeps all threads on one, so that it is alike.
"""

import argparse
import asyncio
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from benchmarks.floors import Floor
from benchmarks.measuring import micros, middle_half, p50, p99, ratio, ratios, side_by_side
from benchmarks.settings import ALONE, DEFAULT, opened
from recollect.messages import Message
from recollect.wire import encode_message

QUESTION = "Is the front door locked, and did anybody ring while I was out this afternoon?"
ANSWER = (
    "The front door has been locked since 14:05. Two people rang: at 15:20 a parcel, at 16:48 your neighbour."
)


def bodies() -> tuple[str, str]:
    """The two rows of the turn as text, as long as the real ones."""
    stamp = "01a1e174-4c20-7812-9e6e-13464433e8ca"
    turn = (
        Message(role="user", content=QUESTION, message_id=stamp, tokens={"o200k_base": 21}),
        Message(role="assistant", content=ANSWER, message_id=stamp, tokens={"o200k_base": 36}),
    )
    first, second = (encode_message(message).decode() for message in turn)
    return first, second


async def measure(folder: Path, synchronous: str, rounds: int, settings: str) -> dict[str, list[float]]:
    floor = Floor(folder / "floor.db", synchronous=synchronous)
    key = floor.conversation()
    rows = bodies()
    thread = ThreadPoolExecutor(max_workers=1)
    loop = asyncio.get_running_loop()
    url = f"sqlite:///{folder}/ours.db?synchronous={synchronous}"
    async with opened(url, settings) as (_, manager):
        conversation = await manager.get_or_create_conversation("bench")

        async def ours() -> None:
            async with manager.turn(conversation.id) as turn:
                turn.user(QUESTION)
                turn.assistant(ANSWER)

        async def ours_append() -> None:
            await manager.append(
                conversation.id,
                [Message(role="user", content=QUESTION), Message(role="assistant", content=ANSWER)],
            )

        async def direct() -> None:
            floor.turn(key, rows)

        async def handed_over() -> None:
            await loop.run_in_executor(thread, floor.turn, key, rows)

        times = await side_by_side(
            {"floor": direct, "floor handed to a thread": handed_over, "turn": ours, "append": ours_append},
            rounds=rounds,
        )
    thread.shutdown()
    return times


async def main(*, rounds: int = 2000) -> None:
    for settings, synchronous in product((DEFAULT, ALONE), ("full", "normal")):
        with tempfile.TemporaryDirectory() as folder:
            times = await measure(Path(folder), synchronous, rounds, settings)
        base = "floor" if synchronous == "full" else "floor handed to a thread"
        print(f"synchronous={synchronous}, {settings}")
        for name, seconds in times.items():
            spread = f"p50 {micros(p50(seconds)):>10}  p99 {micros(p99(seconds)):>10}"
            half = middle_half(ratios(times, name, base))
            print(f"  {name:28} {spread}  {ratio(times, name, base):.2f} × ({half})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one-core", action="store_true", help="all threads on one core")
    if parser.parse_args().one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    asyncio.run(main())
