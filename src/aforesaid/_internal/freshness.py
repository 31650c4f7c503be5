"""Record whether an answer came from the store or from the last known state.

    with noting_freshness() as seen:
        page = await erin.list()
    if seen.degraded: ...

A layer that answers from the last known state calls `note_degraded`; a caller opens a block around its reads.
The record follows the task and the tasks that it starts, so it covers only these reads.
"""

from contextvars import ContextVar


class Freshness:
    """The reasons for degraded answers inside one block, each once."""

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
        # Blocks nest: the caller of a caller must know too.
        if self._outer is not None:
            self._outer.note(reason)


_noted: ContextVar[Freshness | None] = ContextVar("aforesaid_freshness", default=None)

# A block that collects reasons, also from tasks started inside it.
noting_freshness = Freshness


def note_degraded(reason: str) -> None:
    """Record that the current answer comes from the last known state, and why."""
    freshness = _noted.get()
    if freshness is not None:
        freshness.note(reason)
