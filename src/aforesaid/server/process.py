"""Run the server: checks, sockets, processes, signals, graceful shutdown.

SIGTERM shuts down in four steps: `/ready` returns 503, so that load balancers send no more requests; requests
that still arrive are served for `lame_duck_seconds`, and each response closes its connection; requests in
progress finish within `drain_seconds`; the memory closes. SIGINT, the signal of a person at a terminal, skips
the second step.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from multiprocessing.process import BaseProcess
from typing import Any

import uvicorn

from aforesaid.errors import InvalidSetting, StoreUnavailable
from aforesaid.layers.build import layers_in
from aforesaid.memory.opening import Memory
from aforesaid.memory.opening import open as open_store
from aforesaid.memory.options import ImageOptions, retention_in
from aforesaid.server.app import Application, create_app
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.server.auth.tokens import tokens_for
from aforesaid.server.connections import BoundedConfig
from aforesaid.server.limits import ConnectionLimits, connection_limits_for
from aforesaid.settings import ServerConfig, Settings, TelemetryConfig
from aforesaid.stores.urls import parse_url
from aforesaid.telemetry import event
from aforesaid.telemetry.events import logging_words
from aforesaid.telemetry.exposition import shared_folder
from aforesaid.telemetry.logs import logging_to
from aforesaid.telemetry.tracing import tracing_to

log = logging.getLogger("aforesaid.server")

# Bytes. A larger WebSocket frame closes the connection with 1009. A smaller frame above the configured
# limit is refused and the connection stays open.
MAX_FRAME_BYTES = 2 * 1024 * 1024

MAX_PORT = 65_535

# Seconds for requests that are on their way, on new and kept connections, when nothing listens any more.
LINGER_SECONDS = 2.0

# Stores that only one process can use.
SINGLE_PROCESS_STORES = ("memory", "file")


# Checks and sockets


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can connect to this address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_workers(url: str, workers: int) -> None:
    """Refuse several workers on a store that only one process can use."""
    scheme = parse_url(url).scheme
    if workers < 1:
        raise InvalidSetting(f"workers must be 1 or more; got {workers}", field="workers", value=workers)
    if workers > 1 and scheme in SINGLE_PROCESS_STORES:
        raise InvalidSetting(
            f"a {scheme}: store supports one process: use --workers 1, or a shared store "
            "(sqlite:, postgresql:, redis:)",
            field="workers",
            value=workers,
        )


async def check_keys(memory: Memory, settings: ServerConfig, host: str) -> bool:
    """Refuse to listen on a public address without keys. Return whether no key is required."""
    try:
        if tokens_for(settings) is not None or await ApiKeys(memory.backend).any():
            return False
    except StoreUnavailable:
        # Keys cannot be read now. The authenticator accepts no request before it has verified its key, or has
        # seen that there is none.
        return is_loopback(host) and not settings.require_keys
    if is_loopback(host) and not settings.require_keys:
        return True
    advice = (
        "create one with `aforesaid keys create --owner NAME`, or configure a token issuer "
        "(AFORESAID_JWT_ISSUER, AFORESAID_JWT_AUDIENCE, AFORESAID_JWT_JWKS)"
    )
    if settings.require_keys:
        raise InvalidSetting(
            f"AFORESAID_REQUIRE_KEYS is set but no key exists: {advice}", field="require_keys", value=True
        )
    raise InvalidSetting(
        f"{host} is not a loopback address and no key exists: {advice}; or listen on 127.0.0.1",
        field="server_host",
        value=host,
    )


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket that worker processes can inherit."""
    if not 0 <= port <= MAX_PORT:
        raise InvalidSetting(f"the port must be 0 to {MAX_PORT}; got {port}", field="server_port", value=port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        hint = "; choose another port with --port, or any free one with --port 0"
        raise StoreUnavailable(
            f"the server cannot listen on {host}:{port}: {error.strerror or error}"
            f"{hint if error.errno == errno.EADDRINUSE else ''}"
        ) from error
    # Workers share one listening socket, and the kernel distributes connections over them.
    listening.set_inheritable(True)
    return listening


# Telemetry


@contextlib.contextmanager
def with_telemetry(settings: TelemetryConfig) -> Iterator[None]:
    """Configure logging and tracing for the duration of the block."""
    share = settings.traces_percent / 100
    with (
        logging_to(sys.stderr, form=settings.log, level=settings.log_level),
        logging_words(enabled=settings.log_words),
        tracing_to(settings.traces_url, share=share),
    ):
        yield


# One process


# Allocations before a garbage collection: more than a hundred concurrent turns have.
GC_THRESHOLD = 20_000


def tune_garbage_collector() -> None:
    """Reduce garbage collection pauses.

    Freezing the objects that exist at startup saves pauses of about ten milliseconds. A higher threshold
    avoids scanning the objects of concurrent turns repeatedly, which costs about 5 % of a turn.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if uvloop is installed, else the default one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@asynccontextmanager
async def open_memory(url: str, settings: Settings) -> AsyncIterator[Memory]:
    """Open the memory of a server by the settings."""
    async with open_store(
        url,
        config=settings.conversation,
        ttl=settings.retention.ttl,
        retention=await asyncio.to_thread(retention_in, settings.retention),
        images=ImageOptions(blobs=settings.store.blobs_folder or None),
        layers=replace(layers_in(settings, url), timed=True),
    ) as memory:
        yield memory


class Server(uvicorn.Server):
    """A uvicorn server that reports its start and drains its application before it stops."""

    def __init__(
        self, app: Application, config: BoundedConfig, *, listening: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._connections = config.connections
        self._listening = listening
        self._lame_duck: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that wait, and finish answers on WebSockets before closing."""
        self._app.service.stopping.set()
        await self._stop_listening(sockets or [])
        await self._app.live.drain()
        await super().shutdown(sockets)

    async def _stop_listening(self, sockets: Sequence[socket.socket]) -> None:
        """Close the listening sockets without resetting connections that the kernel has accepted for us.

        A proxy has sent its request on such a connection and cannot know whether it may send it again.
        """
        loop = asyncio.get_running_loop()
        # The event loop closes its own sockets. The copies stay open until the last connection is accepted.
        copies = [each.dup() for each in sockets]
        for server in self.servers:
            server.close()
        accepted = 0
        for each in copies:
            each.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection, _ = each.accept()
                    await loop.connect_accepted_socket(self._protocol, connection)
                    accepted += 1
            each.close()
        if accepted or self._lame_duck is not None:
            await self._linger()

    async def _linger(self) -> None:
        """Wait for requests on open connections: uvicorn closes those whose request has not been read yet."""
        if self._connections.without_request:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._connections.all_at_work.wait(), LINGER_SECONDS)

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop the server on a signal.

        Unlike uvicorn, do not raise it again, so that the caller can clean up.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGTERM, self.stop_after_lame_duck)
        try:
            yield
        finally:
            for kind in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(kind)

    def stop_after_lame_duck(self) -> None:
        """Announce the stop, and stop when load balancers had time to notice. A second call stops at once."""
        seconds = self._app.service.settings.server.lame_duck_seconds
        if not seconds or self._lame_duck is not None:
            self.stop()
            return
        self._app.service.draining.set()
        event(log, logging.INFO, "stopping", f"stopping in {seconds} s; /ready answers 503", seconds=seconds)
        self._lame_duck = asyncio.get_running_loop().call_later(seconds, self.stop)

    def stop(self) -> None:
        """Stop gracefully; the second call stops immediately."""
        if self._lame_duck is not None:
            self._lame_duck.cancel()
        self._app.service.draining.set()
        # False on the first call; true on the second, after `should_exit` was set.
        self.force_exit = self.should_exit
        self.should_exit = True


def uvicorn_config(
    app: Application, settings: ServerConfig, limits: ConnectionLimits | None = None
) -> BoundedConfig:
    return BoundedConfig(
        app,
        limits=limits or connection_limits_for(settings),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=MAX_FRAME_BYTES,
        ws_per_message_deflate=False,
        timeout_keep_alive=settings.keep_alive_seconds,
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
    """Serve in this process until a signal stops it."""
    async with open_memory(url, settings) as memory:
        app = application(memory, settings, loopback=loopback)
        tune_garbage_collector()
        server = Server(app, uvicorn_config(app, settings.server), listening=started)
        await server.serve(sockets=[listening])


def application(memory: Memory, settings: Settings, *, loopback: bool) -> Application:
    """Return the application of `aforesaid serve`."""
    return create_app(memory, settings, open_without_keys=loopback)


# Several processes


def serve_with_workers(
    url: str, settings: Settings, listening: socket.socket, *, workers: int, loopback: bool
) -> None:
    """Serve in several processes that share a socket and metrics. Replace a worker that dies."""
    with shared_folder():
        _serve_with_workers(url, settings, listening, workers=workers, loopback=loopback)


def _serve_with_workers(
    url: str, settings: Settings, listening: socket.socket, *, workers: int, loopback: bool
) -> None:
    import multiprocessing
    from multiprocessing.connection import wait

    # Not `fork`: the parent has threads, and a forked child would inherit their locks.
    spawning = multiprocessing.get_context("spawn")
    stopping = False

    def stop(kind: int, _: Any) -> None:
        nonlocal stopping
        stopping = True
        for process in running:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, kind)
        # The workers have the socket. While this process has it, nothing refuses new connections.
        listening.close()

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
                log.error("worker %s exited with %s; starting another", process.pid, process.exitcode)
                running[at] = start()
    for process in running:
        process.join()


def _worker(url: str, settings: Settings, listening: socket.socket, loopback: bool) -> None:
    with with_telemetry(settings.telemetry), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve_here(url, settings, listening, loopback=loopback))
