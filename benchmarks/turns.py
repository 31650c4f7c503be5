"""The cost of a durable turn, beside the floor: `python -m benchmarks.turns`.

A lone turn is handed from one thread to another and back. On which core those wake up is the system's to
decide, and it decides differently for a turn and for the floor; a core that slept takes longer to wake up
than the rows take to be written. So both are measured in several ways: as the system has it, one right after
the other; with a pause before each, as people speak; with all threads on one core; and with the loop on one
and the threads on another, which is like for like where the floor is handed to a thread too.
"""

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from benchmarks.floors import Floor
from benchmarks.measuring import Step, micros, middle_half, p50, p99, ratio, ratios, side_by_side
from benchmarks.settings import ALONE, DEFAULT, opened

QUESTION = "Is the front door locked, and did anybody ring while I was out this afternoon?"
ANSWER = (
    "The front door has been locked since 14:05. Two people rang: at 15:20 a parcel, at 16:48 your neighbour."
)
PAUSE = 0.01
ROUNDS = 2000
ROUNDS_WITH_PAUSES = 400
"""Few enough that no vectors are made beside them."""
FLOOR, HANDED_OVER = "floor", "floor handed to a thread"

WITHOUT_PAUSE, AFTER_A_PAUSE = "one after the other", "each after a pause"
ONE_CORE, TWO_CORES = "all on one core", "the loop on one core, threads on another"
WAYS = (WITHOUT_PAUSE, AFTER_A_PAUSE, ONE_CORE, TWO_CORES)


def bodies() -> tuple[str, str]:
    """The two rows of the turn as text, as long as the real ones."""
    stamp = "01a1e174-4c20-7812-9e6e-13464433e8ca"
    turn = (
        Message(role="user", content=QUESTION, message_id=stamp, tokens={"o200k_base": 21}),
        Message(role="assistant", content=ANSWER, message_id=stamp, tokens={"o200k_base": 36}),
    )
    first, second = (encode_message(message).decode() for message in turn)
    return first, second


async def measure(
    folder: Path, synchronous: str, rounds: int, settings: str, way: str = WITHOUT_PAUSE
) -> dict[str, list[float]]:
    url = f"sqlite:///{folder}/ours.db?synchronous={synchronous}"
    with ThreadPoolExecutor(max_workers=1) as thread:
        floor = Floor(folder / "floor.db", synchronous=synchronous)
        async with opened(url, settings) as (_, manager):
            steps = floor_steps(floor, thread) | await our_steps(manager)
            for step in steps.values():
                await step()  # so that every thread is there
            with placed(way):
                pause = _pause if way == AFTER_A_PAUSE else None
                return await side_by_side(steps, rounds=rounds, between=pause)


def floor_steps(floor: Floor, thread: ThreadPoolExecutor) -> dict[str, Step]:
    key, rows = floor.conversation(), bodies()

    async def direct() -> None:
        floor.turn(key, rows)

    async def handed_over() -> None:
        await asyncio.get_running_loop().run_in_executor(thread, floor.turn, key, rows)

    return {FLOOR: direct, HANDED_OVER: handed_over}


async def our_steps(manager: ConversationManager) -> dict[str, Step]:
    conversation = await manager.get_or_create_conversation("bench")

    async def turn() -> None:
        async with manager.turn(conversation.id) as turn:
            turn.user(QUESTION)
            turn.assistant(ANSWER)

    async def append() -> None:
        said = [Message(role="user", content=QUESTION), Message(role="assistant", content=ANSWER)]
        await manager.append(conversation.id, said)

    return {"turn": turn, "append": append}


async def _pause() -> None:
    await asyncio.sleep(PAUSE)


@contextmanager
def placed(way: str) -> Iterator[None]:
    """Keep the threads of this process where this way has them."""
    if way not in (ONE_CORE, TWO_CORES):
        yield
        return
    cores = os.sched_getaffinity(0)
    loop, others = min(cores), min(cores) if way == ONE_CORE else max(cores)
    threads = [thread.native_id for thread in threading.enumerate() if thread.native_id is not None]
    for thread in threads:
        os.sched_setaffinity(thread, {loop if thread == threading.get_native_id() else others})
    try:
        yield
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


def measurable(way: str, synchronous: str) -> bool:
    """Whether this says something here. With the threads on a core of their own, the floor that is called
    directly would flush on another core than a turn does, and cores differ in that."""
    if way in (ONE_CORE, TWO_CORES) and not hasattr(os, "sched_setaffinity"):
        return False
    return way != TWO_CORES or (synchronous == "normal" and len(os.sched_getaffinity(0)) > 1)


async def main() -> None:
    for settings, way, synchronous in product((DEFAULT, ALONE), WAYS, ("full", "normal")):
        if not measurable(way, synchronous):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rounds = ROUNDS_WITH_PAUSES if way == AFTER_A_PAUSE else ROUNDS
            times = await measure(Path(folder), synchronous, rounds, settings, way)
        base = FLOOR if synchronous == "full" else HANDED_OVER
        print(f"synchronous={synchronous}, {settings}, {way}")
        for name, seconds in times.items():
            spread = f"p50 {micros(p50(seconds)):>10}  p99 {micros(p99(seconds)):>10}"
            half = middle_half(ratios(times, name, base))
            print(f"  {name:28} {spread}  {ratio(times, name, base):.2f} × ({half})")


if __name__ == "__main__":
    asyncio.run(main())
