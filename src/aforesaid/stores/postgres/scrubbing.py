"""Remove deleted rows from the files of the tables.

A deleted row stays in its page until the table is rewritten: a plain VACUUM only marks its space as free. So
VACUUM FULL rewrites the tables that can contain rows of the owner, with their indexes; of the log, that is
one partition. It needs the role that owns the tables. The server's write-ahead log, replicas and backups are
out of reach: see `docs/stores/postgresql.md`.

A rewrite locks its table against everyone, so there are as few as possible: erasures that wait share one
pass. While a rewrite waits for the lock, everyone else waits behind it. It therefore gives up soon and tries
again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from psycopg import errors, sql
from psycopg.rows import tuple_row

from aforesaid._internal.tasks import PerLoop
from aforesaid.stores.postgres.connections import SQL, Connection

Owners = tuple[str, ...] | None
"""The keys of owners; None means all."""
Table = tuple[str, str]
"""Schema and name."""

# Milliseconds to wait for a table's lock, one attempt after the other: 51 seconds in all. Other transactions
# hold it for milliseconds, but on a busy machine for longer. An attempt is shorter than the limit of a call
# (2 seconds): a call behind it would otherwise look like an outage of the server.
LOCK_WAITS = (100, 200, 400, 800, *(1_000,) * 50)
# Seconds between two attempts, in which others go on.
PAUSE = 0.1


class Pass:
    """One rewrite of the tables for some erasures, and what it could not do."""

    def __init__(self) -> None:
        self.owners: set[Owners] = set()
        self.is_done = False
        self._tables: dict[Owners, list[Table]] = {}
        self._remains: dict[Table, str] = {}

    async def run(self, connection: Connection, server: str) -> None:
        found = await _tables(connection)
        self._tables = {owners: await _of(connection, found, owners) for owners in self.owners}
        wanted = {table for tables in self._tables.values() for table in tables}
        for table, (_, is_ours) in found.items():
            if table in wanted:
                await self._scrub(connection, server, table, is_ours=is_ours)
        self.is_done = True

    async def _scrub(self, connection: Connection, server: str, table: Table, *, is_ours: bool) -> None:
        name = ".".join(table)
        if not is_ours:
            self._remains[table] = f"{server}: only the owner of {name} may rewrite it: run VACUUM FULL"
        elif not await _rewrite(connection, table):
            self._remains[table] = f"{server}: {name} was in use and was not rewritten: run VACUUM FULL"

    def remains(self, owners: Owners) -> tuple[str, ...]:
        """Return what could not be done for these owners."""
        return tuple(self._remains[table] for table in self._tables[owners] if table in self._remains)


class Scrubber:
    """Scrubs for all erasures that wait, in one pass after the other."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]], server: str) -> None:
        self._connect = connect
        self._server = server
        self._running = PerLoop(asyncio.Lock)
        self._next: Pass | None = None

    async def scrub(self, owners: Sequence[str] | None) -> tuple[str, ...]:
        """Rewrite the tables that may contain rows that these owners have deleted; return what could not be
        done."""
        key = None if owners is None else tuple(owners)
        # Only a pass that has not begun finds what was deleted until now.
        joined = self._next = self._next or Pass()
        joined.owners.add(key)
        async with self._running.here():
            # If the erasure that ran the pass was cancelled or failed, the next one runs it.
            if not joined.is_done:
                await self._run(joined)
        return joined.remains(key)

    async def _run(self, one: Pass) -> None:
        if self._next is one:
            self._next = None
        async with self._connect() as connection:
            await one.run(connection, self._server)


async def _tables(connection: Connection) -> dict[Table, tuple[str | None, bool]]:
    """Return the tables, the constraint of a partition, and whether this role may rewrite them."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(SQL["tables"])
        return {
            (schema, name): (constraint, is_ours)
            for schema, name, constraint, is_ours in await cursor.fetchall()
        }


async def _of(
    connection: Connection, tables: dict[Table, tuple[str | None, bool]], owners: Owners
) -> list[Table]:
    """Return the tables that can contain rows of these owners. A constraint is the server's own text."""
    if owners is None:
        return list(tables)
    questions = ", ".join(f"bool_or({constraint or 'true'})" for constraint, _ in tables.values())
    asked = f'SELECT {questions} FROM (SELECT unnest(%s::text[]) COLLATE "C" AS owner) AS asked'
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(asked.encode(), (list(owners),))
        answers = await cursor.fetchone() or ()
    return [table for table, can_contain in zip(tables, answers, strict=True) if can_contain]


async def _rewrite(connection: Connection, table: Table) -> bool:
    rewrite = sql.SQL("VACUUM (FULL) {}").format(sql.Identifier(*table))
    for milliseconds in LOCK_WAITS:
        await connection.execute(f"SET lock_timeout = {milliseconds}".encode())
        try:
            await connection.execute(rewrite)
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            await asyncio.sleep(PAUSE)
        else:
            return True
    return False
