"""The PostgreSQL backend: owners, sweeps, the schema and the scrubbing of tables."""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime

from psycopg import errors, sql
from psycopg.rows import tuple_row

from aforesaid.contracts import JOURNAL, Backend, SchemaVersion
from aforesaid.model.ids import parse_name
from aforesaid.stores.postgres.connections import (
    SQL,
    Connection,
    translated,
)
from aforesaid.stores.postgres.database import Database
from aforesaid.stores.postgres.rows import key_of, name_of
from aforesaid.stores.postgres.schema import schema_version, server_time
from aforesaid.stores.postgres.store import PostgresStore

# Remove deleted rows from the files of the tables.
#
# A deleted row stays in its page until the table is rewritten: a plain VACUUM only marks its space as free.
# So VACUUM FULL rewrites the tables that can contain rows of the owner, with their indexes; of the log,
# that is one partition. It locks one table at a time and needs the role that owns the tables. The server's
# write-ahead log, replicas and backups are out of reach: see `docs/stores/postgresql.md`.


# How long to wait for a table's lock. Other transactions hold it for milliseconds.
LOCK_SECONDS = 10


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


class PostgresBackend(Database, Backend):
    """One database, given by its URL or by an open pool, which the caller closes."""

    async def schema_version(self) -> SchemaVersion:
        with translated(self.server):
            async with await self._connect() as connection:
                return await schema_version(connection, self.server)

    async def server_time(self) -> datetime:
        with translated(self.server):
            async with await self._connect() as connection:
                return await server_time(connection)

    async def data_identity(self) -> str:
        ((identity,),) = await self.run("data_identity", {})
        return str(identity)

    async def missing_extensions(self) -> tuple[str, ...]:
        return self.abilities.missing

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

    async def disk_usage(self) -> dict[str, int]:
        """Return the bytes of every table and index."""
        return {str(name): int(size) for name, size in await self.run("disk_usage", {})}

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Rewrite the tables with the owner's data and the journal, if this role may."""
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
        if total:
            self.forget_snapshots()
        return total
