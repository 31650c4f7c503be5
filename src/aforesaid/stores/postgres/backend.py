"""Manage connections; list owners, purge and scrub."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from psycopg import errors, sql
from psycopg.rows import tuple_row

from aforesaid._internal.tasks import LoopEnd, LoopWatch, PerLoop, Underway
from aforesaid.contracts import JOURNAL, Backend, SchemaVersion
from aforesaid.errors import InvalidSetting, StoreClosed
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import check_count
from aforesaid.model.ids import parse_name
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
from aforesaid.stores.postgres.rows import Row, key_of, name_of
from aforesaid.stores.postgres.schema import Abilities, distribute, find_abilities, prepare, schema_version
from aforesaid.stores.postgres.store import PostgresStore
from aforesaid.stores.postgres.watch import Listener

# Remove deleted rows from the files of the tables.
#
# A deleted row stays in its page until the table is rewritten: a plain VACUUM only marks its space as free.
# So VACUUM FULL rewrites the tables that can contain rows of the owner, with their indexes; of the log,
# that is one partition. It locks one table at a time and needs the role that owns the tables. The server's
# write-ahead log, replicas and backups are out of reach: see `docs/stores/postgresql.md`.


LOCK_SECONDS = 10
"""How long to wait for a table's lock. Other transactions hold it for milliseconds."""


async def scrub(connection: Connection, owners: Sequence[str] | None, server: str) -> tuple[str, ...]:
    """Rewrite the tables that may contain deleted rows of these owners (their keys), or of all; return
    what could not be done."""
    await connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'".encode())
    remains = []
    for schema, table, is_ours in await _tables(connection, owners):
        if not is_ours:
            remains.append(f"{server}: only the owner of {schema}.{table} may rewrite it: run VACUUM FULL")
        elif not await _rewrite(connection, schema, table):
            remains.append(f"{server}: {schema}.{table} was in use and was not rewritten: run VACUUM FULL")
    return tuple(remains)


async def _tables(connection: Connection, owners: Sequence[str] | None) -> list[tuple[str, str, bool]]:
    """Return the tables that can contain rows of these owners, and whether this role may rewrite them."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(SQL["tables"])
        found = await cursor.fetchall()
        return [
            (schema, table, is_ours)
            for schema, table, constraint, is_ours in found
            if constraint is None or owners is None or await _can_contain(connection, constraint, owners)
        ]


async def _can_contain(connection: Connection, constraint: str, owners: Sequence[str]) -> bool:
    """Return whether a partition can contain rows of these owners. The constraint is the server's own
    text."""
    question = f'SELECT bool_or({constraint}) FROM (SELECT unnest(%s::text[]) COLLATE "C" AS owner) AS asked'
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(question.encode(), (list(owners),))
        answer = await cursor.fetchone()
    return bool(answer and answer[0])


async def _rewrite(connection: Connection, schema: str, table: str) -> bool:
    try:
        await connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.Identifier(schema, table)))
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        return False
    return True


PURGE_BATCH = 100
OWNERS_BATCH = 500


class PostgresBackend(Backend):
    """One database, given by its URL or by an open pool, which the caller closes."""

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
        self._conninfo = parse_conninfo(url) if url is not None else ""
        self._given_pool = pool
        self._max_connections = check_count(max_connections, field="max_connections", least=1)
        self.clock = clock
        self.server = server_name(self._conninfo or pool_conninfo(pool))
        self.listener = Listener(self._connect_outside_pool, self.server)
        self.abilities = Abilities()
        self._pool: Pool | None = None
        self._loop = LoopWatch()
        self._loop_end: LoopEnd | None = None
        self._renewing = PerLoop(asyncio.Lock)
        self._underway = PerLoop(Underway)

    # Opening

    async def open(self) -> None:
        if self._pool is not None:
            return
        with translated(self.server):
            async with await self._connect() as connection:
                await prepare(connection, self.server)
                self.abilities = await find_abilities(connection, self.server)
            # Set last: until then, every call raises `StoreClosed`.
            self._pool = self._given_pool or await self._new_pool()

    async def schema_version(self) -> SchemaVersion:
        with translated(self.server):
            async with await self._connect() as connection:
                return await schema_version(connection, self.server)

    async def distribute(self) -> None:
        """Distribute the tables over a Citus cluster, by owner; see `citus`."""
        with translated(self.server):
            async with await self._connect() as connection:
                await distribute(connection)

    # Connections

    async def _connect(self) -> Connection:
        """Open a connection outside the pool."""
        return await (
            connect(self._conninfo) if self._given_pool is None else connect_outside_pool(self._given_pool)
        )

    async def _connect_outside_pool(self) -> Connection:
        """Open a connection outside the pool. Raise `StoreClosed` if the pool is closed."""
        self._require_pool()
        return await self._connect()

    def _require_pool(self) -> Pool:
        if self._pool is None:
            raise StoreClosed(f"{self.server} is not open")
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
        pool, self._pool = self._pool, None
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

    # Queries

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

    # Owners

    def of(self, owner: str) -> PostgresStore:
        return PostgresStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        last = ""
        while batch := await self.run(
            "owners", {"last": last, "limit": OWNERS_BATCH, "ignored_kinds": [*ignored_kinds]}
        ):
            for key, full_name in batch:
                yield name_of(key, full_name)
            last = batch[-1][0]

    # Maintenance

    async def disk_usage(self) -> dict[str, int]:
        """Return the bytes of every table and index."""
        return {str(name): int(size) for name, size in await self.run("disk_usage", {})}

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Rewrite the tables with the owner's data and the journal, if this role may; see `scrubbing`."""
        keys = None
        if owner is not None:
            key = key_of(parse_name(owner, field="owner"))
            await self.run_for(owner, ("delete_placeholder_contacts", {"owner": key}))
            keys = (key, key_of(JOURNAL))
        self._require_pool()
        with translated(self.server):
            async with await self._connect() as connection:
                return await scrub(connection, keys, self.server)

    async def purge_expired(self, now: datetime | None = None) -> int:
        values = {"now": now or self.clock(), "limit": PURGE_BATCH}
        total = 0
        while removed := (await self.run("purge_all_owners", values))[0][0]:
            total += removed
        return total
