"""HTTP responses as ASGI applications."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from litestar.types import Receive, Scope, Send

from aforesaid.errors import (
    AforesaidError,
    AgentRateLimited,
    NotAuthenticated,
    StoreUnavailable,
    TooManyRequests,
)
from aforesaid.protocol import DEGRADED, PROBLEM_JSON, from_json, problem_of, status_of, to_json

Header = tuple[bytes, bytes]

JSON = b"application/json"
_ALWAYS: tuple[Header, ...] = ((b"x-content-type-options", b"nosniff"),)
_UNCACHED: Header = (b"cache-control", b"no-store")
_REVALIDATED: Header = (b"cache-control", b"private, no-cache")

RETRY_AFTER = 1
"""Default of `Retry-After` in seconds."""


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


NO_CONTENT = Response(status=204)
"""Success without a body."""


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
