"""Processes, sockets, and the way down. Below: the application, the memory. Above: `aforesaid serve`.

The way down is the same for Ctrl-C and for SIGTERM: `/ready` turns 503 at once, so that whoever distributes
requests sends no more; what is running finishes, within the time that the settings give; the memory closes
last, when nobody needs it any more.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import uvicorn

import aforesaid
from aforesaid._internal.threads import to_the_end
from aforesaid.errors import InvalidSetting, StoreUnavailable
from aforesaid.layers.build import layers_in, resilience_in
from aforesaid.server.app import create_app, tokens_for
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.server.connections import BoundedConfig, ConnectionLimits, connection_limits_for
from aforesaid.server.leftovers import remove_leftovers
from aforesaid.settings import ServerConfig, Settings, TelemetryConfig
from aforesaid.stores.urls import parse_url
from aforesaid.telemetry.aggregation import shared_folder
from aforesaid.telemetry.logs import logging_to
from aforesaid.telemetry.tracing import tracing_to
from aforesaid.transfer.archives import archive_folder

if TYPE_CHECKING:
    from litestar import Litestar

log = logging.getLogger("aforesaid.server")

LARGEST_FRAME = 2 * 1024 * 1024
"""Bytes of a WebSocket frame that are read at all: beyond it the connection is closed with 1009. Below it
and above the limits, a frame is refused and the connection stays."""

LAST_PORT = 65_535

ALONE = ("memory", "file")
"""Stores that one process has to itself."""


# Before anything listens


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can come in by this address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_workers(url: str, workers: int) -> None:
    """Refuse several processes on a store that only one can have."""
    scheme = parse_url(url).scheme
    if workers < 1:
        raise InvalidSetting(f"workers must be 1 or more; got {workers}", field="workers", value=workers)
    if workers > 1 and scheme in ALONE:
        raise InvalidSetting(
            f"a {scheme}: store is for one process: use --workers 1, or a store that several can share "
            "(sqlite:, postgresql:, redis:)",
            field="workers",
            value=workers,
        )


async def check_guarded(memory: aforesaid.Memory, settings: ServerConfig, host: str) -> bool:
    """Refuse to listen beyond this machine while anybody would be let in; whether no key is needed."""
    if tokens_for(settings) is not None or await ApiKeys(memory.backend).any():
        return False
    if is_loopback(host) and not settings.require_keys:
        return True
    advice = (
        "make one with `aforesaid keys create --owner NAME`, or name the issuer of your tokens "
        "(AFORESAID_JWT_ISSUER, AFORESAID_JWT_AUDIENCE, AFORESAID_JWT_JWKS)"
    )
    if settings.require_keys:
        raise InvalidSetting(
            f"AFORESAID_REQUIRE_KEYS is set, and there is no key: {advice}", field="require_keys", value=True
        )
    raise InvalidSetting(
        f"the server would listen on {host}, beyond this machine, and there is no key: {advice}; "
        "or listen on 127.0.0.1",
        field="server_host",
        value=host,
    )


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; several processes may share it."""
    if not 0 <= port <= LAST_PORT:
        raise InvalidSetting(
            f"the port must be 0 to {LAST_PORT}; got {port}", field="server_port", value=port
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise StoreUnavailable(
            f"the server cannot listen on {host}:{port}: {error.strerror or error}"
        ) from error
    listening.set_inheritable(True)
    return listening


# What is seen of it


@contextlib.contextmanager
def watched(settings: TelemetryConfig) -> Iterator[None]:
    """The block's log goes where people or machines read it, and its spans to whoever collects them."""
    share = settings.traces_percent / 100
    with (
        logging_to(sys.stderr, form=settings.log, level=settings.log_level),
        tracing_to(settings.traces_url, share=share),
    ):
        yield


# One process


UNDER_WAY = 20_000
"""Objects that may come and not go before the collector looks: more than a hundred turns under way have."""


def settle() -> None:
    """What is there when the server starts stays: the collector need not look through it again and again,
    which is a pause of some ten milliseconds for everybody each time. Nor need it look through what turns
    under way hold, time and again until they end: that is a twentieth of a turn."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(UNDER_WAY)


def fast_loop() -> asyncio.AbstractEventLoop:
    """The event loop of a server: uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@asynccontextmanager
async def opened(url: str, settings: Settings) -> AsyncIterator[aforesaid.Memory]:
    """The memory that a server serves, by the settings."""
    kept = settings.retention
    folder = kept.archive_folder
    async with aforesaid.open(
        url,
        config=settings.conversation,
        ttl=kept.ttl,
        retention=kept.retention,
        blobs=settings.store.blobs_folder or None,
        archives=await asyncio.to_thread(archive_folder, folder, kept.archive_key_file) if folder else None,
        resilience=resilience_in(settings.resilience, url),
        observe=True,
        **{name: value for name, value in layers_in(settings).items() if name != "resilience"},
    ) as memory:
        yield memory


class Server(uvicorn.Server):
    """A server that tells when it has started, and tells its application when it is about to stop."""

    def __init__(
        self, app: "Litestar", config: uvicorn.Config, *, listening: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await to_the_end(remove_leftovers)
        await super().startup(sockets)
        if self.started:
            self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers under way on WebSockets are finished before their connections are closed."""
        await self._app.state.live.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the server, and nothing else: whoever started it goes on to tidy up."""
        loop = asyncio.get_running_loop()
        kinds = (signal.SIGINT, signal.SIGTERM)
        for kind in kinds:
            loop.add_signal_handler(kind, self.stop)
        try:
            yield
        finally:
            for kind in kinds:
                loop.remove_signal_handler(kind)

    def stop(self) -> None:
        """Stop: first gracefully, and at once when asked again."""
        self._app.state.service.draining.set()
        self.force_exit = self.should_exit
        self.should_exit = True


def configured(
    app: "Litestar", settings: ServerConfig, limits: ConnectionLimits | None = None
) -> BoundedConfig:
    return BoundedConfig(
        app,
        limits=limits or connection_limits_for(settings),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=LARGEST_FRAME,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=settings.drain_seconds,
    )


async def serve_here(
    url: str,
    settings: Settings,
    listening: socket.socket,
    *,
    loopback: bool,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve in this process until a signal says otherwise."""
    async with opened(url, settings) as memory:
        app = application(memory, settings, loopback=loopback)
        settle()
        server = Server(app, configured(app, settings.server), listening=started)
        await server.serve(sockets=[listening])


def application(memory: aforesaid.Memory, settings: Settings, *, loopback: bool) -> "Litestar":
    """The application that `aforesaid serve` serves."""
    return create_app(memory, settings, open_without_keys=loopback)


# Several processes


def serve_with_workers(
    url: str, settings: Settings, listening: socket.socket, *, workers: int, loopback: bool
) -> None:
    """Serve in several processes that share a socket and add up their numbers. One that dies is replaced."""
    with shared_folder():
        _serve_with_workers(url, settings, listening, workers=workers, loopback=loopback)


def _serve_with_workers(
    url: str, settings: Settings, listening: socket.socket, *, workers: int, loopback: bool
) -> None:
    import multiprocessing
    from multiprocessing.connection import wait

    spawning = multiprocessing.get_context("spawn")
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True
        for process in running:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGTERM)

    def start() -> BaseProcess:
        process = spawning.Process(target=_worker, args=(url, settings, listening, loopback))
        process.start()
        return process

    running: list[BaseProcess] = [start() for _ in range(workers)]
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, stop)
    while not stopping:
        wait([process.sentinel for process in running], timeout=1.0)
        for at, process in enumerate(running):
            if not process.is_alive() and not stopping:
                log.error("worker %s ended with %s; another takes its place", process.pid, process.exitcode)
                running[at] = start()
    for process in running:
        process.join()


def _worker(url: str, settings: Settings, listening: socket.socket, loopback: bool) -> None:
    with watched(settings.telemetry), asyncio.Runner(loop_factory=fast_loop) as runner:
        runner.run(serve_here(url, settings, listening, loopback=loopback))
