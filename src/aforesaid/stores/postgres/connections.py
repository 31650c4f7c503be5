"""Reaching the server. The driver's errors are translated here, at the border, and nowhere else.

No message of ours quotes a server's detail or a URL: the one may hold a row, the other a password.
"""

import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
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

PACKAGE = "aforesaid.stores.postgres"
SQL = {name: text.encode() for name, text in queries(PACKAGE).items()}
OLDEST_SERVER = 150000
"""Views that run with the rights of whoever asks, and foreign keys that clear one column, came with 15."""
CONNECT_SECONDS = 10
"""How long to wait for a server that does not answer, unless the URL says `connect_timeout`."""
MAX_CONNECTIONS = 10
"""Connections of one backend. Turns are short; more connections than cores mostly wait for each other."""
MOST_WAITING = 10_000
"""Calls that may wait for a free connection; the next one is refused at once."""
WAIT_SECONDS = 30.0
"""How long a call waits for a free connection."""

Connection = psycopg.AsyncConnection[Any]
Pool = AsyncConnectionPool[Any]


def parse_conninfo(url: str) -> str:
    """The URL as connection settings, or an error that does not repeat its password."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidSetting(
            "the postgresql: URL cannot be read; it looks like postgresql://user@host:5432/database",
            field="url",
        ) from None
    given.setdefault("connect_timeout", CONNECT_SECONDS)
    given.setdefault("application_name", "aforesaid")
    return make_conninfo("", **given)


def server_name(conninfo: str | None) -> str:
    """What error messages call the server."""
    if conninfo is None:
        return "the PostgreSQL database"
    given = conninfo_to_dict(conninfo)
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"PostgreSQL database {given.get('dbname') or ''} at {host}:{given.get('port') or 5432}"


class OwnPool(AsyncConnectionPool[Any]):
    """A pool that knows all of its connections, also those that are in use."""

    def __init__(self, conninfo: str, **options: Any) -> None:
        self.made: WeakSet[Connection] = WeakSet()
        super().__init__(conninfo, configure=self._note, **options)

    async def _note(self, connection: Connection) -> None:
        self.made.add(connection)


async def close_with_loop(pool: Pool) -> None:
    """Close a pool at the end of its event loop. Connections that are in use are closed when they come back:
    a call that is being cancelled waits for its own."""
    with contextlib.suppress(psycopg.Error, RuntimeError):
        await pool.close()


def drop(pool: Pool) -> None:
    """Close the connections that came back to nobody, because their event loop is closed."""
    if isinstance(pool, OwnPool):
        for connection in list(pool.made):
            connection.pgconn.finish()


def new_pool(conninfo: str, *, max_connections: int) -> Pool:
    """A pool that is not open yet."""
    return OwnPool(
        conninfo,
        min_size=1,
        max_size=max_connections,
        timeout=WAIT_SECONDS,
        max_waiting=MOST_WAITING,
        kwargs={"autocommit": True},
        name="aforesaid",
        open=False,
    )


async def connect(conninfo: str) -> Connection:
    """A connection of its own."""
    return await psycopg.AsyncConnection.connect(conninfo, autocommit=True)


async def connect_beside(pool: Pool) -> Connection:
    """A connection to where a pool leads, which is not one of the pool's."""
    conninfo = await _resolved(pool.conninfo)
    options = await _resolved(pool.kwargs)
    return await psycopg.AsyncConnection.connect(conninfo or "", **({**(options or {}), "autocommit": True}))


def pool_conninfo(pool: Pool | None) -> str | None:
    """Where a pool leads, unless it works that out anew for every connection."""
    return pool.conninfo if pool is not None and isinstance(pool.conninfo, str) else None


async def _resolved(setting: Any) -> Any:
    """A pool's setting, which may be a value, or a function that gives one, at once or later."""
    value = setting() if callable(setting) else setting
    return await value if inspect.isawaitable(value) else value


async def execute_for(connection: Connection, owner: str, *steps: tuple[str, Mapping[str, Any]]) -> list[Row]:
    """Queries in the owner's name, sent together; the rows of the last.

    What is sent together up to the end of the pipeline is one transaction, also with autocommit.
    """
    cursor = connection.cursor(binary=True, row_factory=tuple_row)
    async with connection.pipeline():
        await connection.execute(SQL["speak_for"], {"name": owner})
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
    connection = await pool.getconn()
    try:
        while _is_dropped(connection) and pool.get_stats()["pool_available"]:
            dropped, connection = connection, await pool.getconn()
            await pool.putconn(dropped)
        async with connection:
            yield connection
    finally:
        await pool.putconn(connection)


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
def whole(connection: Connection) -> Iterator[None]:
    """Closes a connection that is left in the middle of something, so that the pool lets go of it.

    A call that is cancelled again while its query is being cancelled leaves the answers of the server under
    way, in a pipeline or not. Such a connection cannot be rolled back, and is not fit for the next call.
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
    """Turn the driver's errors into ours, each naming the server."""
    try:
        yield
    except PoolClosed as error:
        raise StoreClosed(f"{server} is not open") from error
    except TooManyRequests as error:
        raise Overloaded(f"{server}: {MOST_WAITING:,} calls wait for a connection already") from error
    except psycopg.Error as error:
        raise _ours(error, server) from error


def _ours(error: psycopg.Error, server: str) -> AforesaidError:
    said = error.diag.message_primary or str(error).partition("\n")[0]
    match error:
        case errors.ProgramLimitExceeded():
            return InvalidMessage("the message is larger than the store can hold", field="content")
        case errors.InsufficientPrivilege():
            return StoreError(
                f"{server}: {said}; the role that made the schema can admit another: "
                "SELECT aforesaid.admit('role', p_service => true)"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return StoreDamaged(f"{server} is damaged: {said}")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.ReadOnlySqlTransaction():
            return StoreUnavailable(f"{server} cannot be used now: {said}")
        case _:
            return StoreError(f"{server}: {said}")
