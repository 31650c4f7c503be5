"""What goes back: status, headers and body, sent as it is. Below: the wire's forms."""

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
"""Seconds after which trying again is worth it when a store was away and nobody knows better."""


class Answer:
    """An answer with its body at hand. An ASGI application, so that the framework passes it on as it is."""

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


class Streamed:
    """An answer that is made while it is sent."""

    __slots__ = ("chunks", "closing", "headers", "status")

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        *,
        media: bytes,
        headers: Iterable[Header] = (),
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        """`closing` is called at the end whatever happened, also when no chunk was ever asked for: a
        generator that was not begun has no end of its own."""
        self.chunks = chunks
        self.closing = closing
        self.status = 200
        self.headers = [*_ALWAYS, *headers, (b"content-type", media), _UNCACHED]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send piece by piece; when the other side hangs up, what makes the pieces is stopped."""
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_hung_up(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not sending.done():
                sending.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
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


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def as_json(document: Any, *, status: int = 200, headers: Iterable[Header] = ()) -> Answer:
    """The document."""
    return Answer(to_json(document), status=status, headers=headers)


def at_revision(document: Any, revision: int, *, status: int = 200) -> Answer:
    """The document of something that has revisions; its ETag is the revision."""
    return Answer(to_json(document), status=status, headers=(_etag(revision),), caching=_REVALIDATED)


def as_degraded(reply: "Answer | Streamed") -> "Answer | Streamed":
    """The answer, marked as degraded in a header and, where its body is a JSON object, in the body."""
    mark: Header = (DEGRADED.encode(), b"true")
    if isinstance(reply, Streamed):
        reply.headers.append(mark)
        return reply
    document = from_json(reply.body) if reply.body and reply.media == JSON else None
    body = to_json({**document, "degraded": True}) if isinstance(document, dict) else reply.body
    headers = (*reply.headers, mark)
    return Answer(body, status=reply.status, media=reply.media, headers=headers, caching=reply.caching)


def unchanged(revision: int) -> Answer:
    """What the caller has is what there is."""
    return Answer(status=304, headers=(_etag(revision),), caching=_REVALIDATED)


NOTHING = Answer(status=204)
"""Done, and there is nothing to say."""


def as_problem(error: AforesaidError, *, status: int | None = None) -> Answer:
    """The problem that tells of an error."""
    code = status_of(error) if status is None else status
    return Answer(
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
