"""Clients without a key keep few connections, and only briefly: real sockets, and few file handles."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from aforesaid.protocol.live import CloseCode
from aforesaid.server.connections import TimedConnections
from aforesaid.server.limits import (
    ConnectionLimits,
    LiveLimits,
    connection_limits_for,
)
from aforesaid.settings import ServerConfig
from aforesaid.telemetry.resources import MAX_FILES, open_files_limit
from tests.integration.server.live.parts import comes_true
from tests.integration.server.live.sockets import connecting
from tests.integration.server.running import Running, serving
from tests.integration.server.test_process import ROOT, _wait_for
from tests.servers.ports import free_port
from tests.servers.waiting import LONGEST

HALF_A_HEAD = b"GET /v1/conversations HTTP/1.1\r\nHost: localhost\r\nX-"
HALF_A_BODY = (
    b"POST /v1/conversations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"session_id": '
)
A_TURN = (
    b"POST /v1/sessions/turns HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 77\r\n\r\n{"session_id": "kitchen", "messages": [{"role": "user", "content": "hello"}]}'
)
QUICK = ServerConfig(
    rate_read=0, rate_write=0, rate_search=0, rate_ask=0, request_seconds=1, waiting_connections=20
)


class Raw:
    """A connection on which bytes are sent as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """The next answer, which has a short body of a known length."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), LONGEST)
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        return head + await asyncio.wait_for(self.reader.readexactly(length), LONGEST)

    async def rest(self) -> bytes:
        """All that the server sends until it closes."""
        try:
            return await asyncio.wait_for(self.reader.read(), LONGEST)
        except ConnectionError:
            return b""


@asynccontextmanager
async def raw(server: Running, data: bytes = b"") -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    try:
        connection = Raw(reader, writer)
        if data:
            await connection.send(data)
        yield connection
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b""),
        (b"G", b"HTTP/1.1 408 "),
        (HALF_A_HEAD, b"HTTP/1.1 408 "),
        (HALF_A_BODY, b"HTTP/1.1 401 "),
    ],
    ids=["nothing", "a byte", "half a head", "half a body"],
)
async def test_half_of_a_request_is_closed(sent: bytes, answered: bytes) -> None:
    async with serving(settings=QUICK, open_without_keys=False) as server, raw(server, sent) as half:
        assert (await half.rest()).startswith(answered)


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\n", HALF_A_BODY], ids=["head", "body"])
async def test_bytes_that_trickle_in_win_no_time(begun: bytes) -> None:
    """A header, or a byte of a body, now and then: the time is that of the whole request."""
    async with serving(settings=QUICK, open_without_keys=False) as server, raw(server, begun) as slow:
        closed = asyncio.create_task(slow.rest())
        while not closed.done():
            try:
                await slow.send(b"a: b\r\n")
            except ConnectionError:
                break
            await asyncio.wait({closed}, timeout=0.05)
        await closed


WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"HTTP/1.1 200 "


async def test_an_idle_connection_is_kept_for_longer_than_a_head_may_take() -> None:
    """Longer than proxies keep their connections: they cannot repeat a POST on one that the server closes."""
    async with serving(settings=QUICK) as server, raw(server, WHOLE) as kept:
        assert (await kept.answer()).startswith(HEALTH)
        async with raw(server, HALF_A_HEAD) as half:
            assert (await half.rest()).startswith(b"HTTP/1.1 408 ")
        assert len(server.held.idle) == 1
        await kept.send(WHOLE)
        assert (await kept.answer()).startswith(HEALTH)


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    limits = ConnectionLimits(keep_alive_seconds=0.5, request_seconds=3600)
    async with serving(limits=limits) as server, raw(server, WHOLE) as kept:
        assert (await kept.answer()).startswith(HEALTH)
        assert await kept.rest() == b""


async def test_requests_on_open_connections_are_served_while_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy cannot repeat a POST that it sends on a kept connection while the server closes it."""
    monkeypatch.setattr("aforesaid.server.process.LINGER_SECONDS", 3600.0)
    duck = ServerConfig(lame_duck_seconds=1)
    async with serving(settings=duck) as server, raw(server, WHOLE) as kept, raw(server) as new:
        assert (await kept.answer()).startswith(HEALTH)
        server.process.stop_after_lame_duck()
        await comes_true(lambda: not server.process.servers[0].is_serving())
        for connection in (kept, new):
            await connection.send(A_TURN)
            answered = await connection.rest()
            assert answered.startswith(b"HTTP/1.1 201 ")
            assert b"connection: close" in answered


async def test_a_second_request_has_as_much_time_as_the_first() -> None:
    """Half of a request on a connection that has been answered before."""
    async with (
        serving(settings=QUICK, open_without_keys=False) as server,
        raw(server, WHOLE + HALF_A_HEAD) as half,
    ):
        answered = await half.rest()
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert answered.count(b"HTTP/1.1") == 1, "no second answer to the first request"


async def test_a_head_without_an_end_is_refused() -> None:
    async with serving(open_without_keys=False) as server, raw(server, b"GET / HTTP/1.1\r\nX-A: ") as endless:
        closed = asyncio.create_task(endless.rest())
        while not closed.done():
            try:
                await endless.send(b"a" * 10_000)
            except ConnectionError:
                break
            await asyncio.sleep(0)
        assert (await closed)[:13] in (b"HTTP/1.1 431 ", b"")  # a reset may overtake the answer


async def test_a_large_body_with_a_key_is_taken(tmp_path: Path) -> None:
    async with serving(settings=QUICK, open_without_keys=False) as server:
        key = await server.key("erin")
        turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "a" * 3_000_000}]}
        answer = await server.client.post("/v1/sessions/turns", json=turn, headers=key)
        assert answer.status_code == 201


async def test_one_connection_too_many_closes_the_oldest_that_waits() -> None:
    most = QUICK.waiting_connections
    patient = ServerConfig(waiting_connections=most, request_seconds=3600)
    async with serving(settings=patient, open_without_keys=False) as server, AsyncExitStack() as opened:
        waiting = [await opened.enter_async_context(raw(server, HALF_A_HEAD)) for _ in range(3 * most)]
        for _ in range(5):
            async with httpx.AsyncClient(base_url=server.url, timeout=LONGEST) as client:
                assert (await client.get("/health")).status_code == 200
        ended = [asyncio.create_task(each.rest()) for each in waiting[:most]]
        await asyncio.wait_for(asyncio.gather(*ended), LONGEST)
        held = server.held
        assert held.without_request <= most


async def test_unread_responses_end_the_connection() -> None:
    limits = ConnectionLimits(stall_seconds=0.5)
    async with serving(open_without_keys=False, limits=limits) as server:
        port = int(server.url.rpartition(":")[2])
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(client, ("127.0.0.1", port))
            asked = b"GET /schema/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
            await loop.sock_sendall(client, asked)
            await comes_true(lambda: len(server.held.unread) == 1)
            await comes_true(lambda: len(server.held.unread) == 0)
        finally:
            client.close()
        assert (await server.client.get("/health")).status_code == 200


# File handles

HANDLES = 300
HALF_SENT = 320


def limited(command: list[str], folder: Path) -> "subprocess.Popen[str]":
    """A process that may open so many files."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AFORESAID_")}
    script = (
        f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({HANDLES}, {HANDLES})); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, *command],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def opened_sockets(port: int, sent: bytes) -> list[socket.socket]:
    found = []
    for _ in range(HALF_SENT):
        one = socket.create_connection(("127.0.0.1", port), timeout=LONGEST)
        one.sendall(sent)
        found.append(one)
    return found


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_more_connections_than_file_handles_leave_the_server_reachable(tmp_path: Path) -> None:
    """Connections of one kind after the other, twice as many of each as the server has file handles."""
    port = free_port()
    serve = ["-m", "aforesaid", "serve", "--url", "sqlite:///memory.db", "--port", str(port)]
    process = limited(serve, tmp_path)
    address = f"http://127.0.0.1:{port}"
    held: list[socket.socket] = []
    try:
        _wait_for(address, process)
        for sent in (HALF_A_HEAD, b"", HALF_A_BODY, UPGRADE):
            for _ in range(2):
                held += opened_sockets(port, sent)
                assert httpx.get(f"{address}/health", timeout=LONGEST).status_code == 200, sent
                turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hi"}]}
                stored = httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST)
                assert stored.status_code == 201, (sent, "the store finds file handles, too")
            while held:
                held.pop().close()
    finally:
        for one in held:
            one.close()
        process.kill()
        process.communicate()


# WebSockets


async def test_strangers_on_websockets_are_bounded_and_the_oldest_goes_first() -> None:
    limits = LiveLimits(unknown_connections=3, hello_seconds=3600)
    async with serving(app_options={"live_limits": limits}) as server, AsyncExitStack() as opened:
        url = server.url.replace("http", "ws") + "/ws"

        async def connected() -> Any:
            return await opened.enter_async_context(connecting(url))

        known = await connected()
        assert (await known.hello(session_id="kitchen"))["type"] == "ready"
        strangers = [await connected() for _ in range(5)]
        assert await strangers[0].close_code() == CloseCode.TRY_LATER
        assert await strangers[1].close_code() == CloseCode.TRY_LATER
        assert (await strangers[4].hello(session_id="kitchen"))["type"] == "ready"
        await known.send("ping")
        assert (await known.until("pong"))["type"] == "pong"


# The bookkeeping, by a clock of its own


class Loop:
    """A loop whose time is set, and whose timers are run by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> object:
        self.timers.append((self.now + delay, callback, arguments))
        return object()

    def run_until(self, now: float) -> None:
        while due := [timer for timer in self.timers if timer[0] <= now]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = first[0]
            first[1](*first[2])
        self.now = now


class One:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop


@pytest.mark.parametrize("seed", range(10))
def test_no_connection_is_held_for_longer_or_beyond_the_number(seed: int) -> None:
    import random

    chance, loop = random.Random(seed), Loop()
    ended: list[One] = []
    held = TimedConnections(ended.append, seconds=10, most=8)
    since: dict[One, float] = {}
    for _ in range(500):
        loop.run_until(loop.now + chance.choice([0, 0.1, 0.5, 3]))
        since = {each: at for each, at in since.items() if each not in ended}
        one = One(loop)
        if since and chance.random() < 0.3:
            one = chance.choice(list(since))
            if chance.random() < 0.5:
                held.drop(one)
                since.pop(one)
                continue
        since.pop(one, None)
        since[one] = loop.now
        held.put(one)
        since = {each: at for each, at in since.items() if each not in ended}
        assert len(held) == len(since) <= 8
        assert all(loop.now - at < 10 + 1 for at in since.values())
    loop.run_until(loop.now + 11)
    assert len(held) == 0
    assert loop.timers == []


def test_limits_leave_file_handles_for_the_rest() -> None:
    limits = connection_limits_for(ServerConfig())
    assert 1 <= limits.waiting <= max(1, open_files_limit() // 10)
    assert open_files_limit() <= MAX_FILES
