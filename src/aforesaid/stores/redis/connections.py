"""Send commands and scripts, subscribe to channels, and translate the driver's errors.

Commands use connections of the driver directly (`pipelines`), without its client. So no command is ever
repeated automatically, even if a given client is configured to retry.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from hiredis import pack_command
from msgspec import Struct
from redis import exceptions as driver
from redis.asyncio import Redis, RedisCluster

from aforesaid._internal.tasks import LoopEnd, LoopWatch
from aforesaid.errors import (
    AforesaidError,
    InvalidMessage,
    InvalidSetting,
    Overloaded,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from aforesaid.stores.redis.addresses import Client
from aforesaid.stores.redis.identity import DataIdentity, is_empty
from aforesaid.stores.redis.pipelines import Pipeline, Pipelines
from aforesaid.stores.redis.scripts import Script

T = TypeVar("T")
Command = Sequence[Any]

# Commands that may wait for a slot; further ones are refused at once.
MAX_WAITING = 10_000
# Seconds of silence after which a subscribed connection is checked.
HEARTBEAT_SECONDS = 30.0
Server: TypeAlias = Callable[..., Awaitable[Any]]
"""Sends a command to one server."""


class Bounds(Struct, frozen=True, kw_only=True):
    """Limits: concurrent commands, and seconds for each."""

    commands: int
    seconds: float


def connections_of(
    client: Client, *, name: str, bounds: Bounds, make: Callable[[], Client] | None = None
) -> "Connections":
    """Return the connections of a client, to one server or to a cluster. `make` creates another such
    client; without it, the client belongs to the caller and is not closed."""
    if isinstance(client, RedisCluster):
        return ClusterConnections(client, name=name, bounds=bounds, make=make)
    return ServerConnections(client, name=name, bounds=bounds, make=make)


class Connections(ABC):
    """Sends a limited number of commands concurrently; others wait."""

    clustered = False

    def __init__(
        self, client: Any, *, name: str, bounds: Bounds, make: Callable[[], Client] | None = None
    ) -> None:
        self.name = name
        self._client = client
        self._make = make
        self._bounds = bounds
        self._loop = LoopWatch()
        self._loop.follow()
        self._free = asyncio.Semaphore(bounds.commands)
        self._pipelines: dict[str, Pipelines] = {}
        self._loop_end = self._close_with_loop()
        self._waiting = 0
        self._closed = False
        self._identity: DataIdentity | None = None
        self._listeners: set[Any] = set()

    # Commands

    async def call(self, *command: Any) -> Any:
        """Send a command; return its reply."""
        reply = await self._exchange(self._send(command))
        if self._identity is not None and is_empty(reply):
            await self.check_identity(command[1])
        return reply

    async def run(self, script: Script, keys: Sequence[str], *values: Any) -> Any:
        """Run a script; return its reply. Send its text if the server does not have it yet."""
        reply = await self._exchange(self._run(script, (len(keys), *keys, *values)))
        if self._identity is not None and is_empty(reply):
            await self.check_identity(keys[0])
        return reply

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """Send independent commands; return their replies in order."""
        replies = await self._send_all(commands) if commands else []
        if self._identity is not None:
            pairs = zip(commands, replies, strict=True)
            await self.check_identity(*(command[1] for command, reply in pairs if is_empty(reply)))
        return replies

    async def identify(self, identity: DataIdentity) -> None:
        """Read the identity of the data; from now on, check each empty reply against it."""
        await identity.open(self._raw)
        self._identity = identity

    async def check_identity(self, *keys: str) -> None:
        """Raise `StoreReplaced` if a server of these keys has lost its data since it was opened."""
        if self._identity is not None:
            await self._identity.check(self._raw, keys, name=self.name)

    async def _raw(self, *command: Any) -> Any:
        return await self._exchange(self._send(command))

    async def _run(self, script: Script, arguments: Command) -> Any:
        try:
            return await self._send(("EVALSHA", script.digest, *arguments))
        except driver.NoScriptError:  # the server has restarted, or another node has taken over
            return await self._send(("EVAL", script.text, *arguments))

    async def _exchange(self, work: Coroutine[Any, Any, T]) -> T:
        """Take a slot, apply the timeout and translate the driver's errors."""
        # Plain statements instead of context managers: every turn and window passes here.
        self._follow_loop()
        free = self._free  # another loop may replace it before the command ends
        try:
            await self._take_slot()
        except BaseException:
            work.close()
            raise
        try:
            if self._closed:
                work.close()
                self._check_open()
            async with asyncio.timeout(self._bounds.seconds):
                return await work
        except TRANSLATED as error:
            raise translation(error, self.name) from error
        finally:
            free.release()

    async def _on_pipeline(
        self, server: str, work: Callable[[Pipeline], Coroutine[Any, Any, T]], make: Callable[[], Any]
    ) -> T:
        """Work on a pipeline to the server; `make` creates a connection of the driver."""
        pipelines = self._pipelines.get(server)
        if pipelines is None:
            pipelines = self._pipelines[server] = Pipelines(make)
        try:
            return await work(await pipelines.get())
        except (driver.ConnectionError, OSError):
            pipelines.retire()
            raise

    def _follow_loop(self) -> None:
        """After a change of the event loop, create a new client: connections belong to one loop."""
        if not self._loop.has_changed():
            return
        self._free = asyncio.Semaphore(self._bounds.commands)
        self._waiting = 0
        self._listeners = set()
        self._pipelines = {}
        if self._make is not None:
            self._client = self._make()
        self._loop_end = self._close_with_loop()

    def _close_with_loop(self) -> LoopEnd:
        client = None if self._make is None else self._client
        return LoopEnd(partial(_close_after, client, self._pipelines, self._free, self._bounds))

    async def _take_slot(self) -> None:
        """Take a slot. Raise `Overloaded` when too many wait or the wait takes too long."""
        if not self._free.locked():
            await self._free.acquire()  # returns at once
            return
        # Without a limit, callers would pile up in memory while the server is stuck.
        if self._waiting >= MAX_WAITING:
            raise Overloaded(f"{self.name}: {MAX_WAITING:,} commands are waiting already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._bounds.seconds):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded(f"{self.name}: no slot became free within {self._bounds.seconds:g} s") from None
        finally:
            self._waiting -= 1

    # Subscriptions

    @contextlib.asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel; yield an iterator over its messages."""
        self._check_open()
        self._follow_loop()
        connection = self._listener()
        self._listeners.add(connection)
        try:
            await self._subscribe(connection, channel)
            yield self._messages(connection)
        finally:
            self._listeners.discard(connection)
            await connection.disconnect(nowait=True)

    async def _subscribe(self, connection: Any, channel: str) -> None:
        with translated(self.name):
            async with asyncio.timeout(self._bounds.seconds):
                await connection.connect()
                await connection.send_command("SUBSCRIBE", channel)
                await _next_push(connection)

    async def _messages(self, connection: Any) -> AsyncIterator[bytes]:
        while True:
            try:
                with translated(self.name):
                    reply = await self._next_reply(connection)
            except StoreUnavailable:
                self._check_open()
                raise
            if isinstance(reply, list) and reply[0] == b"message":  # others are replies to PING
                yield reply[-1]

    async def _next_reply(self, connection: Any) -> Any:
        """Return the next reply on a subscribed connection. Raise when a silent server does not answer.

        A connection that a router or firewall dropped is as silent as a channel without messages.
        """
        # The driver keeps a partly received reply when the time is over, so reading can continue.
        reply = await _next_push(connection, seconds=HEARTBEAT_SECONDS)
        if reply is None:
            await connection.send_command("PING")
            reply = await _next_push(connection, seconds=self._bounds.seconds)
            if reply is None:
                raise TimeoutError
        return reply

    # Servers

    @abstractmethod
    def servers(self) -> list["Server"]:
        """Return, for each server with data, a function that sends a command to it."""

    @abstractmethod
    async def settings(self) -> list[dict[str, str]]:
        """Return the persistence settings of each server; empty if a server does not allow CONFIG."""

    # Closing

    async def close(self) -> None:
        """Wait for running commands, then disconnect, unless the client belongs to the caller.

        Disconnect also when cancelled while waiting.
        """
        if self._closed:
            return
        self._closed = True
        self._follow_loop()
        try:
            await self._wait_until_idle()
        finally:
            await self._disconnect()

    async def _wait_until_idle(self) -> None:
        """Wait until no command is running."""
        taken = 0
        try:
            while taken < self._bounds.commands:
                await self._free.acquire()
                taken += 1
        finally:
            for _ in range(taken):
                self._free.release()  # waiting callers get `StoreClosed`

    async def _disconnect(self) -> None:
        for connection in list(self._listeners):
            await connection.disconnect(nowait=True)
        await self._loop_end.release()
        with translated(self.name):
            await _close_pipelines(self._pipelines)
            if self._make is not None:
                await self._client.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the connection to {self.name} is closed")

    # What a server and a cluster do differently

    @abstractmethod
    async def _send(self, command: Command) -> Any:
        """Send a command once; return its reply."""

    @abstractmethod
    async def _send_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send independent commands; return their replies in order."""

    @abstractmethod
    def _listener(self) -> Any:
        """Return a new unconnected connection without a read timeout."""


class ServerConnections(Connections):
    """Connections to one server, or to the primary that Sentinel names."""

    _client: Redis

    async def _send(self, command: Command) -> Any:
        packed = pack_command(tuple(command))
        return await self._on_pipeline("", lambda one: one.send(packed), self._connection)

    async def _send_all(self, commands: Sequence[Command]) -> list[Any]:
        return await self._exchange(self._send_many(commands))

    async def _send_many(self, commands: Sequence[Command]) -> list[Any]:
        packed = [pack_command(tuple(command)) for command in commands]
        return await self._on_pipeline("", lambda one: one.send_many(packed), self._connection)

    def _connection(self) -> Any:
        pool: Any = self._client.connection_pool
        return pool.connection_class(**pool.connection_kwargs)

    def _listener(self) -> Any:
        pool: Any = self._client.connection_pool
        return pool.connection_class(**pool.connection_kwargs | {"socket_timeout": None})

    def servers(self) -> list["Server"]:
        return [self.call]

    async def settings(self) -> list[dict[str, str]]:
        return [await self._exchange(_settings(lambda *command: self._send(command)))]


class ClusterConnections(Connections):
    """Connections to a cluster; the client routes commands by slot."""

    clustered = True
    _client: RedisCluster

    def __init__(
        self,
        client: RedisCluster,
        *,
        name: str,
        bounds: Bounds,
        make: Callable[[], Client] | None = None,
    ) -> None:
        if client.retry.get_retries():
            raise InvalidSetting(
                "a cluster client that retries commands may store a turn twice: "
                "create it with retry=Retry(NoBackoff(), 0)",
                field="client",
            )
        super().__init__(client, name=name, bounds=bounds, make=make)

    async def _send(self, command: Command) -> Any:
        return await self._client.execute_command(*command, NEVER_DECODE=True)

    async def _send_all(self, commands: Sequence[Command]) -> list[Any]:
        # The keys belong to several nodes, so there is no common pipeline.
        return await asyncio.gather(*(self._raw(*command) for command in commands))

    def _listener(self) -> Any:
        node = self._client.get_random_primary_node()
        return node.connection_class(**node.connection_kwargs | {"socket_timeout": None})

    def servers(self) -> list["Server"]:
        return [partial(self._at, node) for node in self._client.get_primaries()]

    async def _at(self, node: Any, *command: Any) -> Any:
        return await self._exchange(node.execute_command(*command, NEVER_DECODE=True))

    async def settings(self) -> list[dict[str, str]]:
        return await self._exchange(self._settings())

    async def _settings(self) -> list[dict[str, str]]:
        await self._client.initialize()
        return [await _settings(node.execute_command) for node in self._client.get_primaries()]


async def _close_after(
    client: Client | None, pipelines: Mapping[str, Pipelines], free: asyncio.Semaphore, bounds: Bounds
) -> None:
    """Close the connections at the end of their event loop, after its cancelled commands. Ignore errors of
    the server. A client of the caller stays open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(bounds.seconds):
            for _ in range(bounds.commands):
                await free.acquire()
    with contextlib.suppress(driver.RedisError, RuntimeError, OSError):
        await _close_pipelines(pipelines)
        if client is not None:
            await client.aclose()


async def _close_pipelines(pipelines: Mapping[str, Pipelines]) -> None:
    for one in pipelines.values():
        await one.close()


SETTINGS = ("appendonly", "save", "maxmemory", "maxmemory-policy")


async def _settings(call: Any) -> dict[str, str]:
    """Return the server's settings; empty if it does not allow CONFIG, as managed servers do not."""
    found: dict[str, str] = {}
    for name in SETTINGS:
        try:
            reply = await call("CONFIG", "GET", name)
        except driver.ResponseError:
            return {}
        found |= as_mapping(reply)
    return found


def as_mapping(reply: Any) -> dict[str, str]:
    """Parse a reply of `CONFIG GET`, of either protocol version."""
    pairs = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    return {_as_text(key): _as_text(value) for key, value in pairs.items()}


def parse_info(reply: bytes | str | dict[str, Any]) -> dict[str, str]:
    """Parse a reply of `INFO`; a cluster node returns it parsed."""
    if isinstance(reply, dict):
        return {name: str(value) for name, value in reply.items()}
    text = reply if isinstance(reply, str) else reply.decode(errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _as_text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


async def _next_push(connection: Any, *, seconds: float | None = None) -> Any:
    """Return the next reply on a subscribed connection; None after this time without one."""
    return await connection.read_response(disable_decoding=True, push_request=True, timeout=seconds)


# Errors of the driver and of the operating system.
TRANSLATED = (driver.RedisError, driver.RedisClusterException, OSError)


@contextlib.contextmanager
def translated(name: str) -> Iterator[None]:
    """Translate the driver's errors; each message names the server."""
    try:
        yield
    except TRANSLATED as error:
        raise translation(error, name) from error


def translation(error: Exception, name: str) -> AforesaidError:
    """Return our error for an error of the driver or of the operating system."""
    if isinstance(error, TimeoutError):  # an OSError
        return StoreUnavailable(f"{name} did not answer in time")
    if isinstance(error, OSError):
        return StoreUnavailable(f"cannot reach {name}: {error}")
    return _translate(error, name)


def _translate(error: Exception, name: str) -> AforesaidError:
    match error:
        case driver.AuthenticationError() | driver.AuthorizationError() | driver.NoPermissionError():
            return StoreError(f"{name} refused access: {error}")
        case driver.AskError():
            return StoreError(f"{name} is part of a cluster: use redis+cluster:// in its URL")
        case (
            driver.ConnectionError()
            | driver.TimeoutError()
            | driver.ClusterError()
            | driver.RedisClusterException()
            | driver.ReadOnlyError()
            | driver.OutOfMemoryError()
            | driver.TryAgainError()
        ):
            return StoreUnavailable(f"{name} cannot be used now: {error}")
        case driver.ResponseError():
            return _translate_reply(str(error), name)
        case _:
            return StoreError(f"{name}: {error}")


def _translate_reply(text: str, name: str) -> AforesaidError:
    """Translate an error reply by its first word."""
    if any(word in text for word in ("OOM ", "MISCONF ", "NOREPLICAS", "LOADING ", "BUSY ", "UNKILLABLE ")):
        return StoreUnavailable(f"{name} cannot be used now: {text}")
    if "WRONGTYPE" in text:
        return StoreDamaged(f"{name} has values of another type under our keys: {text}")
    if "exceeds maximum allowed size" in text or "invalid bulk length" in text:
        return InvalidMessage("the message is larger than the store can hold", field="content")
    return StoreError(f"{name}: {text}")
