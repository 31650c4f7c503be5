"""The two that send: one awaits, one waits. Both follow `exchanging`, and translate what httpx raises.

httpx is imported when a client is opened, on a thread. Below: exchanging. Above: the faces.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from msgspec import Struct

from aforesaid._internal.loops import LoopEnd, LoopWatch, PerLoop
from aforesaid._internal.scratch import ScratchFolder, ScratchPath
from aforesaid.errors import AforesaidError, MissingExtra, Overloaded, StoreClosed, StoreUnavailable
from aforesaid.protocol import HEARTBEAT
from aforesaid.remote.addresses import Server
from aforesaid.remote.attempts import (
    Course,
    Done,
    Failure,
    Outcome,
    RetryPolicy,
    Send,
    Step,
    advanced,
    course_of,
)
from aforesaid.remote.calls import Answer, Call, Talk
from aforesaid.remote.events import Events
from aforesaid.remote.responses import error_of
from aforesaid.telemetry.tracing import outgoing

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CONNECTIONS = 32
"""Requests under way at once; whoever comes after them waits for a place, as long as for an answer."""
BLOCK = 256 * 1024
MISSED_HEARTBEATS = 3
"""After so many a server that tells of changes is taken to be away."""


class Options(Struct, frozen=True, kw_only=True):
    """Everything that a client is opened with."""

    server: Server
    patience: RetryPolicy = RetryPolicy()
    connections: int = CONNECTIONS
    tls: ssl.SSLContext | None = None
    """Whom to trust, where that is not everybody whom this machine trusts."""

    def for_httpx(self) -> dict[str, Any]:
        """What both of httpx's clients are made with. Redirects are not followed: the key stays here."""
        httpx = _httpx()
        return {
            "headers": {"user-agent": "aforesaid", "accept": "application/json", **self.server.authorization},
            "timeout": self.timeout(self.patience.timeout),
            "limits": httpx.Limits(
                max_connections=self.connections, max_keepalive_connections=self.connections
            ),
            "follow_redirects": False,
            # What is on this machine is not asked for through a proxy; without TLS nobody is to be trusted.
            "trust_env": not self.server.loopback,
            "verify": self.tls or self.server.tls,
        }

    def timeout(self, seconds: float) -> "httpx.Timeout":
        """Each wait takes at most so long; to be let in, less."""
        timeout: httpx.Timeout = _httpx().Timeout(
            seconds, connect=min(seconds, self.patience.connect_timeout)
        )
        return timeout

    def timeout_of_events(self) -> "httpx.Timeout":
        """The same for an answer that goes on: a server that is well is silent until its next heartbeat."""
        timeout = self.timeout(self.patience.timeout)
        timeout.read = max(self.patience.timeout, MISSED_HEARTBEATS * HEARTBEAT)
        return timeout

    def failure(self, error: "httpx.HTTPError") -> Failure:
        """What httpx raises, as ours, and whether the request may have arrived."""
        httpx = _httpx()
        base = self.server.base
        if isinstance(error, httpx.PoolTimeout):
            wrong: StoreUnavailable = Overloaded(f"all {self.connections} connections to {base} are busy")
        elif isinstance(error, httpx.TimeoutException):
            wrong = StoreUnavailable(f"{base} does not answer in time")
        elif isinstance(error, httpx.ConnectError):
            wrong = StoreUnavailable(f"{base} cannot be reached: {error}")
        else:
            wrong = StoreUnavailable(f"the connection to {base} broke: {error or type(error).__name__}")
        wrong.__cause__ = error
        unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        return Failure(error=wrong, arrived=not unsent, again="CERTIFICATE" not in str(error))


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingExtra("a memory behind a server", extra="client") from None
    return httpx


class _Luggage:
    """The files of a call that sends or gets one. Blocks."""

    def __init__(self, call: Call[Any]) -> None:
        self._folder = ScratchFolder()
        self.sent = self._folder / "sent"
        self.received = self._folder / "received"
        if call.upload is not None:
            self._pack(call.upload)

    def _pack(self, upload: Callable[[BinaryIO], None]) -> None:
        try:
            with self.sent.create() as file:
                upload(file)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._folder.close()


class AsyncSender:
    """Sends calls without blocking the event loop. One event loop at a time."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._client: httpx.AsyncClient | None = None
        self._loop = LoopWatch()
        self._loop_end: LoopEnd | None = None
        self._renewing = PerLoop(asyncio.Lock)

    async def open(self) -> None:
        if self._client is None:
            await self._make_here()

    def _made(self) -> "httpx.AsyncClient":
        return _httpx().AsyncClient(**self.options.for_httpx())  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Let go of all connections. Closing twice is fine."""
        client, self._client = self._client, None
        if client is not None:
            if self._loop_end is not None:
                await self._loop_end.release()
            if self._loop.is_here:  # else it was closed with its loop
                await client.aclose()

    async def carry_out(self, described: "Call[T] | Talk[T]") -> T:
        """What the call gives, or the last of several."""
        if isinstance(described, Call):
            return await self.run(described)
        step = advanced(described, None)
        while not isinstance(step, Done):
            step = advanced(described, await self.run(step))
        return step.value

    async def run(self, call: Call[T]) -> T:
        """Send it until it is answered, by the rules of `exchanging`."""
        if call.upload is None and not call.download:
            return await self._follow(call, None)
        luggage = await asyncio.to_thread(_Luggage, call)
        try:
            return await self._follow(call, luggage)
        finally:
            await asyncio.to_thread(luggage.close)

    async def _follow(self, call: Call[T], luggage: _Luggage | None) -> T:
        course: Course[T] = course_of(call, self.options.patience)
        step: Step | Done[T] = advanced(course, None)
        while not isinstance(step, Done):
            if isinstance(step, Send):
                outcome: Outcome = await self._attempt(call, step, luggage)
            else:
                await asyncio.sleep(step.seconds)
                outcome = None
            if luggage is None:
                step = advanced(course, outcome)
            else:
                step = await asyncio.to_thread(partial(advanced, course, outcome))
        return step.value

    async def _attempt(self, call: Call[Any], step: Send, luggage: _Luggage | None) -> Outcome:
        client = await self._client_here()
        try:
            # httpx counts each wait by itself; a deadline is for all of them.
            async with asyncio.timeout(None if call.deadline is None else step.timeout):
                async with self._stream(client, call, step, luggage) as response:
                    if call.download and response.is_success and luggage is not None:
                        await self._receive(response, luggage.received)
                        return _answer(response, b"", luggage.received)
                    return _answer(response, await response.aread())
        except TimeoutError:
            slow = StoreUnavailable(f"{self.options.server.base} does not answer within {step.timeout:.3g} s")
            return Failure(error=slow)
        except _httpx().HTTPError as error:
            return self.options.failure(error)
        except RuntimeError as error:
            raise self._closed_meanwhile(error) from error

    def _stream(
        self, client: "httpx.AsyncClient", call: Call[Any], step: Send, luggage: _Luggage | None
    ) -> "contextlib.AbstractAsyncContextManager[httpx.Response]":
        return client.stream(
            call.method,
            self.options.server.base + call.path,
            headers=_headers(call, step),
            content=call.body if luggage is None or call.upload is None else _blocks_async(luggage.sent),
            timeout=self.options.timeout(step.timeout),
        )

    async def _receive(self, response: "httpx.Response", path: ScratchPath) -> None:
        path.unlink()
        file = await asyncio.to_thread(path.create)
        try:
            async for block in response.aiter_bytes(BLOCK):
                await asyncio.to_thread(file.write, block)
        finally:
            await asyncio.to_thread(file.close)

    @contextlib.asynccontextmanager
    async def events(self, call: Call[Any]) -> AsyncIterator[AsyncIterator[str]]:
        """The data of the events of an answer that goes on. Entered once the server says that it began."""
        client = await self._client_here()
        try:
            async with client.stream(
                call.method,
                self.options.server.base + call.path,
                headers={**outgoing(), **call.headers},
                timeout=self.options.timeout_of_events(),
            ) as response:
                if not response.is_success:
                    raise error_of(_answer(response, await response.aread()))
                events = Events(response.headers.get("content-type", ""))
                lines = response.aiter_text()
                async for text in lines:
                    events.feed(text)
                    if events.begun:
                        break
                yield self._told(lines, events)
        except _httpx().HTTPError as error:
            raise self.options.failure(error).error from error

    async def _told(self, lines: AsyncIterator[str], events: Events) -> AsyncIterator[str]:
        for data in events.take():
            yield data
        try:
            async for text in lines:
                events.feed(text)
                for data in events.take():
                    yield data
        except _httpx().HTTPError as error:
            raise self.options.failure(error).error from error
        raise StoreUnavailable(f"{self.options.server.base} has ended the watch")

    async def _client_here(self) -> "httpx.AsyncClient":
        """The client, made anew on another event loop: connections are bound to the loop that made them."""
        if self._loop.is_here:
            return self._open_client()
        async with self._renewing.here():
            if not self._loop.is_here:
                self._open_client()
                await self._make_here()
        return self._open_client()

    async def _make_here(self) -> None:
        self._client = client = await asyncio.to_thread(self._made)
        self._loop.follow()
        self._loop_end = LoopEnd(partial(_dropped, client))

    def _open_client(self) -> "httpx.AsyncClient":
        if self._client is None:
            raise _closed(self.options.server)
        return self._client

    def _closed_meanwhile(self, error: RuntimeError) -> BaseException:
        """httpx says in a RuntimeError that it was closed; what else is one is not ours."""
        return _closed(self.options.server) if self._client is None else error


async def _dropped(client: "httpx.AsyncClient") -> None:
    """Close a client with its event loop. A server that does not take the goodbye makes no difference."""
    with contextlib.suppress(RuntimeError, OSError):
        await client.aclose()


class SyncSender:
    """Sends calls and waits. May be used by several threads."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._client: httpx.Client | None = None

    def open(self) -> None:
        if self._client is None:
            self._client = _httpx().Client(**self.options.for_httpx())

    def close(self) -> None:
        """Let go of all connections. Closing twice is fine."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def carry_out(self, described: "Call[T] | Talk[T]") -> T:
        """What the call gives, or the last of several."""
        if isinstance(described, Call):
            return self.run(described)
        step = advanced(described, None)
        while not isinstance(step, Done):
            step = advanced(described, self.run(step))
        return step.value

    def run(self, call: Call[T]) -> T:
        """Send it until it is answered, by the rules of `exchanging`."""
        if call.upload is None and not call.download:
            return self._follow(call, None)
        luggage = _Luggage(call)
        try:
            return self._follow(call, luggage)
        finally:
            luggage.close()

    def _follow(self, call: Call[T], luggage: _Luggage | None) -> T:
        course: Course[T] = course_of(call, self.options.patience)
        step: Step | Done[T] = advanced(course, None)
        while not isinstance(step, Done):
            if isinstance(step, Send):
                outcome: Outcome = self._attempt(call, step, luggage)
            else:
                time.sleep(step.seconds)
                outcome = None
            step = advanced(course, outcome)
        return step.value

    def _attempt(self, call: Call[Any], step: Send, luggage: _Luggage | None) -> Outcome:
        client = self._open_client()
        try:
            with client.stream(
                call.method,
                self.options.server.base + call.path,
                headers=_headers(call, step),
                content=call.body if luggage is None or call.upload is None else _blocks(luggage.sent),
                timeout=self.options.timeout(step.timeout),
            ) as response:
                if call.download and response.is_success and luggage is not None:
                    _receive(response, luggage.received)
                    return _answer(response, b"", luggage.received)
                return _answer(response, response.read())
        except _httpx().HTTPError as error:
            return self.options.failure(error)
        except RuntimeError as error:
            raise (_closed(self.options.server) if self._client is None else error) from error

    @contextlib.contextmanager
    def events(self, call: Call[Any]) -> Iterator[Iterator[str]]:
        """The data of the events of an answer that goes on. Entered once the server says that it began."""
        client = self._open_client()
        try:
            with client.stream(
                call.method,
                self.options.server.base + call.path,
                headers={**outgoing(), **call.headers},
                timeout=self.options.timeout_of_events(),
            ) as response:
                if not response.is_success:
                    raise error_of(_answer(response, response.read()))
                events = Events(response.headers.get("content-type", ""))
                lines = response.iter_text()
                for text in lines:
                    events.feed(text)
                    if events.begun:
                        break
                yield self._told(lines, events)
        except _httpx().HTTPError as error:
            raise self.options.failure(error).error from error

    def _told(self, lines: Iterator[str], events: Events) -> Iterator[str]:
        yield from events.take()
        try:
            for text in lines:
                events.feed(text)
                yield from events.take()
        except _httpx().HTTPError as error:
            raise self.options.failure(error).error from error
        raise StoreUnavailable(f"{self.options.server.base} has ended the watch")

    def _open_client(self) -> "httpx.Client":
        if self._client is None:
            raise _closed(self.options.server)
        return self._client


def _closed(server: Server) -> AforesaidError:
    return StoreClosed(f"the client of {server.base} is closed, or was not opened: use it in a `with` block")


def _answer(response: "httpx.Response", content: bytes, file: ScratchPath | None = None) -> Answer:
    return Answer(status=response.status_code, headers=response.headers, content=content, file=file)


def _headers(call: Call[Any], step: Send) -> dict[str, str]:
    return {**outgoing(), **call.headers, **(call.again if step.again else {})}


def _receive(response: "httpx.Response", path: ScratchPath) -> None:
    path.unlink()
    with path.create() as file:
        for block in response.iter_bytes(BLOCK):
            file.write(block)


def _blocks(path: ScratchPath) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


async def _blocks_async(path: ScratchPath) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while block := await asyncio.to_thread(file.read, BLOCK):
            yield block
    finally:
        await asyncio.to_thread(file.close)
