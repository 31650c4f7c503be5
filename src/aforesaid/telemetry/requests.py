"""The current request, which follows the task and the tasks that it starts.

A surface opens a block for each request; log lines contain its id, and metrics store it as an exemplar.
"""

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The ids that a caller may choose: no characters that could break a log line."""


# Ids need not be unguessable. A system call for each would let another thread take the
# interpreter in the middle of a request.
_random = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


class Request(NamedTuple):
    """A request id and, where the request is traced, a trace id."""

    request_id: str
    trace_id: str | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels in exemplars and log lines."""
        labels = {"request_id": self.request_id}
        return labels if self.trace_id is None else labels | {"trace_id": self.trace_id}


current: ContextVar[Request | None] = ContextVar("aforesaid_request", default=None)


def request_id_from(given: str | None) -> str:
    """Return the caller's id if it is valid, otherwise a new one."""
    return given if given is not None and SANE.fullmatch(given) else f"{_random.getrandbits(128):032x}"


@contextmanager
def answering(request: Request) -> Iterator[Request]:
    """Make this the current request inside the block."""
    token = current.set(request)
    try:
        yield request
    finally:
        current.reset(token)
