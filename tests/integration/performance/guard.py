"""Measuring what a hot path costs, so that a slip shows and a busy machine does not.

Two measures that no machine changes decide tests: the calls of functions that a step makes, and the
instructions that SQLite's own machine runs for it. A third is for people who look at it: time of the
processor, ours against the engine called directly, in short rounds that alternate, so that waiting for a core
or a disk does not count, and a slow machine is slow for both.
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import apsw

Steps = Callable[[int], object]
"""Takes so many steps, one after the other."""

ROUNDS = 15
EACH = 30
"""Steps of each kind in a round."""
TAKES = 5


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


class Engine:
    """Counts the instructions of SQLite's machine, on all connections of ours and all their threads."""

    def __init__(self) -> None:
        self.instructions = 0
        self._before: dict[tuple[int, int], tuple[int, int]] = {}

    def watch(self, connection: apsw.Connection) -> None:
        """Count what is run on this connection: one of `apsw.connection_hooks`."""
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note, id=self)

    def _note(self, run: dict[str, Any]) -> None:
        """A statement of ours counts from nothing each time; those inside the index go on counting."""
        statement, status = (id(run["connection"]), run["id"]), run["stmt_status"]
        runs, instructions = status["SQLITE_STMTSTATUS_RUN"], status["SQLITE_STMTSTATUS_VM_STEP"]
        earlier, counted = self._before.get(statement, (runs, 0))
        self.instructions += instructions - (counted if runs > earlier else 0)
        self._before[statement] = runs, instructions

    def each(self, steps: Steps, count: int = 20) -> float:
        """Instructions for a step: the fewest of some takes, because the store may index what a take has
        stored while it rests, which happens less often than there are takes."""
        steps(1)
        return min(self._taken(steps, count) for _ in range(TAKES))

    def _taken(self, steps: Steps, count: int) -> float:
        begin = self.instructions
        steps(count)
        return (self.instructions - begin) / count
