"""The soak: a steady rate for a long time. Memory, file handles and latency must stay flat.

    python -m tests.chaos.soak [--minutes 60] [--rate 50] [--url sqlite:///…] [--every 10] [--plot soak.svg]

Turns are stored and contexts read at a steady rate, over many conversations that come and go. Every so
many seconds a line is printed: resident memory, open files, tasks, processor time, and the latencies since
the last one, beside the floor: some bytes appended to a file and synced, by a thread. The floor tells a slow
machine from a slow Aforesaid: latency is compared in multiples of it. At the end the last quarter is
compared with the second; exit 1 when it has grown.
"""

import argparse
import asyncio
import gc
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from io import FileIO
from pathlib import Path
from typing import Any

from msgspec import Struct

import aforesaid

CONVERSATIONS = 200
MOST_GROWTH = {"memory": 1.15, "files": 1.1, "latency over floor": 1.3, "processor": 1.3}
"""How much larger the last quarter may be than the second. Time has a noisy machine to live with."""
FLOOR_EVERY = 5
"""The floor is measured after every so many turns."""


class Sample(Struct, frozen=True, kw_only=True):
    """How it was at one moment."""

    seconds: float
    memory: float
    """Resident, in MB."""
    files: int
    tasks: int
    p50: float
    """Milliseconds of a turn with its context."""
    p99: float
    floor: float
    """Milliseconds of the floor, median."""
    processor: float
    """Milliseconds of processor time for a turn with its context and everything behind it, the floor too."""
    turns: int


class Window:
    """What is measured between two samples."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.processor = time.process_time()
        self.turns: list[float] = []
        self.floors: list[float] = []


async def soak(url: str, folder: Path, *, minutes: float, rate: float, every: float) -> list[Sample]:
    samples: list[Sample] = []
    begin = time.monotonic()
    window, turn = Window(), 0
    async with aforesaid.open(
        url, ttl=timedelta(minutes=5), retention=aforesaid.Retention(sweep_every=timedelta(seconds=30))
    ) as memory:
        with (folder / "floor").open("ab", buffering=0) as floor:
            while time.monotonic() - begin < minutes * 60:
                await asyncio.sleep(max(0.0, begin + turn / rate - time.monotonic()))
                window.turns.append(await _timed(_one_turn(memory, turn)))
                turn += 1
                if turn % FLOOR_EVERY == 0:
                    window.floors.append(await _timed(asyncio.to_thread(_append, floor)))
                if time.monotonic() - window.begun >= every:
                    samples.append(_sample(time.monotonic() - begin, window, turn))
                    print(_line(samples[-1]), flush=True)
                    window = Window()
    return samples


async def _timed(work: Coroutine[Any, Any, None]) -> float:
    started = time.monotonic()
    await work
    return time.monotonic() - started


def _append(file: FileIO) -> None:
    file.write(b"x" * 512)
    os.fdatasync(file.fileno())


async def _one_turn(memory: aforesaid.Memory, turn: int) -> None:
    manager = memory.of(f"owner {turn % 20}")
    # Sessions come and go: each conversation is spoken in for a while, then left to expire.
    session = f"session {turn % CONVERSATIONS} of {turn // (CONVERSATIONS * 50)}"
    conversation = await manager.get_or_create_conversation(session)
    async with manager.turn(conversation.id) as said:
        said.user(f"What is the {turn}th thing that I have asked?")
        await said.load_context()
        said.assistant(f"This is: {'x' * (turn % 400)}")


def _sample(seconds: float, window: Window, turns: int) -> Sample:
    gc.collect()
    cuts = statistics.quantiles(window.turns, n=100) if len(window.turns) > 1 else window.turns * 99
    return Sample(
        seconds=seconds,
        memory=_resident() / 1024**2,
        files=len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        tasks=len(asyncio.all_tasks()),
        p50=cuts[49] * 1000,
        p99=cuts[98] * 1000,
        floor=statistics.median(window.floors) * 1000 if window.floors else 0.0,
        processor=(time.process_time() - window.processor) / len(window.turns) * 1000,
        turns=turns,
    )


def _resident() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _line(sample: Sample) -> str:
    return (
        f"{sample.seconds:7.0f} s  {sample.turns:9,} turns  {sample.memory:7.1f} MB  {sample.files:4} files  "
        f"{sample.tasks:3} tasks  p50 {sample.p50:6.2f} ms  p99 {sample.p99:7.2f} ms  "
        f"floor {sample.floor:6.2f} ms  processor {sample.processor:5.2f} ms"
    )


def growth(samples: list[Sample]) -> dict[str, float]:
    """The last quarter over the second one: the first is warming up."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]

    def ratio(measure: Callable[[Sample], float]) -> float:
        return statistics.median(map(measure, late)) / statistics.median(map(measure, early))

    return {
        "memory": ratio(lambda sample: sample.memory),
        "files": ratio(lambda sample: sample.files),
        "latency over floor": ratio(lambda sample: sample.p50 / sample.floor),
        "processor": ratio(lambda sample: sample.processor),
    }


ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("MB resident", ("memory",)),
    ("ms a turn with its context, median; grey: the floor", ("p50", "floor")),
    ("ms of processor time a turn", ("processor",)),
)
WIDTH, HEIGHT = 720, 200


def plot(samples: list[Sample]) -> str:
    """Memory, latency and processor time over time, as a picture that needs no library."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT * len(ROWS)}" font-family="sans-serif" font-size="11"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    rows = [line for row in range(len(ROWS)) for line in _row(samples, row)]
    return "\n".join([begin, *rows, "</svg>\n"])


def _row(samples: list[Sample], row: int) -> Iterator[str]:
    label, fields = ROWS[row]
    end, base = samples[-1].seconds, row * HEIGHT + 180
    top = max(getattr(sample, field) for sample in samples for field in fields) * 1.2
    for field, colour in zip(fields, ("#1f6f8b", "#999"), strict=False):
        points = " ".join(
            f"{40 + (WIDTH - 60) * s.seconds / end:.1f},{base - 150 * getattr(s, field) / top:.1f}"
            for s in samples
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield f'<text x="40" y="{base - 162}">{label}, 0 to {top:.1f}, over {end / 60:.0f} min</text>'
    yield f'<line x1="40" y1="{base}" x2="{WIDTH - 20}" y2="{base}" stroke="#999"/>'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--url")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aforesaid-soak-") as folder:
        url = given.url or f"sqlite:///{folder}/memory.db"
        run = soak(url, Path(folder), minutes=given.minutes, rate=given.rate, every=given.every)
        samples = asyncio.run(run)
    if given.plot:
        given.plot.write_text(plot(samples))
    grown = growth(samples)
    print("the last quarter over the second:", {name: round(ratio, 3) for name, ratio in grown.items()})
    return 0 if all(ratio <= MOST_GROWTH[name] for name, ratio in grown.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
