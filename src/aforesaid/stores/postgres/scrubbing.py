"""Deleted rows leave the files of the tables too.

A row that is deleted stays in its page, and what was said with it, until the table is written anew: a plain
VACUUM only marks the room as free. So the tables that can hold rows of this owner are written anew
with VACUUM FULL, indexes included; of the log, that is one partition. It takes a lock on one table at a
time, and only the role that owns the tables may. The server's write-ahead log, its replicas and its
backups are not ours to reach: see `docs/stores/postgresql.md`. Below: `connections`. Above: `backend`.
"""

from collections.abc import Sequence

from psycopg import errors, sql
from psycopg.rows import tuple_row

from aforesaid.stores.postgres.connections import SQL, Connection

LOCK_SECONDS = 10
"""How long to wait for a table that others use. They hold it for milliseconds."""


async def scrub(connection: Connection, owners: Sequence[str] | None, server: str) -> tuple[str, ...]:
    """Write anew what may hold deleted rows of these owners (their keys), or of anybody; returns what could
    not be done."""
    await connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'".encode())
    remains = []
    for schema, table, is_ours in await _tables(connection, owners):
        if not is_ours:
            remains.append(f"{server}: only the owner of {schema}.{table} may write it anew: VACUUM FULL")
        elif not await _written_anew(connection, schema, table):
            remains.append(f"{server}: {schema}.{table} was in use and was not written anew: VACUUM FULL")
    return tuple(remains)


async def _tables(connection: Connection, owners: Sequence[str] | None) -> list[tuple[str, str, bool]]:
    """The tables that can hold rows of these owners, and whether they are ours to write anew."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(SQL["tables"])
        found = await cursor.fetchall()
        return [
            (schema, table, is_ours)
            for schema, table, constraint, is_ours in found
            if constraint is None or owners is None or await _admits(connection, constraint, owners)
        ]


async def _admits(connection: Connection, constraint: str, owners: Sequence[str]) -> bool:
    """Whether a partition can hold rows of these owners. The constraint is the server's own text of it."""
    question = f'SELECT bool_or({constraint}) FROM (SELECT unnest(%s::text[]) COLLATE "C" AS owner) AS asked'
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(question.encode(), (list(owners),))
        answer = await cursor.fetchone()
    return bool(answer and answer[0])


async def _written_anew(connection: Connection, schema: str, table: str) -> bool:
    try:
        await connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.Identifier(schema, table)))
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        return False
    return True
