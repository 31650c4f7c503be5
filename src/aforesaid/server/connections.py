"""Limit the time, bytes and file handles of connections before authentication.

A client could keep connections open forever: idle, with an incomplete request, an endless body, or an unread
response. The limits:

- an idle connection is kept for `keep_alive_seconds` after a response;
- a connection waits `request_seconds` for the head of a request, and for the rest of a body after its
  response;
- a head has at most `head_bytes`;
- a body or response without progress for `stall_seconds` closes its connection;
- at most `waiting` connections are in each of these states, the first two together. One more closes the
  oldest, idle ones first, which leaves file handles for complete requests, the store and health checks.

The application authenticates a request before it reads the body. A connection without a request in progress
is therefore idle or unauthenticated, and needs no other bookkeeping.

A proxy may send a request on a kept connection while the server closes it, and cannot know whether it may
send it again. `keep_alive_seconds` is therefore longer than proxies keep idle connections. A stopping server
announces it first (`Connection: close` in every response), and closes idle connections last.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from aforesaid.server.limits import ConnectionLimits

SWEEP_SECONDS = 1.0
# Seconds that a WebSocket client has to confirm a close.
CLOSE_SECONDS = 2.0

_HttpProtocol: Any = AutoHTTPProtocol
_CLOSING = b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout" + _CLOSING
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large" + _CLOSING


class TimedConnections:
    """Connections in one state, oldest first, each for a limited time. `most`: 0 means no limit."""

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
        """Add a connection, or restart its time."""
        self._since.pop(connection, None)
        self._since[connection] = connection.loop.time()
        if self._most and len(self._since) > self._most:
            self.end_oldest()
        if self._sweeping is None and self._since:
            self._sweep_later(connection.loop)

    def drop(self, connection: Any) -> None:
        self._since.pop(connection, None)

    def end_oldest(self) -> None:
        oldest = next(iter(self._since))
        self.drop(oldest)
        self._end(oldest)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = loop.call_later(min(SWEEP_SECONDS, self._seconds), self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End connections that exceed their time.

        The dict is in order of age, so stop at the first younger one.
        """
        self._sweeping = None
        while self._since and loop.time() - next(iter(self._since.values())) >= self._seconds:
            self.end_oldest()
        if self._since:
            self._sweep_later(loop)


class Connections:
    """The connections of a process by state."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        # Set while every connection has a request.
        self.all_at_work = asyncio.Event()
        # Without a request since the last response.
        self.idle = TimedConnections(_expire, seconds=limits.keep_alive_seconds)
        # New, or waiting for the rest of a head.
        self.waiting = TimedConnections(_expire, seconds=limits.request_seconds)
        # Waiting for more of a body. Every chunk restarts the time.
        self.receiving = TimedConnections(_abort, seconds=limits.stall_seconds, most=limits.waiting)
        # Waiting for the client to read.
        self.unread = TimedConnections(_abort, seconds=limits.stall_seconds, most=limits.waiting)
        # Waiting for a WebSocket client to confirm a close.
        self.closing = TimedConnections(_abort, seconds=CLOSE_SECONDS, most=limits.waiting)

    @property
    def without_request(self) -> int:
        """How many connections have no complete request."""
        return len(self.idle) + len(self.waiting)

    def await_request(self, connection: Any, *, is_idle: bool) -> None:
        """Add a connection without a request. Slow bytes of a head do not restart its time."""
        state, other = (self.idle, self.waiting) if is_idle else (self.waiting, self.idle)
        other.drop(connection)
        if connection not in state:
            state.put(connection)
        self.all_at_work.clear()
        if self.limits.waiting and self.without_request > self.limits.waiting:
            (self.idle or self.waiting).end_oldest()

    def end_wait(self, connection: Any) -> None:
        """Take out a connection that has a request or is closed."""
        self.idle.drop(connection)
        self.waiting.drop(connection)
        if not self.without_request:
            self.all_at_work.set()

    def drop(self, connection: Any) -> None:
        self.end_wait(connection)
        for state in (self.receiving, self.unread, self.closing):
            state.drop(connection)


class BoundedConfig(uvicorn.Config):
    """uvicorn configuration with connection limits."""

    def __init__(self, app: Any, *, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(app, http=BoundedHttp, ws=BoundedWebSocket, **options)
        self.connections = Connections(limits)


class BoundedHttp(_HttpProtocol):  # type: ignore[misc]  # uvicorn chooses the implementation
    """uvicorn's HTTP protocol with a time limit on every state."""

    def __init__(self, config: BoundedConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._connections = config.connections
        self._in_head = True
        # Received bytes of the current head.
        self._head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._connections.await_request(self, is_idle=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.drop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > self._connections.limits.head_bytes:
            self.refuse(_HEAD_TOO_LARGE)
        elif not self.transport.is_closing():
            self._update_state()

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._update_state()

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        self._connections.drop(self)
        super().handle_websocket_upgrade(*arguments)

    def _update_state(self) -> None:
        """Move the connection to its current state."""
        if self.transport.get_protocol() is not self:
            return  # upgraded to a WebSocket
        if self.cycle is None or self.cycle.response_complete:
            self._connections.receiving.drop(self)
            self._connections.await_request(self, is_idle=self.cycle is not None and not self._head)
        else:
            self._connections.end_wait(self)
            if self.cycle.more_body and not self.flow.read_paused:
                self._connections.receiving.put(self)
            else:
                self._connections.receiving.drop(self)

    def pause_writing(self) -> None:
        self._connections.unread.put(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._connections.unread.drop(self)
        super().resume_writing()

    def expire(self) -> None:
        """Close a connection without a complete request in time."""
        is_incomplete = self.cycle is None and self._head > 0
        self.refuse(_TIMED_OUT if is_incomplete else b"")

    def refuse(self, response: bytes) -> None:
        """Send a response and close. Abort instead if the client has not read earlier data."""
        self._connections.drop(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        if response:
            self.transport.write(response)
        self.transport.close()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a time limit on closing, and a close frame for slow readers too."""

    def __init__(self, config: BoundedConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._connections = config.connections

    async def send(self, message: Any) -> None:
        closes = message["type"] == "websocket.close"
        if closes:
            # The close frame is queued behind what the client has not read, instead of waiting for it.
            self.writable.set()
        await super().send(message)
        if closes and not self.transport.is_closing():
            is_unread = self.transport.get_write_buffer_size() > 0
            (self._connections.unread if is_unread else self._connections.closing).put(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.drop(self)
        super().connection_lost(exc)


def _expire(connection: BoundedHttp) -> None:
    connection.expire()


def _abort(connection: Any) -> None:
    connection.transport.abort()
