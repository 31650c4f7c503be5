"""The open database: its pool of connections, and queries as one owner. All stores of a backend share it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Any

from psycopg.rows import tuple_row

from aforesaid._internal.tasks import LoopEnd, LoopWatch, PerLoop, Underway
from aforesaid.errors import (
    ConversationNotFound,
    InvalidSetting,
    RevisionConflict,
    StoreClosed,
)
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import Conversation, check_count
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.stores._snapshots import SnapshotCache
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import (
    MAX_CONNECTIONS,
    SQL,
    WAIT_SECONDS,
    Connection,
    Pool,
    borrow,
    close_orphaned,
    close_with_loop,
    connect,
    connect_outside_pool,
    discard_unless_idle,
    execute_for,
    new_pool,
    parse_conninfo,
    pool_conninfo,
    server_name,
    translated,
)
from aforesaid.stores.postgres.rows import Row, key_of
from aforesaid.stores.postgres.schema import Abilities, find_abilities, prepare
from aforesaid.stores.postgres.snapshots import DECODERS
from aforesaid.stores.postgres.turns import TurnWriter
from aforesaid.stores.postgres.watch import Delivery, Listener


class Database:
    """One open database: the pool, the listening connection and the optional abilities of the server."""

    def __init__(
        self,
        url: str | None = None,
        *,
        pool: Pool | None = None,
        clock: Clock = system_clock,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        if (url is None) == (pool is None):
            raise InvalidSetting("a PostgreSQL store needs a URL or a pool, one of the two", field="url")
        # A password in the URL stays here: `server` is the name for errors and logs.
        self._conninfo, self._listen_conninfo = ("", "") if url is None else parse_conninfo(url)
        self._given_pool = pool
        self._max_connections = check_count(max_connections, field="max_connections", least=1)
        self.clock = clock
        self.server = server_name(self._conninfo or pool_conninfo(pool))
        self.listener = Listener(self._connect_to_listen, self._notify_listeners, self.server)
        self.abilities = Abilities()
        self.turns = TurnWriter(self.run)
        self.snapshots = SnapshotCache(DECODERS)
        self._pool: Pool | None = None
        self._loop = LoopWatch()
        self._loop_end: LoopEnd | None = None
        self._renewing = PerLoop(asyncio.Lock)
        self._underway = PerLoop(Underway)

    async def open(self) -> None:
        if self._pool is not None:
            return
        with translated(self.server):
            async with await self._connect() as connection:
                await prepare(connection, self.server)
                self.abilities = await find_abilities(connection, self.server)
            # Set last: until then, every call raises `StoreClosed`.
            self._pool = self._given_pool or await self._new_pool()

    async def _connect(self) -> Connection:
        """Open a connection outside the pool."""
        return await (
            connect(self._conninfo) if self._given_pool is None else connect_outside_pool(self._given_pool)
        )

    async def _connect_outside_pool(self) -> Connection:
        """Open a connection outside the pool. Raise `StoreClosed` if the pool is closed."""
        self._require_pool()
        return await self._connect()

    async def _connect_to_listen(self) -> Connection:
        """Open the listening connection: with `listen_host` or `listen_port`, past the pooler."""
        if self._listen_conninfo:
            self._require_pool()
            return await connect(self._listen_conninfo)
        return await self._connect_outside_pool()

    async def _notify_listeners(self, key: bytes, payload: str) -> None:
        await self.run("notify_listeners", {"key": key, "payload": payload})

    @property
    def changes_are_polled(self) -> bool:
        """Whether changes of other processes are polled, as far as is known."""
        return self.listener.delivery == "polling"

    async def change_delivery(self) -> Delivery:
        """Return how changes of other processes arrive: by notifications, or by polling."""
        with translated(self.server):
            return await self.listener.check()

    def _require_pool(self) -> Pool:
        if self._pool is None:
            raise StoreClosed.named(self.server)
        return self._pool

    async def _current_pool(self) -> Pool:
        """Return the pool. On another event loop, create a new one: connections belong to one loop."""
        pool = self._require_pool()
        if pool is self._given_pool or self._loop.is_here:
            return pool
        async with self._renewing.here():
            if not self._loop.is_here:
                close_orphaned(pool)
                self._pool = await self._new_pool()
            return self._require_pool()

    async def _new_pool(self) -> Pool:
        pool = new_pool(self._conninfo, max_connections=self._max_connections)
        await pool.open(wait=True, timeout=WAIT_SECONDS)
        self._loop.follow()
        self._loop_end = LoopEnd(partial(close_with_loop, pool))
        return pool

    async def close(self) -> None:
        try:
            await self.turns.finish()
        finally:
            pool, self._pool = self._pool, None
            await self._close_all(pool)

    async def _close_all(self, pool: Pool | None) -> None:
        try:
            await self.listener.close()
            await self._underway.here().finished()
        finally:
            if pool is not None and pool is not self._given_pool:
                await self._close_pool(pool)

    async def _close_pool(self, pool: Pool) -> None:
        if self._loop_end is not None:
            await self._loop_end.release()
        if self._loop.is_here:
            await pool.close()
        else:
            close_orphaned(pool)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Take a connection from the pool and translate its errors."""
        self._require_pool()
        with self._underway.here().one(), translated(self.server):
            pool = await self._current_pool()
            async with borrow(pool) as connection:
                with discard_unless_idle(connection):
                    yield connection

    def forget_snapshots(self) -> None:
        """Drop the cached snapshots after a removal. A read that began before fills the old cache."""
        self.snapshots = SnapshotCache(DECODERS)

    async def run(self, name: str, values: Mapping[str, Any]) -> list[Row]:
        """Run one query in one round trip. The query itself sets the owner."""
        async with self.connection() as connection:
            cursor = connection.cursor(binary=True, row_factory=tuple_row)
            await cursor.execute(SQL[name], values)
            return await cursor.fetchall()

    async def run_for(self, owner: str, *steps: tuple[str, Mapping[str, Any]]) -> list[Row]:
        """Run queries as this owner, in one transaction and one round trip; return the rows of the last."""
        async with self.connection() as connection:
            return await execute_for(connection, owner, *steps)


class OwnerConnection:
    """Runs queries as one owner, and provides the values that name the owner's rows."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.name = name
        self.key = key_of(name)
        self.turns = database.turns

    def now(self) -> datetime:
        return self._database.clock()

    # Queries

    async def run(self, *steps: tuple[str, Mapping[str, Any]]) -> list[rows.Row]:
        """Run queries in one transaction and one round trip; return the rows of the last."""
        return await self._database.run_for(self.name, *steps)

    async def run_query(self, query: str, values: Mapping[str, Any]) -> list[rows.Row]:
        """Run a query that sets the owner itself."""
        return await self._database.run(query, values)

    def borrow(self) -> AbstractAsyncContextManager[Connection]:
        """Take a connection from the pool, for several steps."""
        return self._database.connection()

    async def execute(self, connection: Connection, *steps: tuple[str, Mapping[str, Any]]) -> list[rows.Row]:
        """Run queries on a borrowed connection; return the rows of the last."""
        return await execute_for(connection, self.name, *steps)

    async def get(self, conversation_id: str) -> Conversation | None:
        found = await self.run(("get_conversation", self.named(conversation_id)))
        return rows.conversation(found[0]) if found else None

    async def require(self, conversation_id: str) -> Conversation:
        """Return the record. Raise `ConversationNotFound`."""
        record = await self.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record

    # Values

    @property
    def full_name(self) -> str | None:
        """The owner's name if its key is a digest."""
        return None if self.name == self.key else self.name

    def owned(self) -> dict[str, Any]:
        return {"owner": self.key, "now": self.now()}

    def named(self, conversation_id: str) -> dict[str, Any]:
        return self.owned() | {"id": parse_uuid(conversation_id, field="conversation_id")}

    def session(self, session_id: str) -> dict[str, Any]:
        key = key_of(parse_name(session_id, field="session_id"))
        return self.owned() | {"session": key, "session_name": None if key == session_id else session_id}

    def creation(self, conversation: Conversation) -> dict[str, Any]:
        return rows.conversation_values(conversation) | self.owned() | {"owner_name": self.full_name}


def revision_conflict(record: Conversation, expected: int | None) -> RevisionConflict:
    # An encrypted turn is also refused because of another head of the log, without an expected revision.
    return RevisionConflict(record.id, expected=-1 if expected is None else expected, actual=record.revision)
