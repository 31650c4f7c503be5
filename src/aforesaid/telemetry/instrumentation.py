"""Measure the manager's calls and blocks of code: duration, errors, spans.

    @watched
    class ConversationManager: ...

    with timed("search.reading", telemetry.histogram("aforesaid_search_stage_seconds", stage="reading")):
        ...

Every public coroutine method is measured under its own name, including delegated ones, so a new method needs
no further code. Arguments are validated first, by `aforesaid._internal.arguments`.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeVar

from aforesaid._internal.arguments import as_checked, check_of
from aforesaid.errors import AforesaidError, InvalidInput, NotFound
from aforesaid.telemetry import tracing
from aforesaid.telemetry.logs import describe, event
from aforesaid.telemetry.metrics import Histogram, telemetry
from aforesaid.telemetry.tracing import Attribute

log = logging.getLogger("aforesaid.calls")

C = TypeVar("C", bound=type)
Method = Callable[..., Awaitable[Any]]


def watched(kind: C) -> C:
    """Measure every public coroutine method of the class."""
    return watched_as("")(kind)


def watched_as(prefix: str) -> Callable[[C], C]:
    """Measure a class that a manager returns; its call names get this prefix."""

    def watching(kind: C) -> C:
        return _with_watched_methods(kind, prefix)

    return watching


def _with_watched_methods(kind: C, prefix: str) -> C:
    for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(kind, name, watched_method(prefix + name, method))
    return kind


def watched_method(name: str, method: Method) -> Method:
    """Measure one coroutine method under this name."""
    observe = telemetry.histogram("aforesaid_call_seconds", call=name).observe
    check = check_of(method)

    @wraps(method)
    async def call(*given: Any, **named: Any) -> Any:
        began = perf_counter()
        try:
            if check is not None:
                check(given, named)
            if tracing.tracer is not None:
                with tracing.span(name):
                    return await method(*given, **named)
            return await method(*given, **named)
        except BaseException as error:
            _failed(name, error)
            raise
        finally:
            observe(perf_counter() - began)

    return as_checked(call)


def _failed(call: str, error: BaseException) -> None:
    """Count an error once, where it is first raised, and log it. A cancellation is not an error."""
    if not isinstance(error, Exception) or getattr(error, "_seen_by_aforesaid", False):
        return
    # Calls contain calls, such as `add_message` and `append`: the mark prevents a second count.
    error._seen_by_aforesaid = True  # type: ignore[attr-defined]
    kind = error_kind(error)
    telemetry.counter("aforesaid_call_errors_total", call=call, error=kind).add()
    event(log, _level(error), "call_failed", f"{call} failed: {describe(error)}", call=call, error=kind)


def error_kind(error: BaseException) -> str:
    """Return the class of our own error as a label; `other` for any other error."""
    return type(error).__name__ if type(error).__module__ == "aforesaid.errors" else "other"


def _level(error: Exception) -> int:
    """Return the log level; a caller's mistake is not a failure of ours."""
    if isinstance(error, InvalidInput | NotFound):
        return logging.INFO
    return logging.WARNING if isinstance(error, AforesaidError) else logging.ERROR


# Blocks


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
