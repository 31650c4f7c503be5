"""Which request is being answered: follows the task, and the tasks that it starts. Below: nothing.

A surface opens a block for each request; log lines carry its id, and metrics remember it as an exemplar.
"""

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What a caller may choose as the id of its request: nothing that could break a line or hide in one."""


# Nobody has to be unable to guess an id. A call of the system for each would let another thread take the
# interpreter in the midst of a request.
_random = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


class Request(NamedTuple):
    """A request, by its id and, where it is traced, by the id of its trace."""

    request_id: str
    trace_id: str | None = None

    @property
    def labels(self) -> dict[str, str]:
        """What an exemplar or a log line says of it."""
        labels = {"request_id": self.request_id}
        return labels if self.trace_id is None else labels | {"trace_id": self.trace_id}


current: ContextVar[Request | None] = ContextVar("aforesaid_request", default=None)


def request_id_from(given: str | None) -> str:
    """The id that the caller gave, if it is a sane one; else a new one."""
    return given if given is not None and SANE.fullmatch(given) else f"{_random.getrandbits(128):032x}"


@contextmanager
def answering(request: Request) -> Iterator[Request]:
    """The block answers this request."""
    token = current.set(request)
    try:
        yield request
    finally:
        current.reset(token)
