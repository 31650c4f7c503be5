"""Errors over the wire: one of ours becomes an RFC 9457 problem, and the same one again on the other side.

    {"type": "urn:aforesaid:problem:revision-conflict", "title": "The conversation has changed since it was
     read.", "status": 409, "detail": "…", "conversation_id": "…", "expected": 3, "actual": 4}

The name in `type` is the error's class; its data stand beside. What failed inside (a store, a file, a
provider) is told in general words only: paths and hosts are for the server's log.
"""

import re
from collections.abc import Mapping
from inspect import signature
from typing import Any

from aforesaid import errors
from aforesaid.errors import AforesaidError

PROBLEM_JSON = "application/problem+json"
PREFIX = "urn:aforesaid:problem:"

STATUSES: tuple[tuple[type[AforesaidError], int], ...] = (
    (errors.Malformed, 400),
    (errors.TooLarge, 413),
    (errors.InvalidInput, 422),
    (errors.NotFound, 404),
    (errors.KeyReused, 422),
    (errors.Conflict, 409),
    (errors.NotAuthenticated, 401),
    (errors.TooManyRequests, 429),
    (errors.AccessError, 403),
    (errors.StoreUnavailable, 503),
    (errors.StoreClosed, 503),
    (errors.KeyUnavailable, 503),
    (errors.WindowError, 422),
    (errors.AgentUnavailable, 503),
    (errors.AgentError, 502),
    (errors.NotUnderstood, 422),
    (errors.TranscriberUnavailable, 503),
    (errors.TranscriberError, 502),
    (errors.MissingExtra, 501),
    (AforesaidError, 500),
)
"""Error → status; the first that fits holds."""

_RENAMED = {"status": "provider_status"}
"""Data of errors whose names a problem has for itself."""
_WORDS = frozenset(("message", "what"))
"""What errors are made from and keep as their words only."""
_MEMBERS = frozenset(("type", "title", "status", "detail", "instance"))
_LONGEST_VALUE = 200


def status_of(error: AforesaidError) -> int:
    """The HTTP status that tells of this error."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def problem_of(error: AforesaidError, *, status: int | None = None) -> dict[str, Any]:
    """The problem that tells of this error. One that is the caller's fault is told in its own words."""
    code = status_of(error) if status is None else status
    data = {
        _RENAMED.get(name, name): _jsonable(value)
        for name, value in vars(error).items()
        if not name.startswith("_")  # a mark that somebody left on it
    }
    return {
        "type": PREFIX + _kebab(type(error).__name__),
        "title": _title(type(error)),
        "status": code,
        "detail": _title(type(error)) if _is_internal(error) and code >= 500 else str(error),
        **{name: value for name, value in data.items() if name not in _MEMBERS},
    }


def error_of(problem: Mapping[str, Any], *, status: int = 500) -> AforesaidError:
    """The error that a problem tells of. One that is not known here is told apart by its status."""
    kind = _KINDS.get(str(problem.get("type", ""))) or _kind_for(status)
    error = kind.__new__(kind)
    Exception.__init__(error, str(problem.get("detail") or problem.get("title") or _title(kind)))
    given = {name: value for name, value in problem.items() if name not in _MEMBERS and name[:1] != "_"}
    for ours, theirs in _RENAMED.items():
        if theirs in given:
            given[ours] = given.pop(theirs)
    vars(error).update({**dict.fromkeys(_data_of(kind)), **given})
    return error


def _data_of(kind: type[AforesaidError]) -> list[str]:
    """What an error of this kind carries, by name: whoever catches one may ask for all of it."""
    return [name for name in signature(kind).parameters if name not in _WORDS]


def _is_internal(error: AforesaidError) -> bool:
    """Whether its words are for whoever runs the server."""
    return isinstance(
        error, (errors.StoreError, errors.EncoderFailed, errors.AgentError, errors.TranscriberError)
    )


def _title(kind: type[AforesaidError]) -> str:
    return (kind.__doc__ or "").strip()


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _jsonable(value: object) -> object:
    """The value where a reader can use it; else as a message would show it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_VALUE and not _has_surrogates(value):
        return value
    return errors.shown(value)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _kind_for(status: int) -> type[AforesaidError]:
    """What an answer that is no problem of ours tells: a proxy's, say."""
    return _BY_STATUS.get(status) or (errors.StoreUnavailable if status in (502, 504) else AforesaidError)


def _every_kind(kind: type[AforesaidError]) -> list[type[AforesaidError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _every_kind(below))]


_KINDS = {
    PREFIX + _kebab(kind.__name__): kind
    for kind in _every_kind(AforesaidError)
    if kind.__module__ == errors.__name__
}
"""The problem's type → our error."""

_BY_STATUS: dict[int, type[AforesaidError]] = {
    400: errors.Malformed,
    401: errors.NotAuthenticated,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidInput,
    429: errors.TooManyRequests,
    503: errors.StoreUnavailable,
}
