"""A port for a server that is about to start.

It is chosen below those that the system hands out by itself: one of those could become somebody's outgoing
connection before the server takes it.
"""

import random
import socket
from pathlib import Path

FIRST = 10_000
HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_END = 32_768

_choice = random.SystemRandom()  # tests set the seed of the other one


def free_port() -> int:
    while True:
        port = _choice.randrange(FIRST, _end())
        if _can_be_taken(port):
            return port


def _can_be_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _end() -> int:
    """Where the ports begin that the system hands out."""
    if not HANDED_OUT.exists():
        return USUAL_END
    return max(int(HANDED_OUT.read_text().split()[0]), FIRST + 1_000)
