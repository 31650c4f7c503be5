"""What the framework itself refuses, and what nobody expected, as problems. Below: answers.

The edge of the server: an error that is none of ours is logged whole and told in general words.
"""

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from aforesaid.errors import AforesaidError, Malformed, TooLarge
from aforesaid.protocol import PROBLEM_JSON, problem_of, to_json

log = logging.getLogger("aforesaid.server")

_TITLES = {
    404: "There is no such route.",
    405: "The route does not know this method.",
    415: "The body is of a type that is not taken here.",
}


def from_framework(_: "Request[Any, Any, Any]", error: HTTPException) -> Response[bytes]:
    """What the framework refuses: an unknown route, an unknown method, too large a body."""
    status = error.status_code
    if status == 413:
        return rendered(problem_of(TooLarge("the body is larger than the server takes", field="body")))
    if status == 400:
        return rendered(problem_of(Malformed(str(error.detail))))
    if status >= 500:
        log.error("the framework failed", exc_info=error)
    title = _TITLES.get(status, "The request failed.")
    detail = str(error.detail) if status < 500 else title
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return rendered(problem, headers=dict(error.headers or {}))


def from_us(_: "Request[Any, Any, Any]", error: AforesaidError) -> Response[bytes]:
    """One of our errors that came up outside of a route."""
    return rendered(problem_of(error))


def unexpected(_: "Request[Any, Any, Any]", error: Exception) -> Response[bytes]:
    """What should not have happened: logged with its trace, told without."""
    # Not the path: what somebody looks for may be in it.
    log.error("a request failed", exc_info=error)
    return rendered(problem_of(AforesaidError()))


def rendered(problem: dict[str, Any], *, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(
        to_json(problem),
        status_code=problem["status"],
        media_type=PROBLEM_JSON,
        headers={"cache-control": "no-store", **(headers or {})},
    )
