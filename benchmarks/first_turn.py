"""`python -m benchmarks.first_turn`: the first stored turn and the first window of a new process, on SQLite.

Each sample is a process of its own, because only the first turn of a process loads and prepares anything.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise

from benchmarks.peers.environments import environment

STEPS = ("import", "open", "turn", "window")
PROCESSES = 21


def measure(processes: int = PROCESSES) -> dict[str, float]:
    """Return the median of each step over new processes, in seconds; `processor` includes the interpreter."""
    samples = [_sample() for _ in range(processes + 1)][
        1:
    ]  # the first one compiles and fills the disk's cache
    return {step: statistics.median(one[step] for one in samples) for step in (*STEPS, "processor")}


def _sample() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_turn", "--one"]
    ran = subprocess.run(command, env=environment(), capture_output=True, check=True)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


async def _one() -> dict[str, float]:
    times = [time.perf_counter()]
    import aforesaid

    used = resource.getrusage(resource.RUSAGE_SELF)
    times.append(time.perf_counter())
    with tempfile.TemporaryDirectory() as folder:
        async with aforesaid.open(f"sqlite:///{folder}/memory.db") as memory:
            manager = memory.of("erin")
            times.append(time.perf_counter())
            async with manager.turn("kitchen") as turn:
                turn.user("Find me a chicken dinner.")
                turn.assistant("How about chicken with leeks?")
            times.append(time.perf_counter())
            await manager.load_context("kitchen")
            times.append(time.perf_counter())
    spans = [after - before for before, after in pairwise(times)]
    return {**dict(zip(STEPS, spans, strict=True)), "processor": used.ru_utime + used.ru_stime}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--one", action="store_true", help="measure in this process and print JSON")
    given.add_argument("--processes", type=int, default=PROCESSES)
    options = given.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(_one())))
        return
    for step, seconds in measure(options.processes).items():
        print(f"{step:10} {seconds * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()
