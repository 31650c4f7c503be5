"""Whether an answer is the store's own word, or the best that is known while the store is away.

    with noting_freshness() as seen:
        page = await erin.list()
    if seen.degraded: ...

A layer that answers from the last known state says so with `note_degraded`; whoever wants to know
opens a block around the reads. The note follows the task, and the tasks that it starts, so it
belongs to these reads and to no others. Below: the standard library.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Freshness:
    """What was noted inside one block: `degraded`, and the reasons, each once."""

    def __init__(self, outer: "Freshness | None" = None) -> None:
        self._outer = outer
        self.reasons: dict[str, None] = {}

    @property
    def degraded(self) -> bool:
        """Whether any answer came from the last known state."""
        return bool(self.reasons)

    def note(self, reason: str) -> None:
        self.reasons.setdefault(reason)
        if self._outer is not None:
            self._outer.note(reason)


_noted: ContextVar[Freshness | None] = ContextVar("recollect_freshness", default=None)


@contextmanager
def noting_freshness() -> Iterator[Freshness]:
    """Collect what is noted while the block runs, here and in the tasks started here."""
    freshness = Freshness(_noted.get())
    token = _noted.set(freshness)
    try:
        yield freshness
    finally:
        _noted.reset(token)


def note_degraded(reason: str) -> None:
    """Say that the answer being given is not the store's own, and why."""
    freshness = _noted.get()
    if freshness is not None:
        freshness.note(reason)
