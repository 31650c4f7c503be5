"""Log events: a sentence for people, fields for programs, and no content.

An error's text may quote input, so logs use `describe`: the error's class, and its text only where it is
about places and times.
"""

import logging

from aforesaid.errors import AgentError, MissingExtra, StoreClosed, StoreUnavailable

_SAFE_TO_LOG = (StoreUnavailable, StoreClosed, MissingExtra)
"""Errors whose text is about a store that is unavailable, busy, full or closed."""


def event(log: logging.Logger, level: int, name: str, sentence: str, **fields: object) -> None:
    """Log a structured event. Its fields are ids, our own names, counts and times: never content."""
    if log.isEnabledFor(level):
        log.log(level, sentence, extra={"event": name, **fields})


def describe(error: BaseException) -> str:
    """Return the error as a log may contain it."""
    kind = type(error).__name__
    if isinstance(error, _SAFE_TO_LOG):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    if isinstance(error, AgentError):
        known = {"status": error.status, "request": error.request_id}
        details = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
        return f"{kind} ({details})" if details else kind
    cause = error.__cause__
    return kind if cause is None else f"{kind} after {type(cause).__name__}"
