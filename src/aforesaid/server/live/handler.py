"""The WebSocket route `/ws`: connect sockets to `Connection` objects, and the hub to the service."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.handlers import WebsocketRouteHandler

from aforesaid._internal.tasks import ended
from aforesaid.contracts import PCM, AudioFormat
from aforesaid.errors import AccessError, AforesaidError, InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.protocol.live import (
    BEARER_SUBPROTOCOL,
    OWNER_SUBPROTOCOL,
    SUBPROTOCOL,
    AudioStart,
    CloseCode,
    write_frame,
)
from aforesaid.server.auth.authenticator import wanted_owner
from aforesaid.server.auth.keys import Caller
from aforesaid.server.live.connection import Connection
from aforesaid.server.live.hub import Hub, Transcribe
from aforesaid.server.live.outbox import ConnectionClosed
from aforesaid.server.live.turns import Assistant
from aforesaid.server.service import Service, source_of
from aforesaid.voice.assistant import VoiceAssistant, message_of

log = logging.getLogger("aforesaid.server.live")

Socket: TypeAlias = WebSocket[Any, Any, Any]

PATH = "/ws"
# Seconds to send the close frame.
CLOSE_SECONDS = 2.0


def live_handler(hub: Hub) -> WebsocketRouteHandler:
    """Return the route."""

    @websocket(PATH)
    async def live(socket: Socket) -> None:
        await serve(hub, socket)

    return live


class ServerServices:
    """Adapt the service of the HTTP routes to the hub."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def manager(self, caller: Caller, owner: str, participant: str | None) -> ConversationManager:
        return self._service.manager_for(caller, owner, participant=participant)

    def assistant(self, manager: ConversationManager) -> Assistant:
        return self._service.assistant(manager)

    async def note_refusal(self, action: str, error: AccessError, *, source: str) -> None:
        await self._service.note_refusal(action, error, source=source)

    def transcribe(self, manager: ConversationManager) -> Transcribe:
        return partial(_transcribe, self._service.voice(manager))


async def _transcribe(voice: VoiceAssistant, audio: bytes, start: AudioStart) -> Message:
    pcm = AudioFormat(rate=start.rate, channels=start.channels) if start.media_type == PCM else None
    return message_of(await voice.understand(audio, audio_format=pcm))


# Connections


async def serve(hub: Hub, socket: Socket) -> None:
    """Serve one connection."""
    headers = _headers(socket)
    offered = list(socket.scope.get("subprotocols") or ())
    # Accept before refusing: browsers show no HTTP status of a failed handshake, but they do show close
    # codes.
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
        ending = await _run(socket, connection)
    finally:
        connection.leave()
    if ending is not None:
        with suppress(TimeoutError, WebSocketDisconnect, RuntimeError, OSError):
            await asyncio.wait_for(socket.close(ending.code, ending.reason), CLOSE_SECONDS)


async def _run(socket: Socket, connection: Connection) -> ConnectionClosed | None:
    """Run both directions until one ends. Return the reason, unless the client left."""
    reading = asyncio.create_task(_read(socket, connection), name="aforesaid-live-read")
    writing = asyncio.create_task(_write(socket, connection), name="aforesaid-live-write")
    connection.abort = lambda: bool(writing.cancel())
    try:
        await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended(reading, writing)
    return _ending(connection, reading, writing)


def _ending(
    connection: Connection, reading: "asyncio.Task[None]", writing: "asyncio.Task[None]"
) -> ConnectionClosed | None:
    for task in (reading, writing):
        error = None if task.cancelled() else task.exception()
        if error is not None:  # an internal error closes this connection only
            log.error("a connection failed", exc_info=error)
            return ConnectionClosed(CloseCode.INTERNAL, "internal error")
    return connection.ending


async def _read(socket: Socket, connection: Connection) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text, data = message.get("text"), message.get("bytes")
        await connection.receive(text if isinstance(text, str) else bytes(data or b""))  # type: ignore[call-overload]


async def _write(socket: Socket, connection: Connection) -> None:
    with suppress(ConnectionClosed):
        while True:
            text = write_frame(await connection.next())
            try:
                await socket.send({"type": "websocket.send", "text": text, "bytes": None})
            except (OSError, WebSocketDisconnect, RuntimeError):
                return  # the client disconnected, or violated the protocol and was disconnected


# Handshake


def _headers(socket: Socket) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in socket.scope["headers"]}


def _with_bearer(headers: Mapping[bytes, bytes], offered: Iterable[str]) -> dict[bytes, bytes]:
    """Return the headers, with the key from a browser's subprotocol."""
    key = _subprotocol_value(offered, BEARER_SUBPROTOCOL)
    return dict(headers) if key is None else {**headers, b"authorization": b"Bearer " + key}


def _owner(headers: Mapping[bytes, bytes], offered: Iterable[str]) -> str | None:
    """Return the owner in the handshake. Raises `InvalidInput`."""
    owner = _subprotocol_value(offered, OWNER_SUBPROTOCOL)
    if owner is None:
        return wanted_owner(headers)
    try:
        return owner.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("the owner must be UTF-8 in base64url", field="owner") from None


def _subprotocol_value(offered: Iterable[str], prefix: str) -> bytes | None:
    for name in offered:
        if name.startswith(prefix):
            text = name.removeprefix(prefix)
            with suppress(binascii.Error, ValueError):
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return None
