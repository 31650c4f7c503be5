"""Check and migrate the schema, and use optional extensions."""

import logging
from datetime import datetime
from typing import Any

from msgspec import Struct
from psycopg import Error, errors
from psycopg.rows import class_row, tuple_row

from aforesaid.contracts import SchemaVersion
from aforesaid.errors import StoreForeign
from aforesaid.stores._sql_files import migrations, sql_file
from aforesaid.stores.postgres.connections import (
    OLDEST_SERVER,
    PACKAGE,
    SQL,
    Connection,
)

# Check and migrate the database's schema.


STEPS = migrations(PACKAGE)
# The lock for schema changes. Unlike an advisory lock, which any role can take, it needs the rights of the
# schema's owner. Reads of the version do not wait for it.
LOCK_SCHEMA = b"LOCK TABLE aforesaid.migrations IN EXCLUSIVE MODE"


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


async def server_time(connection: Connection) -> datetime:
    """Return the time on the server's clock."""
    ((now,),) = await _fetch(connection, "server_time")
    assert isinstance(now, datetime)
    return now


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


# Optional extensions of the server: `pg_trgm` and `vector`.
#
# Without them, the store works too, some of it more slowly. A role with CREATE on the database may create
# `pg_trgm`; `vector` mostly needs a superuser.


log = logging.getLogger("aforesaid.stores.postgres")

TRIGRAMS, VECTORS = "pg_trgm", "vector"
SCRIPTS = {TRIGRAMS: sql_file(PACKAGE, "trigrams.sql"), VECTORS: sql_file(PACKAGE, "vectors.sql")}


class Abilities(Struct, frozen=True, kw_only=True):
    """Optional abilities of a database."""

    trigrams: bool = False
    """Trigram indexes of subjects and client names, for roles without row-level security."""
    vectors: bool = False
    """The server compares vectors; see `contracts.VectorSearchable`."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The extensions that are not used."""
        ready = {TRIGRAMS: self.trigrams, VECTORS: self.vectors}
        return tuple(name for name, is_ready in ready.items() if not is_ready)


class ExtensionState(Struct, frozen=True):
    """The state of an extension."""

    available: bool
    schema: str | None
    """The extension's schema, quoted; None if it is not installed."""
    may_create: bool
    maker: str | None
    """The role that owns our schema, quoted; None if this role may not act as it."""


async def find_abilities(connection: Connection, server: str) -> Abilities:
    """Return the abilities, after creating what this role may create."""
    found = {
        extension: is_ready or await _create_if_allowed(connection, extension, server)
        for extension, is_ready in (await _ready(connection)).items()
    }
    return Abilities(trigrams=found[TRIGRAMS], vectors=found[VECTORS])


async def _ready(connection: Connection) -> dict[str, bool]:
    """Return for each extension whether our objects that use it exist and this role may use them."""
    ((trigrams, vectors),) = await _fetch(connection, "extensions_ready")
    return {TRIGRAMS: bool(trigrams), VECTORS: bool(vectors)}


async def _create_if_allowed(connection: Connection, extension: str, server: str) -> bool:
    """Try to create the extension and our objects; return whether they are usable."""
    state = await _extension_state(connection, extension)
    if state.maker is None or not (state.schema or state.may_create):
        log.info("%s: %s is not used: %s", server, extension, _reason(state.available))
        return False
    try:
        async with connection.transaction():
            await connection.execute(LOCK_SCHEMA)
            await _create(connection, extension)
    except Error as error:  # the extension is optional, so log every refusal
        log.info("%s: %s is not used: %s", server, extension, error.diag.message_primary)
        return False
    return True


def _reason(available: bool) -> str:
    return "this role may not create it" if available else "the server does not have it"


async def _create(connection: Connection, extension: str) -> None:
    await connection.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}".encode())
    if not (await _ready(connection))[extension]:  # another process may have created it
        state = await _extension_state(connection, extension)
        # Our objects belong to the owner of the schema, even if a superuser opens the store first.
        await connection.execute(f"SET LOCAL ROLE {state.maker}".encode())
        script = SCRIPTS[extension].replace("{extension}", str(state.schema))
        await connection.execute(script.encode())


async def _extension_state(connection: Connection, extension: str) -> ExtensionState:
    async with connection.cursor(row_factory=class_row(ExtensionState)) as cursor:
        await cursor.execute(SQL["extension"], {"name": extension})
        found = await cursor.fetchone()
        assert found is not None, "the query always returns a row"
        return found
