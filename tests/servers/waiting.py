"""Wait, within bounds, for another process: there is no event to wait for."""

import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

# The machine may be busy: a longer wait costs nothing when all is well.
LONGEST = 120.0


def listens(address: str) -> bool:
    """Whether a server accepts connections there. This needs far less time than a request that fails."""
    place = urlsplit(address)
    with socket.socket() as probe:
        return probe.connect_ex((place.hostname, place.port)) == 0


def until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.02)
