"""Wait, within bounds, for another process: there is no event to wait for."""

import time
from collections.abc import Callable

# The machine may be busy: a longer wait costs nothing when all is well.
LONGEST = 120.0


def until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.02)
