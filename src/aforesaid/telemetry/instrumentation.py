"""Calls of the one door, watched: how long each took, how it failed, and its span. Above: the manager.

    @watched
    class ConversationManager(Keeping, Finding): ...

Every public method that waits is watched, those of its parts included, under its own name. So a method that
is added is watched without a word, and no call is measured in two places. Its arguments are checked first, by
`aforesaid.arguments`.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar

from aforesaid._internal.arguments import as_checked, check_of
from aforesaid.errors import AforesaidError, InvalidInput, NotFound
from aforesaid.telemetry import tracing
from aforesaid.telemetry.log_events import describe, event
from aforesaid.telemetry.metrics import telemetry

log = logging.getLogger("aforesaid.calls")

C = TypeVar("C", bound=type)
Method = Callable[..., Awaitable[Any]]


def watched(kind: C) -> C:
    """The class, with every public method that waits watched."""
    return watched_as("")(kind)


def watched_as(prefix: str) -> Callable[[C], C]:
    """The same, for a part that a manager hands out: its calls have this before their names."""

    def watching(kind: C) -> C:
        return _with_watched_methods(kind, prefix)

    return watching


def _with_watched_methods(kind: C, prefix: str) -> C:
    for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(kind, name, _watched(prefix + name, method))
    return kind


def _watched(name: str, method: Method) -> Method:
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
    """Count an error once, where it is first seen, and log it. What was cancelled has not failed."""
    if not isinstance(error, Exception) or getattr(error, "_seen_by_aforesaid", False):
        return
    error._seen_by_aforesaid = True  # type: ignore[attr-defined]
    kind = error_kind(error)
    telemetry.counter("aforesaid_call_errors_total", call=call, error=kind).add()
    event(log, _level(error), "call_failed", f"{call} failed: {describe(error)}", call=call, error=kind)


def error_kind(error: BaseException) -> str:
    """The class of an error of ours, as a label; `other` for everybody else's."""
    return type(error).__name__ if type(error).__module__ == "aforesaid.errors" else "other"


def _level(error: Exception) -> int:
    """What a caller got wrong is no trouble of ours."""
    if isinstance(error, InvalidInput | NotFound):
        return logging.INFO
    return logging.WARNING if isinstance(error, AforesaidError) else logging.ERROR
