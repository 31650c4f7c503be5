"""A server on a free port of this machine, in this process, over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

# Loaded before any loop runs: importing reads files, once.
import uvicorn.lifespan.on
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.websockets_sansio_impl  # noqa: F401

import aforesaid
from aforesaid.server.app import create_app
from aforesaid.server.auth.keys import AccessScope, ApiKeys
from aforesaid.server.connections import Connections
from aforesaid.server.limits import ConnectionLimits
from aforesaid.server.process import Server, uvicorn_config
from aforesaid.server.service import Service
from aforesaid.settings import ServerConfig, Settings
from tests.servers.remote import open_at

UNLIMITED = ServerConfig(rate_read=0, rate_write=0, rate_search=0, rate_ask=0)


class Running:
    """A server that runs, and a client of it."""

    def __init__(
        self, app: Any, memory: aforesaid.Memory, url: str, client: httpx.AsyncClient, process: Any
    ) -> None:
        self.app = app
        self.memory = memory
        self.url = url
        self.client = client
        self.process = process
        self.held: Connections = process.config.connections
        self.keys = ApiKeys(memory.backend)

    @property
    def service(self) -> Service:
        service: Service = self.app.service
        return service

    async def key(self, *owners: str, scope: AccessScope = "write", **more: Any) -> dict[str, str]:
        """The header with a new key for these owners."""
        text, _ = await self.keys.create(owners, scope=scope, **more)
        return {"Authorization": f"Bearer {text}"}


class _Quiet(Server):
    """Signals belong to the tests."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    url: str = "memory://",
    *,
    settings: ServerConfig = UNLIMITED,
    open_without_keys: bool = True,
    app_options: dict[str, Any] | None = None,
    limits: ConnectionLimits | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """A server over the memory at this URL; it ends with the block."""
    options = {"sweep_every": None, "preload": False, "embedder": None, **options}
    async with (
        open_at(url, **options) as memory,
        serving_memory(
            memory, settings, limits, open_without_keys=open_without_keys, **(app_options or {})
        ) as running,
    ):
        yield running


@asynccontextmanager
async def serving_memory(
    memory: aforesaid.Memory,
    settings: ServerConfig = UNLIMITED,
    limits: Any = None,
    *,
    open_without_keys: bool = True,
    **app_options: Any,
) -> AsyncIterator[Running]:
    """A server over this memory, which is open and stays open."""
    app = create_app(memory, Settings(server=settings), open_without_keys=open_without_keys, **app_options)
    started = asyncio.Event()
    server: Any = _Quiet(app, uvicorn_config(app, settings, limits), listening=started.set)
    server.config.host, server.config.port = "127.0.0.1", 0
    task = asyncio.create_task(server.serve())
    try:
        await asyncio.wait({task, asyncio.create_task(started.wait())}, return_when="FIRST_COMPLETED")
        port = server.servers[0].sockets[0].getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=address, timeout=120) as client:
            yield Running(app, memory, address, client, server)
    finally:
        server.stop()
        await task
