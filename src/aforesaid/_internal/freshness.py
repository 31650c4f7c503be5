"""Whether an answer is the store's own word, or the best that is known while the store is away.

    with noting_freshness() as seen:
        page = await erin.list()
    if seen.degraded: ...

A layer that answers from the last known state says so with `note_degraded`; whoever wants to know
opens a block around the reads. The note follows the task, and the tasks that it starts, so it
belongs to these reads and to no others. Below: the standard library.
"""

from contextvars import ContextVar


class Freshness:
    """What was noted inside one block: `degraded`, and the reasons, each once."""

    __slots__ = ("_before", "_outer", "reasons")

    def __init__(self) -> None:
        self.reasons: dict[str, None] = {}

    def __enter__(self) -> "Freshness":
        self._outer = _noted.get()
        self._before = _noted.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _noted.reset(self._before)

    @property
    def degraded(self) -> bool:
        """Whether any answer came from the last known state."""
        return bool(self.reasons)

    def note(self, reason: str) -> None:
        self.reasons.setdefault(reason)
        if self._outer is not None:
            self._outer.note(reason)


_noted: ContextVar[Freshness | None] = ContextVar("aforesaid_freshness", default=None)

noting_freshness = Freshness
"""A block that collects what is noted while it runs, here and in the tasks started here."""


def note_degraded(reason: str) -> None:
    """Say that the answer being given is not the store's own, and why."""
    freshness = _noted.get()
    if freshness is not None:
        freshness.note(reason)
