"""`python -m benchmarks.first_question FILE`: the first question of a new process, by words and meaning.

FILE is one that `benchmarks.search_speed` has filled. Each sample is a process of its own. Two kinds of
processes are measured: one that only asks, so that the question loads the encoder; and one whose encoder is
loaded, as it is after the first stored message or with `Models(preload=True)`. Both load the owner's vectors.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers.environments import environment

KINDS = ("asking", "loaded")
STEPS = ("first", "second")
PROCESSES = 7


def measure(path: Path, processes: int = PROCESSES) -> dict[str, dict[str, float]]:
    """Return the median seconds of the first and the second question of each kind of process."""
    found = {}
    for kind in KINDS:
        # The first process fills the disk's cache.
        samples = [_sample(path, kind) for _ in range(processes + 1)][1:]
        found[kind] = {step: statistics.median(one[step] for one in samples) for step in STEPS}
    return found


def _sample(path: Path, kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_question", str(path), "--one", kind]
    ran = subprocess.run(command, env=environment(), capture_output=True, check=True)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


async def _one(path: Path, kind: str) -> dict[str, float]:
    from aforesaid.search.encoders import UniversalEncoder
    from benchmarks.search_speed import OWNER, Speech, opened

    encoder, speech = UniversalEncoder(), Speech(3)
    if kind == "loaded":
        encoder.embed([speech.question()])
    found = {}
    async with opened(path, encoder) as memory:
        manager = memory.of(OWNER)
        for step in STEPS:
            begin = time.perf_counter()
            assert (await manager.search(speech.question(), 5)).by_meaning
            found[step] = time.perf_counter() - begin
    return found


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("file", type=Path)
    given.add_argument("--one", choices=KINDS, help="measure in this process and print JSON")
    given.add_argument("--processes", type=int, default=PROCESSES)
    options = given.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(_one(options.file, options.one))))
        return
    for kind, one in measure(options.file, options.processes).items():
        print(kind, *(f"{step} {seconds * 1e3:.1f} ms" for step, seconds in one.items()))


if __name__ == "__main__":
    main()
