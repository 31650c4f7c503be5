"""The soak: a steady rate for a long time. Memory, file handles and latency must stay flat.

    python -m tests.chaos.soak [--minutes 60] [--rate 50] [--url sqlite:///…] [--every 10] [--plot soak.svg]

Turns are stored and contexts read at a steady rate, over many conversations that come and go. Every so
many seconds a line is printed: resident memory, open files, tasks, and the latencies since the last
one. At the end the last quarter is compared with the second; exit 1 when it has grown.
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
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

import recollect

CONVERSATIONS = 200
MOST_GROWTH = {"memory": 1.15, "files": 1.1, "latency": 1.5}
"""How much larger the last quarter may be than the second. Latency has a noisy machine to live with."""


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
    turns: int


async def soak(url: str, *, minutes: float, rate: float, every: float) -> list[Sample]:
    samples: list[Sample] = []
    async with recollect.open(url, ttl=timedelta(minutes=5), sweep_every=timedelta(seconds=30)) as memory:
        begin = last = time.monotonic()
        times: list[float] = []
        turn = 0
        while time.monotonic() - begin < minutes * 60:
            due = begin + turn / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            started = time.monotonic()
            await _one_turn(memory, turn)
            times.append(time.monotonic() - started)
            turn += 1
            if time.monotonic() - last >= every:
                last = time.monotonic()
                samples.append(_sample(last - begin, times, turn))
                print(_line(samples[-1]), flush=True)
                times = []
    return samples


async def _one_turn(memory: recollect.Memory, turn: int) -> None:
    manager = memory.of(f"owner {turn % 20}")
    # Sessions come and go: each conversation is spoken in for a while, then left to expire.
    session = f"session {turn % CONVERSATIONS} of {turn // (CONVERSATIONS * 50)}"
    conversation = await manager.get_or_create_conversation(session)
    async with manager.turn(conversation.id) as said:
        said.user(f"What is the {turn}th thing that I have asked?")
        await said.load_context()
        said.assistant(f"This is: {'x' * (turn % 400)}")


def _sample(seconds: float, times: list[float], turns: int) -> Sample:
    gc.collect()
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else [times[0]] * 99
    return Sample(
        seconds=seconds,
        memory=_resident() / 1024**2,
        files=len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        tasks=len(asyncio.all_tasks()),
        p50=cuts[49] * 1000,
        p99=cuts[98] * 1000,
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
        f"{sample.tasks:3} tasks  p50 {sample.p50:6.2f} ms  p99 {sample.p99:7.2f} ms"
    )


def growth(samples: list[Sample]) -> dict[str, float]:
    """The last quarter over the second one: the first is warming up."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]

    def ratio(field: str) -> float:
        before = statistics.median(getattr(sample, field) for sample in early)
        return float(statistics.median(getattr(sample, field) for sample in late) / before)

    return {"memory": ratio("memory"), "files": ratio("files"), "latency": ratio("p50")}


def plot(samples: list[Sample]) -> str:
    """Memory and latency over time, as a picture that needs no library."""
    width, height = 720, 200
    end = samples[-1].seconds
    size = f'viewBox="0 0 {width} {height * 2}" font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    ]
    for row, (field, unit) in enumerate((("memory", "MB resident"), ("p50", "ms a turn, median"))):
        values = [getattr(sample, field) for sample in samples]
        top, floor = max(values) * 1.2, row * height + 180
        points = " ".join(
            f"{40 + (width - 60) * s.seconds / end:.1f},{floor - 150 * v / top:.1f}"
            for s, v in zip(samples, values, strict=True)
        )
        label = f"{unit}, 0 to {top:.1f}, over {end / 60:.0f} min"
        lines.append(f'<polyline points="{points}" fill="none" stroke="#1f6f8b" stroke-width="1.5"/>')
        lines.append(f'<text x="40" y="{floor - 162}">{label}</text>')
        lines.append(f'<line x1="40" y1="{floor}" x2="{width - 20}" y2="{floor}" stroke="#999"/>')
    return "\n".join([*lines, "</svg>\n"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--url")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recollect-soak-") as folder:
        url = given.url or f"sqlite:///{folder}/memory.db"
        samples = asyncio.run(soak(url, minutes=given.minutes, rate=given.rate, every=given.every))
    if given.plot:
        given.plot.write_text(plot(samples))
    grown = growth(samples)
    print("the last quarter over the second:", {name: round(ratio, 3) for name, ratio in grown.items()})
    return 0 if all(ratio <= MOST_GROWTH[name] for name, ratio in grown.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
