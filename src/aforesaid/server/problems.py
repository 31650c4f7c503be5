"""Exception handlers: convert errors outside of routes to problems.

Unexpected errors are logged with traceback; the response has a general message.
"""

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from aforesaid.errors import AforesaidError, Malformed, TooLarge
from aforesaid.protocol import PROBLEM_JSON, problem_of, to_json

log = logging.getLogger("aforesaid.server")

_TITLES = {
    404: "The route does not exist.",
    405: "The route does not support this method.",
    415: "The content type is not supported.",
}


def from_framework(_: "Request[Any, Any, Any]", error: HTTPException) -> Response[bytes]:
    """Convert an error of the framework: unknown route or method, or a body that is too large."""
    status = error.status_code
    if status == 413:
        return problem_response(problem_of(TooLarge("the body is too large", field="body")))
    if status == 400:
        return problem_response(problem_of(Malformed(str(error.detail))))
    if status >= 500:
        log.error("the framework raised an error", exc_info=error)
    title = _TITLES.get(status, "The request failed.")
    detail = str(error.detail) if status < 500 else title
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return problem_response(problem, headers=dict(error.headers or {}))


def from_aforesaid(_: "Request[Any, Any, Any]", error: AforesaidError) -> Response[bytes]:
    """Convert one of our errors that was raised outside of a route."""
    return problem_response(problem_of(error))


def from_unexpected(_: "Request[Any, Any, Any]", error: Exception) -> Response[bytes]:
    """Log an unexpected error and return a general problem."""
    # Do not log the path: it may contain a search query.
    log.error("a request failed", exc_info=error)
    return problem_response(problem_of(AforesaidError()))


def problem_response(problem: dict[str, Any], *, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(
        to_json(problem),
        status_code=problem["status"],
        media_type=PROBLEM_JSON,
        headers={"cache-control": "no-store", **(headers or {})},
    )
