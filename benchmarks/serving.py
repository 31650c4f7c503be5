"""What the benchmarks of the server share: the server as it is deployed, and beside it the bare framework.

Both are in one process, behind one socket, under the same settings of uvicorn. The bare application has none
of our layers: a route that reads its body and answers nothing, and a socket that sends back what it hears.
The load is a process of its own, and nothing that it needs is counted.

What is done after turns, when it is quiet (the index of words, the vectors), would fall into the rounds of
the bare framework, and be counted against it. So it runs between rounds, counted apart: see `Quiet`.
"""

import asyncio
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measuring import p50, p99

if TYPE_CHECKING:
    from litestar import Litestar

    import aforesaid
    from aforesaid.server.app import Application
    from aforesaid.settings import Settings

BARE = ("/empty", "/echo", "/words", "/vectors", "/no-vectors")


# The server


async def serve(
    folder: Path,
    owners: list[str],
    settings: "Settings",
    application: "Callable[[aforesaid.Memory], Application]",
) -> None:
    """Serve as `aforesaid serve` does; says on stdout where, and with which key."""
    from aforesaid.server.auth.keys import ApiKeys
    from aforesaid.server.process import (
        Server,
        bind_socket,
        open_memory,
        tune_garbage_collector,
        uvicorn_config,
    )

    listening = bind_socket("127.0.0.1", 0)
    async with open_memory(f"sqlite:///{folder}/turns.db", settings) as memory:
        key, _ = await ApiKeys(memory.backend).create(owners)
        app = application(memory)
        config = uvicorn_config(app, settings.server)
        config.app = _beside(app, _bare(memory, owners))
        tune_garbage_collector()

        def started() -> None:
            print(json.dumps({"port": listening.getsockname()[1], "key": key}), flush=True)

        await Server(app, config, listening=started).serve(sockets=[listening])


def _beside(ours: Any, bare: Any) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await (bare if scope.get("path") in BARE else ours)(scope, receive, send)

    return application


def _bare(memory: "aforesaid.Memory", owners: list[str]) -> "Litestar":
    """The framework by itself."""
    from litestar import Litestar, Request, WebSocket, post, websocket

    @post("/empty")
    async def empty(request: Request) -> None:  # type: ignore[type-arg]
        await request.body()

    @websocket("/echo")
    async def echo(socket: WebSocket) -> None:  # type: ignore[type-arg]
        await socket.accept()
        while True:
            await socket.send_text(await socket.receive_text())

    @post("/words")
    async def words() -> None:
        """Index all words."""
        await _innermost(memory.backend).catch_up()

    @post("/vectors")
    async def vectors() -> None:
        """Make all vectors."""
        if memory.search_resources.indexer is not None:
            await memory.search_resources.indexer.wait_until_idle()

    @post("/no-vectors")
    async def no_vectors() -> None:
        """Have no vectors made of what was said so far."""
        for owner in owners:
            if memory.search_resources.indexer is not None:
                memory.search_resources.indexer.forget(owner)

    handlers = [empty, echo, words, vectors, no_vectors]
    return Litestar(handlers, openapi_config=None, logging_config=None)


def _innermost(backend: Any) -> Any:
    while hasattr(backend, "inner"):
        backend = backend.inner
    return backend


# The load


class Quiet(NamedTuple):
    """Seconds of the processor for what is done after each turn, when it is quiet."""

    words: float
    vectors: float

    def __str__(self) -> str:
        words, vectors = (f"{seconds * 1e6:,.0f} µs" for seconds in self)
        return f"after each turn, when it is quiet: {words} for words, {vectors} for vectors"


async def quiet_after(pid: int, port: int, turns: int) -> Quiet:
    """Have everything done that waits, and see what it costs for each of so many turns."""
    begin = cpu_seconds(pid)
    await asked(port, "/words")
    between = cpu_seconds(pid)
    await asked(port, "/vectors")
    return Quiet(words=(between - begin) / turns, vectors=(cpu_seconds(pid) - between) / turns)


async def quiet(port: int) -> None:
    """Between rounds: words are indexed. Vectors are not made: they would take longer than all rounds."""
    await asked(port, "/words")
    await asked(port, "/no-vectors")


async def asked(port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    if not head.startswith(b"HTTP/1.1 201"):
        raise SystemExit(f"{path}: {head!r}")


class Round(NamedTuple):
    """One kind of exchange for some time."""

    rate: float
    times: list[float]
    cpu: float
    """Seconds of the server's processor for each exchange."""
    load: float
    """Seconds of the load's own processor for each: what it could send at most."""


def cpu_seconds(pid: int) -> float:
    """How long the processor has worked for all threads of a process: neighbours matter less to it."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def describe(rounds: list[Round]) -> str:
    """What several rounds of one kind say, in a line."""
    times = [each for one in rounds for each in one.times]
    rate, cpu, own = (
        statistics.median(getattr(one, name) for one in rounds) for name in ("rate", "cpu", "load")
    )
    return (
        f"{rate:8,.0f}/s   p50 {p50(times) * 1e3:6.2f} ms   p99 {p99(times) * 1e3:6.2f} ms"
        f"   p99/p50 {p99(times) / p50(times):4.1f}"
        f"   processor {cpu * 1e6:4,.0f} µs, and the load's own {own * 1e6:3,.0f} µs"
    )
