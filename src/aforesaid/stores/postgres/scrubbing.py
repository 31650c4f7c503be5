"""Remove deleted rows from the files of the tables.

A deleted row stays in its page until the table is rewritten: a plain VACUUM only marks its space as free. So
VACUUM FULL rewrites the tables that can contain rows of the owner, with their indexes; of the log, that is
one partition. It locks one table at a time and needs the role that owns the tables. The server's write-ahead
log, replicas and backups are out of reach: see `docs/stores/postgresql.md`.
"""

from collections.abc import Sequence

from psycopg import errors, sql
from psycopg.rows import tuple_row

from aforesaid.stores.postgres.connections import SQL, Connection

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
