"""Measuring a hot path beside its floor, so that a slip shows and a busy machine does not.

Two measures, both taken in one process. Time of the processor, ours against the engine called directly, in
short rounds that alternate: waiting for a core or a disk does not count, and a slow machine is slow for both.
And the calls of functions that a step makes, which no machine changes at all.
"""

import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Steps = Callable[[int], object]
"""Takes so many steps, one after the other."""

ROUNDS = 15
EACH = 30
"""Steps of each kind in a round."""


def processor_ratio(ours: Steps, floor: Steps, *, rounds: int = ROUNDS, each: int = EACH) -> float:
    """How much more time of the processor ours takes, all threads counted: the median of the rounds."""
    ours(1)
    floor(1)
    return statistics.median(_used(ours, each) / _used(floor, each) for _ in range(rounds))


def _used(steps: Steps, count: int) -> float:
    begin = time.process_time()
    steps(count)
    return time.process_time() - begin


def calls(steps: Steps, count: int = 20) -> float:
    """Calls of Python functions, and of C functions from Python, that a step makes on this thread."""
    steps(1)
    made: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        made[event] += 1

    sys.setprofile(note)
    try:
        steps(count)
    finally:
        sys.setprofile(None)
    return (made["call"] + made["c_call"]) / count


@contextmanager
def crowd(size: int) -> Iterator[None]:
    """Processes that want all of a core each: what a loaded machine does to a measurement."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(size)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
