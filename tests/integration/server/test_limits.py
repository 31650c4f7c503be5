"""How much and how often: bodies, rates, and clients that hang up half-way."""

import asyncio
import contextlib
import json
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from aforesaid.errors import Overloaded, TooManyRequests
from aforesaid.server.limits import ASSUMED_RATE, LEAST_IN_PROGRESS, MOST_BUCKETS, Admission, Limits
from aforesaid.settings import ServerConfig
from tests.integration.server.live.parts import comes_true
from tests.integration.server.running import Running, serving

SMALL = ServerConfig(max_body_kb=1, rate_read=0, rate_write=0)


async def raw(server: Running, request: bytes, *, hang_up: bool = False) -> bytes:
    """What the server answers to these very bytes."""
    url = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(request)
    await writer.drain()
    if hang_up:
        writer.close()
        return b""
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
    writer.close()
    return answer


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async with serving(settings=SMALL) as server:
        head = b"POST /v1/conversations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        said = await raw(server, head + b"content-length: 99999999999\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 413")
        assert b"application/problem+json" in said


async def test_a_body_without_a_length_is_refused_when_it_grows_too_large() -> None:
    async with serving(settings=SMALL) as server:

        async def pieces() -> "asyncio.AsyncIterator[bytes]":  # type: ignore[name-defined]
            for _ in range(64):
                yield b" " * 1024

        answer = await server.client.post(
            "/v1/conversations", content=pieces(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 413
        assert answer.json()["type"] == "urn:aforesaid:problem:too-large"


async def test_a_body_that_just_fits_is_taken() -> None:
    async with serving(settings=SMALL) as server:
        text = '{"session_id": "' + "x" * 900 + '"}'
        answer = await server.client.post(
            "/v1/conversations", content=text, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 200


async def test_a_client_that_disconnects_half_way_leaves_nothing_behind(server: Running) -> None:
    head = b"POST /v1/conversations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    for part in (b"", b"content-length: 100\r\n\r\n", b'content-length: 100\r\n\r\n{"session_id":'):
        await raw(server, head + part, hang_up=True)
    answer = await server.client.get("/v1/conversations")
    assert answer.json()["conversations"] == []


async def test_nonsense_on_the_wire_does_not_stop_the_server(server: Running) -> None:
    for junk in (
        b"\x00\xff\xfe\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1 HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ):
        said = await raw(server, junk)
        assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert (await server.client.get("/health")).json() == {"status": "ok", "server": "aforesaid"}


# What is kept open


async def test_a_key_listens_to_so_many_changes_at_once() -> None:
    """Streams and WebSockets are counted together, and one that ends makes room."""
    settings = ServerConfig(live_connections_per_key=2)
    async with (
        serving(settings=settings) as server,
        connect(f"{server.url.replace('http', 'ws')}/ws") as socket,
    ):
        await socket.send('{"type": "hello"}')
        await socket.recv()
        async with server.client.stream("GET", "/v1/changes") as answer:
            assert answer.status_code == 200
            refused = await server.client.get("/v1/changes")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        await comes_true(lambda: server.service.concurrency._open.total() == 1)
        async with server.client.stream("GET", "/v1/changes") as answer:
            assert answer.status_code == 200


# Rates


def test_a_burst_passes_and_a_flood_does_not() -> None:
    now = 0.0
    limits = Limits({"read": 60}, monotonic=lambda: now)
    for _ in range(60):
        limits.take("erin", "read")
    with pytest.raises(TooManyRequests) as refused:
        limits.take("erin", "read")
    assert refused.value.retry_after == pytest.approx(1.0)
    limits.take("bob", "read")
    limits.take("erin", "write")  # no limit on that
    now = 1.0
    limits.take("erin", "read")
    with pytest.raises(TooManyRequests):
        limits.take("erin", "read")


def test_callers_that_come_and_go_take_no_room() -> None:
    limits = Limits({"read": 60}, monotonic=lambda: 0.0)
    for number in range(MOST_BUCKETS + 100):
        limits.take(str(number), "read")
    assert len(limits._buckets) == MOST_BUCKETS


async def test_a_client_over_its_rate_gets_the_time_of_the_next_request() -> None:
    settings = ServerConfig(rate_read=2, rate_write=0)
    async with serving(settings=settings, open_without_keys=False) as guarded:
        erin, bob = await guarded.key("erin"), await guarded.key("bob")
        answers = [await guarded.client.get("/v1/conversations", headers=erin) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert answers[-1].json()["retry_after"] > 0
        assert (await guarded.client.get("/v1/conversations", headers=bob)).status_code == 200
        written = await guarded.client.post("/v1/conversations", json={"session_id": "k"}, headers=erin)
        assert written.status_code == 200


async def test_a_question_counts_alike_over_http_and_over_the_websocket() -> None:
    async with serving(settings=ServerConfig(rate_ask=1)) as server:
        asked = await server.client.post("/v1/sessions/answers", json={"session_id": "k", "text": "hello"})
        assert asked.status_code != 429
        async with connect(f"{server.url.replace('http', 'ws')}/ws") as socket:
            await socket.send('{"type": "hello", "session_id": "k"}')
            await socket.recv()
            await socket.send('{"type": "text", "id": "q1", "text": "hello"}')
            assert json.loads(await socket.recv())["problem"]["status"] == 429


# Requests that could not be answered in time


class Busy:
    """An admission with a clock of its own, and requests in progress."""

    def __init__(self, **options: int) -> None:
        self.now = 0.0
        self.admission = Admission(2.0, monotonic=lambda: self.now, **options)

    def fill(self) -> int:
        """Send requests until one is refused; return how many are in progress."""
        with pytest.raises(Overloaded, match="try again later"):
            for _ in range(100_000):
                self.admission.enter()
        return self.admission.in_progress

    def serve(self, per_second: int, *, seconds: int) -> None:
        """Answer requests at this rate, while new ones replace them."""
        for _ in range(seconds * per_second):
            self.now += 1 / per_second
            self.admission.leave()
            self.admission.enter()


def test_before_anything_is_measured_an_assumed_rate_decides() -> None:
    assert Busy().fill() == ASSUMED_RATE * 2


def test_a_slow_server_accepts_what_it_answers_in_time() -> None:
    busy = Busy()
    for _ in range(LEAST_IN_PROGRESS + 1):
        busy.admission.enter()
    busy.serve(100, seconds=10)
    assert busy.fill() == pytest.approx(200, rel=0.1)


def test_a_fast_server_accepts_more() -> None:
    busy = Busy()
    for _ in range(LEAST_IN_PROGRESS + 1):
        busy.admission.enter()
    busy.serve(3000, seconds=10)
    assert busy.fill() == pytest.approx(6000, rel=0.1)


def test_a_few_requests_are_always_accepted() -> None:
    busy = Busy()
    for _ in range(LEAST_IN_PROGRESS):
        busy.admission.enter()
    for _ in range(30):
        busy.now += 10
        with contextlib.suppress(Overloaded):
            busy.admission.enter()
            busy.admission.leave()
    assert busy.fill() == LEAST_IN_PROGRESS
    busy.admission.leave()
    busy.admission.enter()


def test_requests_leave_file_handles_for_others() -> None:
    assert Busy(most=300).fill() == 300


def test_zero_seconds_refuse_nothing() -> None:
    admission = Admission(0.0)
    for _ in range(10_000):
        admission.enter()
    assert admission.in_progress == 10_000


async def test_a_request_beyond_that_gets_503_at_once_and_health_is_still_answered() -> None:
    async with serving(settings=ServerConfig(rate_read=0, rate_write=0)) as server:
        admission = server.app.service.admission
        while admission.in_progress < ASSUMED_RATE * 2:
            admission.enter()
        refused = await server.client.get("/v1/conversations")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["type"] == "urn:aforesaid:problem:overloaded"
        assert (await server.client.get("/health")).status_code == 200
        assert (await server.client.get("/ready")).status_code == 200
        while admission.in_progress:
            admission.leave()
        assert (await server.client.get("/v1/conversations")).status_code == 200
