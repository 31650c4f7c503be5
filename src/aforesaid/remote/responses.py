"""From an answer to a value or to one of our errors. No I/O. Below: protocol. Above: describing, exchanging.

What comes back is not believed: a proxy's page, a server of another release, or an answer that breaks off
in the middle becomes an error that says so.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from aforesaid._internal.freshness import note_degraded
from aforesaid.errors import (
    AforesaidError,
    InvalidInput,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
    TooManyRequests,
    shown,
)
from aforesaid.protocol import DEGRADED, PROBLEM_JSON, from_json
from aforesaid.protocol import error_of as error_of_problem
from aforesaid.remote.calls import Answer

T = TypeVar("T")

JSON = "application/json"
FROM_BETWEEN = frozenset((408, 429, 500, 502, 503, 504))
"""Statuses that a proxy gives by itself, with a page of its own, while the server is away."""


def reader(read: Callable[[Any], T]) -> Callable[[Answer], T]:
    """Reads the JSON of an answer by a function that expects the right one."""

    def read_answer(answer: Answer) -> T:
        document = document_of(answer)
        if DEGRADED in answer.headers:
            note_degraded("the server answers from the last known state")
        try:
            return read(document)
        except (
            KeyError,
            TypeError,
            AttributeError,
            InvalidInput,
            StoreDamaged,
            msgspec.MsgspecError,
        ) as error:
            raise StoreForeign(
                f"the server's answer is not as expected; is it of another release? ({shown_error(error)})"
            ) from error

    return read_answer


def document_of(answer: Answer) -> Any:
    """The JSON of an answer."""
    if answer.media_type != JSON:
        raise _not_ours(answer)
    try:
        return from_json(answer.content)
    except InvalidInput as error:
        raise StoreUnavailable("the server's answer breaks off, or is no JSON") from error


def nothing(answer: Answer) -> None:
    """An answer that has nothing to say. A page in its place is somebody else's."""
    if answer.content:
        raise _not_ours(answer)


def error_of(answer: Answer) -> AforesaidError:
    """The error that an answer tells of: the same that the manager would have raised."""
    if answer.media_type == PROBLEM_JSON:
        problem = _problem(answer)
        if problem is not None and not _is_no_route(problem, answer):
            return _timed(error_of_problem(problem, status=answer.status), answer)
    if answer.status in FROM_BETWEEN:
        return (
            _timed(error_of_problem({}, status=answer.status), answer)
            if answer.status == 429
            else _away(answer)
        )
    return _not_ours(answer)


def _is_no_route(problem: Mapping[str, Any], answer: Answer) -> bool:
    """Whether the server does not know what it was asked: it is of another release."""
    return answer.status in (404, 405) and problem.get("type", "about:blank") == "about:blank"


def _problem(answer: Answer) -> Mapping[str, Any] | None:
    try:
        document = from_json(answer.content)
    except InvalidInput:
        return None
    return document if isinstance(document, dict) else None


def _timed(error: AforesaidError, answer: Answer) -> AforesaidError:
    """When to come back, from the header that says so."""
    given = answer.headers.get("retry-after", "")
    if isinstance(error, TooManyRequests):
        known = getattr(error, "retry_after", None)
        error.retry_after = float(given[:9]) if known is None and given.isdigit() else known
    return error


def _away(answer: Answer) -> AforesaidError:
    return StoreUnavailable(f"the server, or what stands before it, answers with {answer.status}")


def _not_ours(answer: Answer) -> AforesaidError:
    if 300 <= answer.status < 400:
        where = shown(answer.headers.get("location", ""))
        return StoreForeign(f"the server sends to {where} with {answer.status}: open that URL instead")
    what = answer.media_type or "nothing"
    return StoreForeign(
        f"the server answers with {answer.status} and {what}, which is not Aforesaid's: is the URL right, "
        "and the server of a release that can do this?"
    )


def shown_error(error: Exception) -> str:
    """An error's kind and words, cut short: they may quote the answer."""
    return f"{type(error).__name__}: {shown(str(error))}"
