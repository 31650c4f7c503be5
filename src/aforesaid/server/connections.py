"""Bound what a connection costs before anybody is let in: time, bytes and file handles.

uvicorn closes connections that are idle between two requests. Everything else would stay open for as long as
the other side likes: half of a request, a body that never ends, an answer that nobody reads. The limits:

- a connection waits `request_seconds` for the head of a request, and for the rest of an answered body;
- a head has at most `head_bytes`;
- a body, or an answer, that makes no progress for `stall_seconds` ends its connection;
- at most `waiting` connections are in each of these states. One more closes the oldest, so that file handles
  are left for requests that are complete, for the store, and for health checks.

The application refuses a request without a key before it reads the body. So a connection that answers nothing
is either idle or not let in, and no other bookkeeping is needed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from aforesaid.settings import ServerConfig

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

SWEEP_SECONDS = 1.0
FAREWELL_SECONDS = 2.0
"""How long a WebSocket client may take to confirm that it is over."""
MANY_HANDLES = 1_000_000

_HttpProtocol: Any = AutoHTTPProtocol
_CLOSING = b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout" + _CLOSING
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large" + _CLOSING


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """What connections may take."""

    request_seconds: float = 10.0
    stall_seconds: float = 60.0
    waiting: int = 1000
    head_bytes: int = 64 * 1024


def file_handles() -> int:
    """How many files and sockets this process may have open."""
    if resource is None:
        return MANY_HANDLES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_HANDLES if soft == resource.RLIM_INFINITY else min(soft, MANY_HANDLES)


def connection_limits_for(settings: ServerConfig) -> ConnectionLimits:
    """The limits by the settings. Each state has at most a tenth of the file handles: there are five of them,
    with WebSockets before their hello, and the rest is for requests under way and for the store."""
    return ConnectionLimits(
        request_seconds=float(settings.request_seconds),
        waiting=max(1, min(settings.waiting_connections, file_handles() // 10)),
    )


class Held:
    """Connections in one state, the oldest first, each for a limited time. `most`: 0 is any number."""

    def __init__(self, end: Callable[[Any], None], *, seconds: float, most: int = 0) -> None:
        self._end = end
        self._seconds = seconds
        self._most = most
        self._since: dict[Any, float] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, connection: object) -> bool:
        return connection in self._since

    def put(self, connection: Any) -> None:
        """Note that a connection is in this state from now on."""
        self._since.pop(connection, None)
        self._since[connection] = connection.loop.time()
        if self._most and len(self._since) > self._most:
            self._end_oldest()
        if self._sweeping is None and self._since:
            self._sweep_later(connection.loop)

    def drop(self, connection: Any) -> None:
        self._since.pop(connection, None)

    def _end_oldest(self) -> None:
        oldest = next(iter(self._since))
        self.drop(oldest)
        self._end(oldest)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = loop.call_later(min(SWEEP_SECONDS, self._seconds), self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what has been here for too long. The rest is younger than the first that has not."""
        self._sweeping = None
        while self._since and loop.time() - next(iter(self._since.values())) >= self._seconds:
            self._end_oldest()
        if self._since:
            self._sweep_later(loop)


class Connections:
    """The connections of a process, by what they wait for."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.waiting = Held(_expire, seconds=limits.request_seconds, most=limits.waiting)
        """For a request."""
        self.receiving = Held(_abort, seconds=limits.stall_seconds, most=limits.waiting)
        """For more of a body that the application reads. Every piece that comes makes it the youngest."""
        self.unread = Held(_abort, seconds=limits.stall_seconds, most=limits.waiting)
        """For the other side to read."""
        self.parting = Held(_abort, seconds=FAREWELL_SECONDS, most=limits.waiting)
        """For a WebSocket client to confirm that it is over."""

    def drop(self, connection: Any) -> None:
        for held in (self.waiting, self.receiving, self.unread, self.parting):
            held.drop(connection)


class BoundedConfig(uvicorn.Config):
    """The configuration of a server whose connections are bounded."""

    def __init__(self, app: Any, *, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(app, http=BoundedHttp, ws=BoundedWebSocket, **options)
        self.connections = Connections(limits)


class BoundedHttp(_HttpProtocol):  # type: ignore[misc]  # which of two it is, uvicorn decides
    """uvicorn's protocol, each of whose states ends in time."""

    def __init__(self, config: BoundedConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._held = config.connections
        self._in_head = True
        self._head = 0
        """Bytes of the head that is being received."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._held.waiting.put(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.drop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > self._held.limits.head_bytes:
            self.refuse(_HEAD_TOO_LARGE)
        elif not self.transport.is_closing():
            self._settle()

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._settle()

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        self._held.drop(self)
        super().handle_websocket_upgrade(*arguments)

    def _settle(self) -> None:
        """Note what the connection waits for now."""
        if self.transport.get_protocol() is not self:
            return  # it is a WebSocket by now
        if self.cycle is None or self.cycle.response_complete:
            self._held.receiving.drop(self)
            if self not in self._held.waiting:  # what trickles in wins no time
                self._held.waiting.put(self)
        else:
            self._held.waiting.drop(self)
            if self.cycle.more_body and not self.flow.read_paused:
                self._held.receiving.put(self)
            else:
                self._held.receiving.drop(self)

    def pause_writing(self) -> None:
        self._held.unread.put(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._held.unread.drop(self)
        super().resume_writing()

    def expire(self) -> None:
        """End a connection on which no request came in time."""
        is_half_sent = self.cycle is None and self._head > 0
        self.refuse(_TIMED_OUT if is_half_sent else b"")

    def refuse(self, answer: bytes) -> None:
        """Send the last words and close. What the other side has not read by now it does not get."""
        self._held.drop(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        if answer:
            self.transport.write(answer)
        self.transport.close()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which does not wait long for a client that does not part."""

    def __init__(self, config: BoundedConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._held = config.connections

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.close" and not self.transport.is_closing():
            self._held.parting.put(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.drop(self)
        super().connection_lost(exc)


def _expire(connection: BoundedHttp) -> None:
    connection.expire()


def _abort(connection: Any) -> None:
    connection.transport.abort()
