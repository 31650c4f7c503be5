"""The WebSocket `/ws`: a socket around a connection. Below: the connection. Above: the application.

Thin: bytes are handed in, frames are handed out, and whichever side ends first ends the other.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.handlers import WebsocketRouteHandler

from aforesaid._internal.deadlines import ended
from aforesaid.errors import AforesaidError, InvalidInput
from aforesaid.protocol import OWNER_HEADER
from aforesaid.protocol.live import (
    BEARER_SUBPROTOCOL,
    OWNER_SUBPROTOCOL,
    SUBPROTOCOL,
    CloseCode,
    write_frame,
)
from aforesaid.server.auth.authenticator import wanted_owner
from aforesaid.server.calls import source_of
from aforesaid.server.live.connection import Connection
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.outbox import Ended

log = logging.getLogger("aforesaid.server.live")

Socket: TypeAlias = WebSocket[Any, Any, Any]

PATH = "/ws"
FAREWELL_SECONDS = 2.0
"""How long a peer may take to hear why it is over."""


def live_handler(hub: Hub) -> WebsocketRouteHandler:
    """The route."""

    @websocket(PATH)
    async def live(socket: Socket) -> None:
        await serve(hub, socket)

    return live


async def serve(hub: Hub, socket: Socket) -> None:
    """One connection, from its handshake to its end."""
    headers = _headers(socket)
    offered = list(socket.scope.get("subprotocols") or ())
    await socket.accept(subprotocols=SUBPROTOCOL if SUBPROTOCOL in offered else None)
    if hub.is_full or hub.is_draining:
        await socket.close(CloseCode.TRY_LATER if hub.is_full else CloseCode.RESTARTING)
        return
    try:
        connection = Connection(
            hub,
            _with_bearer(headers, offered),
            owner=_owner(headers, offered),
            source=source_of(socket),
        )
    except AforesaidError:
        await socket.close(CloseCode.NOT_ALLOWED)
        return
    try:
        parting = await _talk(socket, connection)
    finally:
        connection.leave()
    if parting is not None:
        with suppress(TimeoutError, WebSocketDisconnect, RuntimeError, OSError):
            await asyncio.wait_for(socket.close(parting.code, parting.reason), FAREWELL_SECONDS)


async def _talk(socket: Socket, connection: Connection) -> Ended | None:
    """Both directions at once, until one ends; why, unless the client left."""
    reading = asyncio.create_task(_read(socket, connection), name="aforesaid-live-read")
    writing = asyncio.create_task(_write(socket, connection), name="aforesaid-live-write")
    connection.cut = lambda: bool(writing.cancel())
    try:
        await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended(reading, writing)
    return _parting(connection, reading, writing)


def _parting(
    connection: Connection, reading: "asyncio.Task[None]", writing: "asyncio.Task[None]"
) -> Ended | None:
    for task in (reading, writing):
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the edge: a mistake of ours ends this connection, and no other
            log.error("a connection stumbled", exc_info=error)
            return Ended(CloseCode.INTERNAL, "a mistake of the server's")
    return connection.ending


async def _read(socket: Socket, connection: Connection) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text, data = message.get("text"), message.get("bytes")
        await connection.heard(text if isinstance(text, str) else bytes(data or b""))  # type: ignore[call-overload]


async def _write(socket: Socket, connection: Connection) -> None:
    with suppress(Ended):
        while True:
            text = write_frame(await connection.next())
            try:
                await socket.send({"type": "websocket.send", "text": text, "bytes": None})
            except (OSError, WebSocketDisconnect, RuntimeError):
                return  # the peer is gone, or what it sent was no WebSocket and it was sent away


# What the handshake says


def _headers(socket: Socket) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in socket.scope["headers"]}


def _with_bearer(headers: Mapping[bytes, bytes], offered: Iterable[str]) -> dict[bytes, bytes]:
    """The headers, with the key that a browser hands over as a subprotocol."""
    key = _offered(offered, BEARER_SUBPROTOCOL)
    return dict(headers) if key is None else {**headers, b"authorization": b"Bearer " + key}


def _owner(headers: Mapping[bytes, bytes], offered: Iterable[str]) -> str | None:
    """The owner that the handshake names. Raises `InvalidInput`."""
    named = _offered(offered, OWNER_SUBPROTOCOL)
    if named is None:
        return wanted_owner(headers, OWNER_HEADER.encode())
    try:
        return named.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("the owner must be UTF-8 in base64url", field="owner") from None


def _offered(offered: Iterable[str], prefix: str) -> bytes | None:
    for name in offered:
        if name.startswith(prefix):
            text = name.removeprefix(prefix)
            with suppress(binascii.Error, ValueError):
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return None
