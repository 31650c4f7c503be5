"""What the index for searching adds to a turn: `python -m benchmarks.search_writes`.

Turns with and without it alternate in short runs. Beside the wall clock stands the processor time of the
whole process, all threads together: on a busy machine it says more.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import accumulate
from pathlib import Path

from aforesaid.contracts import ConversationStore
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.sqlite import SQLiteBackend
from benchmarks.measuring import micros, p50, p99

RUN = 128
"""Turns in a row: a whole number of rounds in which fresh terms go into the index."""
VOCABULARY = 30_000


class Texts:
    """Messages whose words are as rare as in a language: the n-th one n times as rare as the first."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._words = [f"w{number:x}" for number in range(VOCABULARY)]
        self._weights = list(accumulate(1 / (rank + 10) for rank in range(VOCABULARY)))

    def message(self, role: str) -> Message:
        length = max(3, int(self._chance.lognormvariate(2.7, 0.6)))
        words = self._chance.choices(self._words, cum_weights=self._weights, k=length)
        return Message(role=role, content=" ".join(words))  # type: ignore[arg-type]

    def turns(self, count: int) -> list[list[Message]]:
        return [[self.message("user"), self.message("assistant")] for _ in range(count)]


async def writer(store: ConversationStore, turns: list[list[Message]]) -> Callable[[], Awaitable[None]]:
    """Stores the next turn in one of ten conversations."""
    ids = [(await store.create(started(new_id(), now=store.now()))).id for _ in range(10)]
    waiting = iter(turns)
    number = 0

    async def write() -> None:
        nonlocal number
        number += 1
        await store.append(ids[number % len(ids)], next(waiting))

    return write


async def measure(folder: Path, synchronous: str, rounds: int) -> dict[str, float]:
    """Return how much longer a turn takes with the index than without, and how much processor time."""
    backends = {
        search: SQLiteBackend(
            str(folder / f"{synchronous}-{search}.db"), synchronous=synchronous, search=search
        )
        for search in (False, True)
    }
    writes = {}
    for search, backend in backends.items():
        await backend.open()
        writes[search] = await writer(backend.of("bench"), Texts().turns((rounds + 1) * RUN))
    wall: dict[bool, list[float]] = {False: [], True: []}
    processor: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        for search, write in writes.items():
            begin_processor = time.process_time()
            times = []
            for _ in range(RUN):
                at = time.perf_counter()
                await write()
                times.append(time.perf_counter() - at)
            if number:  # the first round only warms up
                wall[search] += times
                processor[search].append((time.process_time() - begin_processor) / RUN)
    for backend in backends.values():
        await backend.close()
    _print(folder, synchronous, wall, processor)
    return _ratios(wall, processor)


def _ratios(wall: dict[bool, list[float]], processor: dict[bool, list[float]]) -> dict[str, float]:
    pairs = zip(processor[True], processor[False], strict=True)
    return {
        "p50": p50(wall[True]) / p50(wall[False]),
        "mean": statistics.fmean(wall[True]) / statistics.fmean(wall[False]),
        "processor": statistics.median(on / off for on, off in pairs),
    }


def _print(
    folder: Path, synchronous: str, wall: dict[bool, list[float]], processor: dict[bool, list[float]]
) -> None:
    print(f"synchronous={synchronous}")
    for search in (False, True):
        used = micros(statistics.median(processor[search]))
        size = (folder / f"{synchronous}-{search}.db").stat().st_size / 1e6
        times = f"p50 {micros(p50(wall[search])):>9}  p99 {micros(p99(wall[search])):>9}"
        print(f"  search {'on ' if search else 'off'}  {times}  processor {used:>9}  file {size:.1f} MB")
    found = _ratios(wall, processor)
    print(
        f"  ratio: wall p50 {found['p50']:.2f}, wall mean {found['mean']:.2f}, "
        f"processor {found['processor']:.2f}"
    )


async def main(rounds: int = 20) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for synchronous in ("full", "normal"):
            await measure(Path(folder), synchronous, rounds)


if __name__ == "__main__":
    asyncio.run(main())
