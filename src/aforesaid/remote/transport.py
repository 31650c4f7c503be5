"""Send calls over httpx, async and sync, by the rules of `attempts`; translate httpx errors.

httpx is imported on a thread when a client is opened.
"""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.scratch import ScratchFolder, ScratchPath
from aforesaid._internal.tasks import LoopEnd
from aforesaid.errors import AforesaidError, MissingExtra, Overloaded, StoreClosed, StoreUnavailable
from aforesaid.protocol import HEARTBEAT
from aforesaid.remote.addresses import Server
from aforesaid.remote.attempts import (
    Done,
    Failure,
    Outcome,
    RetryPolicy,
    Send,
    Step,
    Steps,
    advance,
    steps_of,
)
from aforesaid.remote.calls import Answer, Call, CallSequence, Events, error_of
from aforesaid.telemetry.tracing import outgoing

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CONNECTIONS = 32
BLOCK = 256 * 1024
# Missed heartbeats after which an event stream counts as disconnected.
MISSED_HEARTBEATS = 3


class Network(CheckedFields, frozen=True, kw_only=True):
    """How a client reaches its server.

    - `retry`: timeouts, attempts and pauses.
    - `connections`: maximum concurrent requests; further requests wait for a free connection until their
      timeout.
    - `tls`: the trusted certificates; None uses the system's.
    - `plain_http`: allow sending the key unencrypted to another machine.
    - `verify`: check at the start that an Aforesaid server answers.
    - `start_unreached`: allow a start without the server although this machine has never reached it.
    """

    retry: RetryPolicy = RetryPolicy()
    connections: int = CONNECTIONS
    tls: ssl.SSLContext | None = None
    plain_http: bool = False
    verify: bool = True
    start_unreached: bool = False


class Connection(Struct, frozen=True, kw_only=True):
    """A server and how to reach it."""

    server: Server
    network: Network = Network()

    def for_httpx(self) -> dict[str, Any]:
        """Return the arguments of httpx clients. Redirects are off, so that no other host gets the key."""
        httpx = _httpx()
        return {
            "headers": {"user-agent": "aforesaid", "accept": "application/json", **self.server.authorization},
            "timeout": self.timeout(self.network.retry.timeout),
            "limits": httpx.Limits(
                max_connections=self.network.connections, max_keepalive_connections=self.network.connections
            ),
            "follow_redirects": False,
            # Requests to loopback bypass proxies; plain HTTP needs no certificates.
            "trust_env": not self.server.loopback,
            "verify": self.network.tls or self.server.tls,
        }

    def timeout(self, seconds: float) -> "httpx.Timeout":
        """Return a timeout for each network operation, with the shorter connect timeout."""
        timeout: httpx.Timeout = _httpx().Timeout(
            seconds, connect=min(seconds, self.network.retry.connect_timeout)
        )
        return timeout

    def event_timeout(self) -> "httpx.Timeout":
        """Return the timeout of an event stream, which may be silent until the next heartbeat."""
        timeout = self.timeout(self.network.retry.timeout)
        timeout.read = max(self.network.retry.timeout, MISSED_HEARTBEATS * HEARTBEAT)
        return timeout

    def failure(self, error: "httpx.HTTPError") -> Failure:
        """Translate an httpx error; note whether the request may have arrived."""
        httpx = _httpx()
        base = self.server.base
        if isinstance(error, httpx.PoolTimeout):
            # The request waited in this process: the server may be idle.
            failure: StoreUnavailable = Overloaded(
                f"all {self.network.connections} connections to {base} are busy"
            )
        elif isinstance(error, httpx.TimeoutException):
            failure = StoreUnavailable(f"{base} did not answer in time")
        elif isinstance(error, httpx.ConnectError):
            failure = StoreUnavailable(f"{base} cannot be reached: {error}")
        else:
            failure = StoreUnavailable(f"the connection to {base} failed: {error or type(error).__name__}")
        failure.__cause__ = error
        # Only these mean that no byte left. After any other error the server may have executed the
        # call.
        unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        # A wrong certificate stays wrong, so another attempt cannot help.
        return Failure(error=failure, may_have_arrived=not unsent, retryable="CERTIFICATE" not in str(error))


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingExtra("a memory behind a server", extra="client") from None
    return httpx


class _TransferFiles:
    """Temporary files for the upload and the download of a call. Blocks."""

    def __init__(self, call: Call[Any]) -> None:
        self._folder = ScratchFolder()
        self.sent = self._folder / "sent"
        self.received = self._folder / "received"
        if call.upload is not None:
            # Packed before the first attempt, because every retry must send the same bytes.
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


class _LoopClient:
    """The httpx client of one event loop, created on first use. Sockets cannot be shared between loops."""

    def __init__(self, connection: Connection) -> None:
        self.loop = asyncio.get_running_loop()
        self._connection = connection
        self._lock = asyncio.Lock()
        self._client: httpx.AsyncClient | None = None
        self._loop_end: LoopEnd | None = None

    async def get(self) -> "httpx.AsyncClient":
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    self._client = client = await asyncio.to_thread(self._create)
                    self._loop_end = LoopEnd(partial(_close_quietly, client))
        return self._client

    def _create(self) -> "httpx.AsyncClient":
        """Import httpx and load the certificates. Blocks."""
        return _httpx().AsyncClient(**self._connection.for_httpx())  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the client: at once on its own loop, otherwise as soon as its loop runs."""
        if self._client is None or self._loop_end is None:
            return
        if self.loop is asyncio.get_running_loop():
            await self._loop_end.release()
            await self._client.aclose()
        else:
            # Not awaited: the other loop may be blocked, or never run again.
            await self._loop_end.trigger()


class AsyncSender:
    """Send calls from any number of event loops, also at the same time on several threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._is_open = False
        self._clients: dict[asyncio.AbstractEventLoop, _LoopClient] = {}
        # Not an asyncio lock: several threads, each with its own loop, use one sender.
        self._clients_lock = threading.Lock()

    async def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            await self._client_for_loop()

    async def close(self) -> None:
        """Close the connections of all event loops. Closing twice is safe."""
        with self._clients_lock:
            self._is_open = False
            # Closed outside the lock: closing awaits, and other threads need the lock to see
            # that we are closed.
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            await client.close()

    async def execute(self, described: "Call[T] | CallSequence[T]") -> T:
        """Execute a call or a sequence of calls and return the result."""
        if isinstance(described, Call):
            return await self.run(described)
        step = advance(described, None)
        while not isinstance(step, Done):
            step = advance(described, await self.run(step))
        return step.value

    async def run(self, call: Call[T]) -> T:
        """Send a call, with retries, and return its result."""
        if call.upload is None and not call.download:
            return await self._run_attempts(call, None)
        files = await asyncio.to_thread(_TransferFiles, call)
        try:
            return await self._run_attempts(call, files)
        finally:
            await asyncio.to_thread(files.close)

    async def _run_attempts(self, call: Call[T], files: _TransferFiles | None) -> T:
        course: Steps[T] = steps_of(call, self.connection.network.retry)
        step: Step | Done[T] = advance(course, None)
        while not isinstance(step, Done):
            if isinstance(step, Send):
                outcome: Outcome = await self._attempt(call, step, files)
            else:
                await asyncio.sleep(step.seconds)
                outcome = None
            # Reading the answer of a transfer opens files, which blocks.
            if files is None:
                step = advance(course, outcome)
            else:
                step = await asyncio.to_thread(partial(advance, course, outcome))
        return step.value

    async def _attempt(self, call: Call[Any], step: Send, files: _TransferFiles | None) -> Outcome:
        client = await self._client_for_loop()
        try:
            # httpx limits each network operation; a deadline limits their sum.
            async with asyncio.timeout(None if call.deadline is None else step.timeout):
                async with self._stream(client, call, step, files) as response:
                    if call.download and response.is_success and files is not None:
                        await self._receive(response, files.received)
                        return _answer(response, b"", files.received)
                    return _answer(response, await response.aread())
        except TimeoutError:
            slow = StoreUnavailable(
                f"{self.connection.server.base} did not answer within {step.timeout:.3g} s"
            )
            return Failure(error=slow)
        except _httpx().HTTPError as error:
            return self.connection.failure(error)
        except RuntimeError as error:
            if client.is_closed:  # httpx reports this as a RuntimeError
                raise _closed(self.connection.server) from error
            raise

    def _stream(
        self, client: "httpx.AsyncClient", call: Call[Any], step: Send, files: _TransferFiles | None
    ) -> "contextlib.AbstractAsyncContextManager[httpx.Response]":
        return client.stream(
            call.method,
            self.connection.server.base + call.path,
            headers=_headers(call, step),
            # A new iterator for each attempt: the last one may have been consumed halfway.
            content=call.body if files is None or call.upload is None else _blocks_async(files.sent),
            timeout=self.connection.timeout(step.timeout),
        )

    async def _receive(self, response: "httpx.Response", path: ScratchPath) -> None:
        path.unlink()  # of an earlier attempt
        file = await asyncio.to_thread(path.create)
        try:
            async for block in response.aiter_bytes(BLOCK):
                await asyncio.to_thread(file.write, block)
        finally:
            await asyncio.to_thread(file.close)

    @contextlib.asynccontextmanager
    async def events(self, call: Call[Any]) -> AsyncIterator[AsyncIterator[str]]:
        """Open an event stream and yield an iterator of its data. Enter when the server has started it."""
        client = await self._client_for_loop()
        try:
            async with client.stream(
                call.method,
                self.connection.server.base + call.path,
                headers={**outgoing(), **call.headers},
                timeout=self.connection.event_timeout(),
            ) as response:
                if not response.is_success:
                    raise error_of(_answer(response, await response.aread()))
                events = Events(response.headers.get("content-type", ""))
                lines = response.aiter_text()
                # The server sends a comment first. Changes after it are not missed.
                async for text in lines:
                    events.feed(text)
                    if events.begun:
                        break
                yield self._read_events(lines, events)
        except _httpx().HTTPError as error:
            raise self.connection.failure(error).error from error

    async def _read_events(self, lines: AsyncIterator[str], events: Events) -> AsyncIterator[str]:
        for data in events.take():
            yield data
        try:
            async for text in lines:
                events.feed(text)
                for data in events.take():
                    yield data
        except _httpx().HTTPError as error:
            raise self.connection.failure(error).error from error
        raise StoreUnavailable(f"{self.connection.server.base} ended the event stream")

    async def _client_for_loop(self) -> "httpx.AsyncClient":
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._clients_lock:
            if not self._is_open:
                raise _closed(self.connection.server)
            if loop not in self._clients:
                # A client refers to its loop, so weak keys would never expire.
                self._clients = {one: client for one, client in self._clients.items() if not one.is_closed()}
                self._clients[loop] = _LoopClient(self.connection)
            # Created outside the lock, because importing httpx takes long. The check below
            # notices a close meanwhile.
            mine = self._clients[loop]
        client = await mine.get()
        if self._clients.get(loop) is not mine:  # closed while the client was being created
            await mine.close()
            raise _closed(self.connection.server)
        return client


async def _close_quietly(client: "httpx.AsyncClient") -> None:
    """Close a client at the end of its event loop; ignore connection errors."""
    with contextlib.suppress(RuntimeError, OSError):
        await client.aclose()


class SyncSender:
    """Send calls synchronously. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._client: httpx.Client | None = None

    def open(self) -> None:
        if self._client is None:
            self._client = _httpx().Client(**self.connection.for_httpx())

    def close(self) -> None:
        """Close all connections. Closing twice is safe."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def execute(self, described: "Call[T] | CallSequence[T]") -> T:
        """Execute a call or a sequence of calls and return the result."""
        if isinstance(described, Call):
            return self.run(described)
        step = advance(described, None)
        while not isinstance(step, Done):
            step = advance(described, self.run(step))
        return step.value

    def run(self, call: Call[T]) -> T:
        """Send a call, with retries, and return its result."""
        if call.upload is None and not call.download:
            return self._run_attempts(call, None)
        files = _TransferFiles(call)
        try:
            return self._run_attempts(call, files)
        finally:
            files.close()

    def _run_attempts(self, call: Call[T], files: _TransferFiles | None) -> T:
        course: Steps[T] = steps_of(call, self.connection.network.retry)
        step: Step | Done[T] = advance(course, None)
        while not isinstance(step, Done):
            if isinstance(step, Send):
                outcome: Outcome = self._attempt(call, step, files)
            else:
                time.sleep(step.seconds)
                outcome = None
            step = advance(course, outcome)
        return step.value

    def _attempt(self, call: Call[Any], step: Send, files: _TransferFiles | None) -> Outcome:
        client = self._open_client()
        try:
            with client.stream(
                call.method,
                self.connection.server.base + call.path,
                headers=_headers(call, step),
                content=call.body if files is None or call.upload is None else _blocks(files.sent),
                timeout=self.connection.timeout(step.timeout),
            ) as response:
                if call.download and response.is_success and files is not None:
                    _receive(response, files.received)
                    return _answer(response, b"", files.received)
                return _answer(response, response.read())
        except _httpx().HTTPError as error:
            return self.connection.failure(error)
        except RuntimeError as error:
            if client.is_closed:  # httpx reports this as a RuntimeError
                raise _closed(self.connection.server) from error
            raise

    @contextlib.contextmanager
    def events(self, call: Call[Any]) -> Iterator[Iterator[str]]:
        """Open an event stream and yield an iterator of its data. Enter when the server has started it."""
        client = self._open_client()
        try:
            with client.stream(
                call.method,
                self.connection.server.base + call.path,
                headers={**outgoing(), **call.headers},
                timeout=self.connection.event_timeout(),
            ) as response:
                if not response.is_success:
                    raise error_of(_answer(response, response.read()))
                events = Events(response.headers.get("content-type", ""))
                lines = response.iter_text()
                for text in lines:
                    events.feed(text)
                    if events.begun:
                        break
                yield self._read_events(lines, events)
        except _httpx().HTTPError as error:
            raise self.connection.failure(error).error from error

    def _read_events(self, lines: Iterator[str], events: Events) -> Iterator[str]:
        yield from events.take()
        try:
            for text in lines:
                events.feed(text)
                yield from events.take()
        except _httpx().HTTPError as error:
            raise self.connection.failure(error).error from error
        raise StoreUnavailable(f"{self.connection.server.base} ended the event stream")

    def _open_client(self) -> "httpx.Client":
        if self._client is None:
            raise _closed(self.connection.server)
        return self._client


def _closed(server: Server) -> AforesaidError:
    return StoreClosed(f"the client of {server.base} is not open: use it in a `with` block")


def _answer(response: "httpx.Response", content: bytes, file: ScratchPath | None = None) -> Answer:
    return Answer(status=response.status_code, headers=response.headers, content=content, file=file)


def _headers(call: Call[Any], step: Send) -> dict[str, str]:
    return {**outgoing(), **call.headers, **(call.retry_headers if step.is_retry else {})}


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
