"""Time a block, and trace it where tracing is on.

with timed("search.reading", telemetry.histogram("aforesaid_search_stage_seconds", stage="reading")):
    ...
"""

from time import perf_counter
from types import TracebackType
from typing import Self

from aforesaid.telemetry import tracing
from aforesaid.telemetry.metrics import Histogram
from aforesaid.telemetry.tracing import Attribute


class timed:  # noqa: N801  reads as a statement
    """Records the block's duration in the histogram, also when it raises."""

    __slots__ = ("_began", "_seconds", "_span")

    def __init__(self, name: str, seconds: Histogram, **attributes: Attribute) -> None:
        self._seconds = seconds
        self._span = tracing.span(name, **attributes)

    def __enter__(self) -> Self:
        self._span.__enter__()
        self._began = perf_counter()
        return self

    def note(self, **attributes: Attribute) -> None:
        """Add attributes to the span."""
        self._span.note(**attributes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds.observe(perf_counter() - self._began)
        self._span.__exit__(kind, error, trace)
