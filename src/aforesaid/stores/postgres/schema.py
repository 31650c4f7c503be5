"""Check and migrate the database's schema."""

from typing import Any

from psycopg import errors
from psycopg.rows import tuple_row

from aforesaid.contracts import SchemaVersion
from aforesaid.errors import StoreForeign
from aforesaid.stores._sql_files import migrations
from aforesaid.stores.postgres.connections import OLDEST_SERVER, PACKAGE, SQL, Connection

STEPS = migrations(PACKAGE)
LOCK_SCHEMA = b"LOCK TABLE aforesaid.migrations IN EXCLUSIVE MODE"
"""The lock for schema changes. Unlike an advisory lock, which any role can take, it needs the rights of
the schema's owner. Reads of the version do not wait for it."""


async def prepare(connection: Connection, server: str) -> None:
    """Check that the schema is ours, and apply the missing migrations, each exactly once.

    A role without the right to change the schema can open an up-to-date database.
    """
    _check_server(connection, server)
    if await _version(connection, server) == len(STEPS):
        return
    try:
        await _migrate(connection, server)
    except (errors.DuplicateSchema, errors.UniqueViolation):
        # Another process created the schema concurrently; CREATE SCHEMA waited for its commit.
        if await _version(connection, server) != len(STEPS):
            raise


async def _migrate(connection: Connection, server: str) -> None:
    async with connection.transaction():
        if await _version(connection, server):
            await connection.execute(LOCK_SCHEMA)
        # Read again under the lock: another process may have migrated meanwhile.
        for number, sql in STEPS[await _version(connection, server) :]:
            await connection.execute(sql.encode())
            await connection.execute("INSERT INTO aforesaid.migrations (version) VALUES (%s)", (number,))


def _check_server(connection: Connection, server: str) -> None:
    version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
    if version < OLDEST_SERVER:
        raise StoreForeign(f"{server} runs PostgreSQL {version // 10000}; Aforesaid needs 15 or later")
    if encoding != "UTF8":
        raise StoreForeign(f"{server} has the encoding {encoding}, which cannot hold all text; it needs UTF8")


async def schema_version(connection: Connection, server: str) -> SchemaVersion:
    """Return the database's schema version and the needed one. Change nothing."""
    _check_server(connection, server)
    return SchemaVersion(found=await _found(connection, server), needed=len(STEPS))


async def _found(connection: Connection, server: str) -> int:
    """Return the version of the schema; 0 if it is missing."""
    taken = {name for (name,) in await _fetch(connection, "schema_objects")}
    if "aforesaid.migrations" not in taken:
        if taken:
            raise StoreForeign(
                f"{server} has a {' and a '.join(sorted(taken))} of another program; it was left as it is"
            )
        return 0
    ((version,),) = await _fetch(connection, "schema_version")
    return int(version)


async def _version(connection: Connection, server: str) -> int:
    """Return the version. Raise `StoreForeign` if it is of a later release."""
    version = await _found(connection, server)
    if version > len(STEPS):
        raise StoreForeign(
            f"{server} was written by a newer release of Aforesaid (schema {version}); it was left as it is"
        )
    return version


async def _fetch(connection: Connection, name: str) -> list[tuple[Any, ...]]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(SQL[name])
        return await cursor.fetchall()
