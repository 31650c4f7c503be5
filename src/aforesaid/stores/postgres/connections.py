"""Connect to the server and translate the driver's errors."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import unquote
from weakref import WeakSet

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, TooManyRequests

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
from aforesaid.stores._sql_files import queries
from aforesaid.stores.postgres.rows import Row

# No error message quotes the server's detail, which may contain a row, or a URL, which may contain a
# password.


PACKAGE = "aforesaid.stores.postgres"
SQL = {name: text.encode() for name, text in queries(PACKAGE).items()}
# PostgreSQL 15 introduced `security_invoker` views and foreign keys that clear one column.
OLDEST_SERVER = 150000
# Connection timeout, unless the URL has `connect_timeout`.
CONNECT_SECONDS = 10
# Connections per backend. Turns are short; more connections than cores mostly wait for each other.
MAX_CONNECTIONS = 10
# Calls that may wait for a free connection; further ones are refused at once.
MAX_WAITING = 10_000
# How long a call waits for a free connection.
WAIT_SECONDS = 30.0

Connection = psycopg.AsyncConnection[Any]
Pool = AsyncConnectionPool[Any]


# Options of a URL that libpq does not know, and the settings that they replace for the listening connection.
_LISTEN = {"listen_host": "host", "listen_port": "port"}


def parse_conninfo(url: str) -> tuple[str, str]:
    """Parse the URL into the settings of the pool and those of the listening connection; these are empty
    where they are the same. Raise `InvalidSetting` without the password in the message.
    """
    bare, listening = _split_listen_options(url)
    settings = _parsed(bare)
    return make_conninfo("", **settings), make_conninfo("", **settings | listening) if listening else ""


def _split_listen_options(url: str) -> tuple[str, dict[str, str]]:
    base, mark, query = url.partition("?")
    if not mark:
        return url, {}
    pairs = [pair.partition("=") for pair in query.split("&")]
    listening = {_LISTEN[name]: unquote(value) for name, _, value in pairs if name in _LISTEN}
    others = "&".join(f"{name}{sign}{value}" for name, sign, value in pairs if name not in _LISTEN)
    return (f"{base}?{others}" if others else base), listening


def _parsed(url: str) -> dict[str, Any]:
    try:
        settings = conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidSetting(
            "the postgresql: URL is invalid; it must look like postgresql://user@host:5432/database",
            field="url",
        ) from None
    settings.setdefault("connect_timeout", CONNECT_SECONDS)
    settings.setdefault("application_name", "aforesaid")
    return settings


def server_name(conninfo: str | None) -> str:
    """Return the server's name for error messages."""
    if conninfo is None:
        return "the PostgreSQL database"
    settings = conninfo_to_dict(conninfo)
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    return f"PostgreSQL database {settings.get('dbname') or ''} at {host}:{settings.get('port') or 5432}"


class TrackedPool(AsyncConnectionPool[Any]):
    """A pool with references to all of its connections, including those in use.

    An attempt to connect is not repeated by the pool but by the next call, so that a server that is back is
    used at once. Calls that wait for a connection learn about a failed attempt through `next_failure`.
    """

    def __init__(self, conninfo: str, **options: Any) -> None:
        self.connections: WeakSet[Connection] = WeakSet()
        self._failure: asyncio.Future[Any] | None = None
        super().__init__(
            conninfo,
            configure=self._track,
            reconnect_timeout=0.0,
            reconnect_failed=self._announce_failure,
            **options,
        )

    @property
    def has_idle(self) -> bool:
        """Whether `getconn` returns at once."""
        return bool(self._pool)

    def next_failure(self) -> "asyncio.Future[Any]":
        """Return a future that is done when an attempt to connect fails."""
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    async def _announce_failure(self, _: "AsyncConnectionPool[Any]") -> None:
        failure, self._failure = self._failure, None
        if failure is not None and not failure.done():
            failure.set_result(None)

    async def _track(self, connection: Connection) -> None:
        self.connections.add(connection)


async def close_with_loop(pool: Pool) -> None:
    """Close a pool at the end of its event loop. Connections in use are closed on return, because a
    cancelled call still waits for its own."""
    with contextlib.suppress(psycopg.Error, RuntimeError):
        await pool.close()


def close_orphaned(pool: Pool) -> None:
    """Close the connections that could not be returned because their event loop is closed."""
    if isinstance(pool, TrackedPool):
        for connection in list(pool.connections):
            connection.pgconn.finish()


def new_pool(conninfo: str, *, max_connections: int) -> Pool:
    """Create a pool, not opened."""
    return TrackedPool(
        conninfo,
        min_size=1,
        max_size=max_connections,
        timeout=WAIT_SECONDS,
        max_waiting=MAX_WAITING,
        kwargs={"autocommit": True},
        name="aforesaid",
        open=False,
    )


async def connect(conninfo: str) -> Connection:
    """Open a connection outside of any pool."""
    return await psycopg.AsyncConnection.connect(conninfo, autocommit=True)


async def connect_outside_pool(pool: Pool) -> Connection:
    """Open a connection with the pool's settings, outside the pool."""
    conninfo = await _resolved(pool.conninfo)
    options = await _resolved(pool.kwargs)
    return await psycopg.AsyncConnection.connect(conninfo or "", **({**(options or {}), "autocommit": True}))


def pool_conninfo(pool: Pool | None) -> str | None:
    """Return the pool's connection string, unless it is a function."""
    return pool.conninfo if pool is not None and isinstance(pool.conninfo, str) else None


async def _resolved(setting: Any) -> Any:
    """Resolve a pool setting: a value, a function or an async function."""
    value = setting() if callable(setting) else setting
    return await value if inspect.isawaitable(value) else value


async def execute_for(connection: Connection, owner: str, *steps: tuple[str, Mapping[str, Any]]) -> list[Row]:
    """Run queries as this owner, in one pipeline; return the rows of the last.

    A pipeline is one transaction, also with autocommit.
    """
    cursor = connection.cursor(binary=True, row_factory=tuple_row)
    async with connection.pipeline():
        await connection.execute(SQL["set_owner"], {"name": owner})
        for name, values in steps[:-1]:
            await connection.execute(SQL[name], values)
        name, values = steps[-1]
        await cursor.execute(SQL[name], values)
    return await cursor.fetchall() if cursor.description else []


@contextlib.asynccontextmanager
async def borrow(pool: Pool) -> AsyncIterator[Connection]:
    """Lend a connection of the pool for one piece of work.

    A restart of the server ends all idle connections at once, and each of them would fail one call. Such
    connections go back to the pool, which replaces them, as long as the pool has another idle one. The last
    one is lent as it is: its call fails at once instead of waiting for a server that may be away.
    """
    connection = await _connection(pool)
    try:
        while _is_dropped(connection) and pool.get_stats()["pool_available"]:
            dropped, connection = connection, await pool.getconn()
            await pool.putconn(dropped)
        async with connection:
            yield connection
    finally:
        await pool.putconn(connection)


async def _connection(pool: Pool) -> Connection:
    """Take a connection. Fail as soon as an attempt to connect fails: do not wait for the time limit."""
    if isinstance(pool, TrackedPool) and not pool.has_idle:
        return await _awaited_connection(pool)
    connection: Connection = await pool.getconn()
    return connection


async def _awaited_connection(pool: TrackedPool) -> Connection:
    """Wait until a connection is idle or new, or an attempt to connect fails."""
    failure = pool.next_failure()
    waiting: asyncio.Future[Any] = asyncio.ensure_future(pool.getconn())
    try:
        await asyncio.wait({waiting, failure}, return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        await _give_up(pool, waiting)
        raise
    if not waiting.done():
        await _give_up(pool, waiting)
        raise psycopg.OperationalError("the server refuses connections")
    connection: Connection = waiting.result()
    return connection


async def _give_up(pool: Pool, waiting: "asyncio.Future[Any]") -> None:
    """Stop waiting. A connection that comes at the same moment goes back to the pool."""
    waiting.cancel()
    await asyncio.wait({waiting})
    if not waiting.cancelled() and waiting.exception() is None:
        await pool.putconn(waiting.result())


def _is_dropped(connection: Connection) -> bool:
    """Return whether an idle connection was ended by the other side. Reads the socket without waiting."""
    try:
        # Twice: a server that shuts down sends a message first, and one call reads up to that message.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return connection.closed


@contextlib.contextmanager
def discard_unless_idle(connection: Connection) -> Iterator[None]:
    """Close a connection that is not idle, so that the pool discards it.

    A second cancellation during the cancellation of a query leaves unread replies. Such a connection cannot
    be rolled back or used again.
    """
    try:
        yield
    finally:
        server = connection.pgconn
        is_at_work = server.transaction_status == TransactionStatus.ACTIVE
        if is_at_work or server.pipeline_status != PipelineStatus.OFF:
            server.finish()


@contextlib.contextmanager
def translated(server: str) -> Iterator[None]:
    """Translate the driver's errors; each message names the server."""
    try:
        yield
    except PoolClosed as error:
        raise StoreClosed.named(server) from error
    except TooManyRequests as error:
        raise Overloaded(f"{server}: {MAX_WAITING:,} calls are waiting for a connection already") from error
    except psycopg.Error as error:
        raise _translate(error, server) from error


def _translate(error: psycopg.Error, server: str) -> AforesaidError:
    text = error.diag.message_primary or str(error).partition("\n")[0]
    match error:
        case errors.ProgramLimitExceeded():
            return InvalidMessage("the message is larger than the store can hold", field="content")
        case errors.InsufficientPrivilege():
            return StoreError(
                f"{server}: {text}; the owner of the schema can admit this role: "
                "SELECT aforesaid.admit('role', p_service => true)"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return StoreDamaged(f"{server} is damaged: {text}")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.ReadOnlySqlTransaction():
            return StoreUnavailable(f"{server} cannot be used now: {text}")
        case _:
            return StoreError(f"{server}: {text}")
