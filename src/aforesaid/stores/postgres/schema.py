"""The database's schema: whose it is, which version it has, and how it gets to ours."""

from typing import Any

from psycopg import errors
from psycopg.rows import tuple_row

from aforesaid.contracts import SchemaVersion
from aforesaid.errors import StoreForeign
from aforesaid.stores._sql_files import migrations
from aforesaid.stores.postgres.connections import OLDEST_SERVER, PACKAGE, SQL, Connection

STEPS = migrations(PACKAGE)
LOCK_SCHEMA = b"LOCK TABLE aforesaid.migrations IN EXCLUSIVE MODE"
"""The lock under which one of many processes changes the schema. It needs the rights of the schema's owner,
unlike an advisory lock, which any role that may connect can hold. Reading the version goes on."""


async def prepare(connection: Connection, server: str) -> None:
    """Refuse what is not ours, and apply the migrations that the database has not seen, each exactly once.

    A role that may not change the schema can open a database that is up to date.
    """
    _check_server(connection, server)
    if await _version(connection, server) == len(STEPS):
        return
    try:
        await _migrate(connection, server)
    except (errors.DuplicateSchema, errors.UniqueViolation):
        # Another process made the schema at the same time. CREATE SCHEMA waited until it was done.
        if await _version(connection, server) != len(STEPS):
            raise


async def _migrate(connection: Connection, server: str) -> None:
    async with connection.transaction():
        if await _version(connection, server):
            await connection.execute(LOCK_SCHEMA)
        # Asked again under the lock: another process may have been first.
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
    """Which version the database has and which it needs. Nothing is changed."""
    _check_server(connection, server)
    return SchemaVersion(found=await _found(connection, server), needed=len(STEPS))


async def _found(connection: Connection, server: str) -> int:
    """The version of the schema; 0 when there is none."""
    taken = {name for (name,) in await _fetch(connection, "our_names")}
    if "aforesaid.migrations" not in taken:
        if taken:
            raise StoreForeign(
                f"{server} has a {' and a '.join(sorted(taken))} of another program; it was left as it is"
            )
        return 0
    ((version,),) = await _fetch(connection, "schema_version")
    return int(version)


async def _version(connection: Connection, server: str) -> int:
    """The version, unless it is one yet to come."""
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
