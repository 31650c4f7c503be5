"""Events for the log: a sentence for people, fields for machines, and nothing that anybody said.

Below: the error tree. Above: everything that logs. An error's own words may quote what was given, so that a
log says an error with `describe`: its class, and its words only where they are about places and times.
"""

import logging

from aforesaid.errors import AgentError, MissingExtra, StoreClosed, StoreUnavailable

_SPEAKABLE = (StoreUnavailable, StoreClosed, MissingExtra)
"""Errors whose words are about a place that is away, busy, full or closed."""


def event(log: logging.Logger, level: int, name: str, sentence: str, **fields: object) -> None:
    """A structured log event. Its fields are ids, names of ours, counts and times: never content."""
    if log.isEnabledFor(level):
        log.log(level, sentence, extra={"event": name, **fields})


def describe(error: BaseException) -> str:
    """The error as a log may say it."""
    kind = type(error).__name__
    if isinstance(error, _SPEAKABLE):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    if isinstance(error, AgentError):
        known = {"status": error.status, "request": error.request_id}
        said = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
        return f"{kind} ({said})" if said else kind
    cause = error.__cause__
    return kind if cause is None else f"{kind} after {type(cause).__name__}"
