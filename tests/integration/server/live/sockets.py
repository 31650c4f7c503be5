"""A server and its WebSocket clients over real sockets, in this process or in others."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import SO_RCVBUF, SOL_SOCKET, socket
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import aforesaid
from aforesaid.contracts import Transcriber
from aforesaid.server.app import create_app
from aforesaid.server.auth.keys import AccessScope, ApiKeys
from aforesaid.server.limits import ConnectionLimits, LiveLimits
from aforesaid.server.live.hub import Hub
from aforesaid.server.process import Server, bind_socket, uvicorn_config
from aforesaid.settings import Settings, VoiceConfig
from tests.integration.server.live.parts import PATIENCE, Parrot, assistant_of
from tests.servers.remote import open_at


class Socket:
    """A client with a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []

    async def send(self, type: str, **fields: Any) -> None:  # noqa: A002  the name in the frame
        await self.socket.send(json.dumps({"type": type, **fields}))

    async def next(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))
        self.frames.append(frame)
        return frame

    async def until(self, type: str) -> dict[str, Any]:  # noqa: A002
        while True:
            frame = await self.next()
            if frame["type"] == type:
                return frame

    async def hello(self, **fields: Any) -> dict[str, Any]:
        await self.send("hello", **fields)
        return await self.next()

    async def say(self, id: str, text: str) -> dict[str, Any]:  # noqa: A002
        await self.send("text", id=id, text=text)
        return await self.until("answer.done")

    async def close_code(self) -> int | None:
        """How the server ends the connection; frames that come before are kept."""
        try:
            while True:
                await self.next()
        except ConnectionClosed as closed:
            return None if closed.rcvd is None else closed.rcvd.code

    def drop(self) -> None:
        """As when a cable is pulled: no farewell."""
        self.socket.transport.abort()


class Serving:
    """A server that runs in this process."""

    def __init__(self, memory: aforesaid.Memory, live: Hub, port: int, agent: Parrot, server: Server) -> None:
        self.memory = memory
        self.live = live
        self.port = port
        self.agent = agent
        self.server = server
        self.keys = ApiKeys(memory.backend)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    async def key(self, *owners: str, scope: AccessScope = "write", **more: Any) -> str:
        text, _ = await self.keys.create(owners, scope=scope, **more)
        return text

    def connect(self, **options: Any) -> "Connecting":
        return connecting(self.url, **options)


Connecting = Any


@asynccontextmanager
async def connecting_slowly(port: int) -> AsyncIterator[Socket]:
    """A client that reads one frame at a time, from a small buffer."""
    with socket() as small:
        small.setsockopt(SOL_SOCKET, SO_RCVBUF, 32 * 1024)
        small.connect(("127.0.0.1", port))
        options = {"sock": small, "max_queue": 1, "ping_interval": None}
        async with connecting(f"ws://127.0.0.1:{port}/ws", **options) as client:
            yield client


@asynccontextmanager
async def connecting(url: str, **options: Any) -> AsyncIterator[Socket]:
    async with connect(
        url, **({"open_timeout": PATIENCE, "close_timeout": 2, "max_size": None} | options)
    ) as connection:
        yield Socket(connection)


@asynccontextmanager
async def live_serving(
    url: str = "memory://",
    *,
    agent: Any = None,
    transcriber: Transcriber | None = None,
    voice: VoiceConfig | None = None,
    socket_limits: ConnectionLimits | None = None,
    **limits: Any,
) -> AsyncIterator[Serving]:
    """A server as `aforesaid serve` runs it, over the memory at this URL; it ends with the block."""
    agent = agent or Parrot()
    listening = bind_socket("127.0.0.1", 0)
    given = Settings(voice=voice or VoiceConfig())
    async with open_at(url, sweep_every=None, preload=False, embedder=None) as memory:
        app = create_app(
            memory,
            given,
            assistant=assistant_of(agent),
            transcriber=transcriber,
            # A test client answers no heartbeat while it waits for something else.
            live_limits=LiveLimits(**({"poll_seconds": 0.02, "heartbeat_seconds": 600} | limits)),
            open_without_keys=True,
        )
        started = asyncio.Event()
        server = Server(app, uvicorn_config(app, given.server, socket_limits), listening=started.set)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            waiting = asyncio.create_task(started.wait())
            await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
            assert started.is_set()
            yield Serving(memory, app.live, listening.getsockname()[1], agent, server)
        finally:
            server.stop()
            await task
