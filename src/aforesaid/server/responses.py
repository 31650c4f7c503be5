"""HTTP responses as ASGI applications, and problems for errors."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from litestar import Request
from litestar import Response as FrameworkResponse
from litestar.exceptions import HTTPException
from litestar.types import Receive, Scope, Send

from aforesaid.errors import (
    AforesaidError,
    AgentRateLimited,
    Malformed,
    NotAuthenticated,
    StoreUnavailable,
    TooLarge,
    TooManyRequests,
)
from aforesaid.protocol import DEGRADED, PROBLEM_JSON, from_json, problem_of, status_of, to_json

log = logging.getLogger("aforesaid.server")

Header = tuple[bytes, bytes]

JSON = b"application/json"
# Browsers must not guess another type: stored text may look like HTML.
_ALWAYS: tuple[Header, ...] = ((b"x-content-type-options", b"nosniff"),)
# Responses contain an owner's data. Proxies and browsers must not store them, except for responses with an
# ETag, which a client may store for itself and must revalidate.
_UNCACHED: Header = (b"cache-control", b"no-store")
_REVALIDATED: Header = (b"cache-control", b"private, no-cache")

# Default of `Retry-After` in seconds.
RETRY_AFTER = 1


class Response:
    """A response with a complete body. Litestar sends ASGI applications without processing them."""

    __slots__ = ("body", "caching", "headers", "media", "status")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        media: bytes = JSON,
        headers: Iterable[Header] = (),
        caching: Header = _UNCACHED,
    ) -> None:
        self.body = body
        self.status = status
        self.media = media
        self.headers = tuple(headers)
        self.caching = caching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*_ALWAYS, *self.headers, self.caching]
        if self.status not in (204, 304):
            headers += [(b"content-type", self.media), (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


class StreamingResponse:
    """A response that is generated while it is sent."""

    __slots__ = ("chunks", "closing", "headers", "status")

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        *,
        media: bytes,
        headers: Iterable[Header] = (),
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `closing` at the end in any case.

        A generator that never started would not run its `finally`.
        """
        self.chunks = chunks
        self.closing = closing
        self.status = 200
        self.headers = [*_ALWAYS, *headers, (b"content-type", media), _UNCACHED]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send chunk by chunk. Cancel the generator when the client disconnects."""
        # ASGI reports a disconnect to a pending `receive` only. Without the second task, a stream that waits
        # for its next chunk would notice a disconnect at its next `send`.
        sending = asyncio.create_task(self._send(send))
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            if not sending.done():
                sending.cancel()
            await asyncio.gather(sending, disconnect, return_exceptions=True)
            self.closing()
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        try:
            async for chunk in self.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            await self.chunks.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def json_response(document: Any, *, status: int = 200, headers: Iterable[Header] = ()) -> Response:
    """Return a JSON response."""
    return Response(to_json(document), status=status, headers=headers)


def revision_response(document: Any, revision: int, *, status: int = 200) -> Response:
    """Return a JSON response with the revision as ETag."""
    return Response(to_json(document), status=status, headers=(_etag(revision),), caching=_REVALIDATED)


def mark_degraded(reply: "Response | StreamingResponse") -> "Response | StreamingResponse":
    """Mark a response as degraded in a header and, if its body is a JSON object, in the body."""
    mark: Header = (DEGRADED.encode(), b"true")
    if isinstance(reply, StreamingResponse):
        reply.headers.append(mark)
        return reply
    document = from_json(reply.body) if reply.body and reply.media == JSON else None
    body = to_json({**document, "degraded": True}) if isinstance(document, dict) else reply.body
    headers = (*reply.headers, mark)
    return Response(body, status=reply.status, media=reply.media, headers=headers, caching=reply.caching)


def not_modified(revision: int) -> Response:
    """Return 304."""
    return Response(status=304, headers=(_etag(revision),), caching=_REVALIDATED)


# Success without a body.
NO_CONTENT = Response(status=204)


# Problems


def problem_response(error: AforesaidError, *, status: int | None = None) -> Response:
    """Return the problem response of an error."""
    code = status_of(error) if status is None else status
    return Response(
        to_json(problem_of(error, status=code)),
        status=code,
        media=PROBLEM_JSON.encode(),
        headers=tuple(_problem_headers(error)),
    )


def _problem_headers(error: AforesaidError) -> Iterable[Header]:
    if isinstance(error, NotAuthenticated):
        yield b"www-authenticate", b'Bearer realm="aforesaid"'
    if isinstance(error, TooManyRequests | AgentRateLimited):
        yield b"retry-after", str(max(1, round(error.retry_after or RETRY_AFTER))).encode()
    elif isinstance(error, StoreUnavailable):
        yield b"retry-after", str(RETRY_AFTER).encode()


def _etag(revision: int) -> Header:
    return b"etag", b'"%d"' % revision


# Errors outside of routes: Litestar's exception handlers, which must return its own response class

_TITLES = {
    404: "The route does not exist.",
    405: "The route does not support this method.",
    415: "The content type is not supported.",
}


def from_framework(_: "Request[Any, Any, Any]", error: HTTPException) -> FrameworkResponse[bytes]:
    """Convert an error of the framework: unknown route or method, or a body that is too large."""
    status = error.status_code
    if status == 413:
        return _problem(problem_of(TooLarge("the body is too large", field="body")))
    if status == 400:
        return _problem(problem_of(Malformed(str(error.detail))))
    if status >= 500:
        log.error("the framework raised an error", exc_info=error)
    title = _TITLES.get(status, "The request failed.")
    detail = str(error.detail) if status < 500 else title
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return _problem(problem, headers=dict(error.headers or {}))


def from_aforesaid(_: "Request[Any, Any, Any]", error: AforesaidError) -> FrameworkResponse[bytes]:
    """Convert one of our errors that was raised outside of a route."""
    return _problem(problem_of(error))


def from_unexpected(_: "Request[Any, Any, Any]", error: Exception) -> FrameworkResponse[bytes]:
    """Log an unexpected error and return a general problem."""
    # Do not log the path: it may contain a search query.
    log.error("a request failed", exc_info=error)
    return _problem(problem_of(AforesaidError()))


def _problem(problem: dict[str, Any], *, headers: dict[str, str] | None = None) -> FrameworkResponse[bytes]:
    return FrameworkResponse(
        to_json(problem),
        status_code=problem["status"],
        media_type=PROBLEM_JSON,
        headers={"cache-control": "no-store", **(headers or {})},
    )
