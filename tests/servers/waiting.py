"""Wait, within bounds, for another process: there is no event to wait for."""

import socket
import time
from collections.abc import Callable

# The machine may be busy: a longer wait costs nothing when all is well.
LONGEST = 120.0


def listens(address: str) -> bool:
    """Whether a server accepts connections there. This needs far less time than a request that fails."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.02)
