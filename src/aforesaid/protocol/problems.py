"""Convert errors to RFC 9457 problems and back to the same errors.

    {"type": "urn:aforesaid:problem:revision-conflict", "title": "The conversation has changed since it was
     read.", "status": 409, "detail": "…", "conversation_id": "…", "expected": 3, "actual": 4}

`type` names the error's class; further members hold its data. A failure inside the server (store, file,
provider) has a general `detail`, because messages with paths and hosts belong in the server's log.
"""

import re
from collections.abc import Mapping
from inspect import signature
from typing import Any

from aforesaid import errors
from aforesaid.errors import AforesaidError

PROBLEM_JSON = "application/problem+json"
PREFIX = "urn:aforesaid:problem:"

# Error class → status. The first matching row applies.
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

# Attributes of errors whose names are problem members already.
_RENAMED_MEMBERS = {"status": "provider_status"}
# Constructor parameters that only form the message.
_MESSAGE_PARAMETERS = frozenset(("message", "what"))
_MEMBERS = frozenset(("type", "title", "status", "detail", "instance"))
_LONGEST_VALUE = 200


def status_of(error: AforesaidError) -> int:
    """Return the HTTP status of an error."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def problem_of(error: AforesaidError, *, status: int | None = None) -> dict[str, Any]:
    """Return the problem of an error. Only errors caused by the caller keep their own message."""
    code = status_of(error) if status is None else status
    data = {
        _RENAMED_MEMBERS.get(name, name): _jsonable(value)
        for name, value in vars(error).items()
        if not name.startswith("_")
    }
    return {
        "type": PREFIX + _kebab(type(error).__name__),
        "title": _title(type(error)),
        "status": code,
        "detail": _title(type(error)) if _is_internal(error) and code >= 500 else str(error),
        **{name: value for name, value in data.items() if name not in _MEMBERS},
    }


def error_of(problem: Mapping[str, Any], *, status: int = 500) -> AforesaidError:
    """Return the error of a problem. The status selects the class if the type is unknown."""
    kind = _BY_TYPE.get(str(problem.get("type", ""))) or _class_for_status(status)
    # Without `__init__`: constructors build the message from data that a problem may lack.
    error = kind.__new__(kind)
    Exception.__init__(error, str(problem.get("detail") or problem.get("title") or _title(kind)))
    given = {name: value for name, value in problem.items() if name not in _MEMBERS and name[:1] != "_"}
    for ours, theirs in _RENAMED_MEMBERS.items():
        if theirs in given:
            given[ours] = given.pop(theirs)
    vars(error).update({**dict.fromkeys(_data_of(kind)), **given})
    return error


def _data_of(kind: type[AforesaidError]) -> list[str]:
    """Return the attribute names of an error class, so that every attribute exists on a decoded error."""
    return [name for name in signature(kind).parameters if name not in _MESSAGE_PARAMETERS]


def _is_internal(error: AforesaidError) -> bool:
    """Return whether the message is for the server's operator only."""
    return isinstance(
        error, (errors.StoreError, errors.EncoderFailed, errors.AgentError, errors.TranscriberError)
    )


def _title(kind: type[AforesaidError]) -> str:
    return (kind.__doc__ or "").strip()


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _jsonable(value: object) -> object:
    """Return the value if JSON clients can use it, else its short text form."""
    if value is None or isinstance(value, bool | float):
        return value
    # JavaScript clients read JSON numbers as doubles.
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_VALUE and not _has_surrogates(value):
        return value
    return errors.shown(value)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _class_for_status(status: int) -> type[AforesaidError]:
    """Return the error class for a response that is not one of our problems, such as a proxy's."""
    return _BY_STATUS.get(status) or (errors.StoreUnavailable if status in (502, 504) else AforesaidError)


def _subclasses(kind: type[AforesaidError]) -> list[type[AforesaidError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _subclasses(below))]


# Problem type → error class.
_BY_TYPE = {
    PREFIX + _kebab(kind.__name__): kind
    for kind in _subclasses(AforesaidError)
    if kind.__module__ == errors.__name__
}

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
