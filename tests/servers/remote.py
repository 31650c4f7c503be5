"""An Aforesaid server on a free port of this machine, on a thread of its own, and memories behind it.

So what is tested with a memory in this process is tested through a socket, too: `open_at` opens both. The
server's own memory is at hand for what a test does with the store itself.
"""

import asyncio
import functools
import inspect
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self, TypeVar, cast

import pytest
import uvicorn

import aforesaid
from aforesaid.remote import RemoteManager, RemoteMemory
from aforesaid.server.app import create_app
from aforesaid.settings import ServerConfig, Settings

T = TypeVar("T")

UNLIMITED = ServerConfig(rate_read=0, rate_write=0, rate_search=0, rate_ask=0)
GROUPS: dict[str, tuple[type, tuple[str, ...]]] = {
    "retention": (aforesaid.Retention, ("sweep_every", "archives")),
    "layers": (aforesaid.Layers, ("encryption", "audit", "cache", "resilience", "timed")),
    "images": (aforesaid.ImageOptions, ("blobs",)),
    "models": (aforesaid.Models, ("tokenizer", "embedder", "summarizer", "preload")),
}


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a test by their own names, as the option values that `aforesaid.open` takes."""
    options = dict(options)
    for group, (kind, names) in GROUPS.items():
        fields = {name: options.pop(name) for name in names if name in options}
        if not fields:
            continue
        value = options.get(group)
        if isinstance(value, kind):
            fields = {name: getattr(value, name) for name in inspect.signature(kind).parameters} | fields
        elif value is not None:
            fields["rules" if group == "retention" else "policy"] = value
        options[group] = kind(**fields)
    return options


HERE = ("config", "ids", "idle_after", "redact")
"""What a client decides; all else that a memory is opened with is the server's."""


class Served:
    """A server that runs, where it is, and what it serves."""

    def __init__(self, url: str, memory: aforesaid.Memory, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.app = app
        self.memory = memory
        self._loop = loop

    def drain(self) -> None:
        """Tell the server that it is about to stop."""
        self._loop.call_soon_threadsafe(self.app.service.stopping.set)

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Do something on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _Thread:
    """The server's thread: opens the memory, serves until `stop`, closes the memory."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._options = {"sweep_every": None, "preload": False, "embedder": None, **options}
        self._is_open = self._options.pop("open_without_keys", True)
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._is_up = threading.Event()
        self._failed: BaseException | None = None
        self.served: Served | None = None

    def start(self) -> Served:
        self._thread.start()
        assert self._is_up.wait(60), "the server does not start"
        if self.served is None:
            raise RuntimeError("the server did not start") from self._failed
        return self.served

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(60)
        assert not self._thread.is_alive(), "the server does not stop"

    async def _serve(self) -> None:
        try:
            async with aforesaid.open(self._url, **grouped(self._options)) as memory:
                app = await asyncio.to_thread(
                    create_app, memory, Settings(server=UNLIMITED), open_without_keys=self._is_open
                )
                await self._answer(app, memory)
        except BaseException as error:
            self._failed = error
            raise
        finally:
            self._is_up.set()

    async def _answer(self, app: Any, memory: aforesaid.Memory) -> None:
        config = uvicorn.Config(
            app, host="127.0.0.1", port=0, log_config=None, lifespan="on", ws="websockets-sansio"
        )
        self._server = _Quiet(config, self._up, memory, app)
        await self._server.serve()

    def _up(self, server: uvicorn.Server, memory: aforesaid.Memory, app: Any) -> None:
        port = server.servers[0].sockets[0].getsockname()[1]
        self.served = Served(f"http://127.0.0.1:{port}", memory, app, asyncio.get_running_loop())
        self._is_up.set()


class _Quiet(uvicorn.Server):
    """A server that says when it is up, and leaves the process's signals alone."""

    def __init__(self, config: uvicorn.Config, up: Any, memory: aforesaid.Memory, app: Any) -> None:
        super().__init__(config)
        self._up = functools.partial(up, self, memory, app)

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._up()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def served(url: str = "memory://", **options: Any) -> Iterator[Served]:
    """A server over the memory at this URL."""
    thread = _Thread(url, options)
    try:
        yield thread.start()
    finally:
        thread.stop()


@pytest.fixture(scope="session")
def example_server_url() -> Iterator[str]:
    """A server for the pages of the documentation."""
    with served() as running:
        yield running.url


BEHIND = "behind+"
"""What the URL of a store begins with that is to be reached through a server."""


def open_at(url: str, **options: Any) -> aforesaid.Memory:
    """The memory at a URL, as `aforesaid.open` gives it; or through a server, where the URL says so.

    The options have the names of the fields of option values, as for `grouped`.
    """
    if url.startswith(BEHIND):
        # It has every member that tests use: those of a client, and the server's own store.
        return cast(aforesaid.Memory, MemoryBehind(url.removeprefix(BEHIND), **options))
    return aforesaid.open(url, **grouped(options))


class MemoryBehind(RemoteMemory):
    """A memory whose server starts and ends with it. What a client decides is the client's, the rest the
    server's; and the store itself is at hand for what a test prepares, or looks at afterwards."""

    def __init__(self, url: str, **options: Any) -> None:
        self._here = {name: value for name, value in options.items() if name in HERE}
        self._thread = _Thread(url, {name: value for name, value in options.items() if name not in HERE})

    async def start(self) -> Self:
        self.served = await asyncio.to_thread(self._thread.start)
        super().__init__(self.served.url, **self._here)
        return await super().start()

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._thread.stop)

    def of(self, owner: str) -> RemoteManager:
        return ManagerBehind(super().of(owner), self.served)

    @property
    def backend(self) -> Any:
        return There(self.served.memory.backend, self.served)

    @property
    def search_resources(self) -> Any:
        return There(self.served.memory.search_resources, self.served)


class ManagerBehind(RemoteManager):
    """A manager behind a server, with the store itself at hand."""

    def __init__(self, manager: RemoteManager, served: Served) -> None:
        super().__init__(manager.calls, manager.sender, manager.unstored)
        self._served = served

    @property
    def store(self) -> Any:
        return There(self._served.memory.of(self.owner).store, self._served)

    @property
    def contact_resources(self) -> Any:
        return SimpleNamespace(queue=There(self._served.memory.contact_resources.queue, self._served))

    @property
    def session_sweeps(self) -> Any:
        return self._served.memory.of(self.owner).session_sweeps

    @property
    def scope(self) -> Any:
        return There(self._served.memory.scope(self.owner), self._served)


class There:
    """Something of the server's, whose work is done on the server's own loop."""

    def __init__(self, it: Any, served: Served) -> None:
        self._it = it
        self._served = served

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._it, name)
        if inspect.iscoroutinefunction(value):
            return functools.partial(self._there, value)
        is_part = type(value).__module__.startswith("aforesaid.") and not isinstance(value, Exception)
        return There(value, self._served) if is_part else value

    async def _there(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.wrap_future(self._served.begin(method(*args, **kwargs)))
