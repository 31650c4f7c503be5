"""What a server has beyond PostgreSQL itself, used where it is there and never needed. Above: `backend`.

`pg_trgm` may be created by a role that may create in the database; `vector` mostly only by a superuser.
Neither is asked for: without them the store does all that it does, some of it more slowly.
"""

import logging

from msgspec import Struct
from psycopg import Error
from psycopg.rows import class_row

from aforesaid.stores._sql_files import sql_file
from aforesaid.stores.postgres.connections import PACKAGE, SQL, Connection
from aforesaid.stores.postgres.schema import LOCK_SCHEMA

log = logging.getLogger("aforesaid.stores.postgres")

TRIGRAMS, VECTORS = "pg_trgm", "vector"
SCRIPTS = {TRIGRAMS: sql_file(PACKAGE, "trigrams.sql"), VECTORS: sql_file(PACKAGE, "vectors.sql")}


class Abilities(Struct, frozen=True, kw_only=True):
    """What a database does beyond what every one does."""

    trigrams: bool = False
    """Parts of subjects and client names are indexed, for roles that row-level security does not bind."""
    vectors: bool = False
    """The server compares vectors: `contracts.Nearest`."""


class Asked(Struct, frozen=True):
    """What the server says of an extension, and of what we make with it."""

    available: bool
    schema: str | None
    """Where it lies, quoted; None when it is not there."""
    may_create: bool
    maker: str | None
    """The role that made the schema, quoted; None when its tables are not ours to change."""
    ready: bool
    """Whether our part is there, and this role may use it."""


async def find_abilities(connection: Connection, server: str) -> Abilities:
    """What there is, after making what may be made."""
    found = {}
    for extension in SCRIPTS:
        found[extension] = await _is_ready(connection, extension) or await _made(
            connection, extension, server
        )
    return Abilities(trigrams=found[TRIGRAMS], vectors=found[VECTORS])


async def _is_ready(connection: Connection, extension: str) -> bool:
    return bool((await _ask(connection, extension)).ready)


async def _made(connection: Connection, extension: str, server: str) -> bool:
    """Whether the extension is there and used, now that we have tried."""
    asked = await _ask(connection, extension)
    if asked.maker is None or not (asked.schema or asked.may_create):
        log.info("%s: %s is not used: %s", server, extension, _reason(asked.available))
        return False
    try:
        async with connection.transaction():
            await connection.execute(LOCK_SCHEMA)
            await _make(connection, extension)
    except Error as error:  # whatever the server's administrators have against it: it is not needed
        log.info("%s: %s is not used: %s", server, extension, error.diag.message_primary)
        return False
    return True


def _reason(available: bool) -> str:
    return "this role may not create it" if available else "the server does not have it"


async def _make(connection: Connection, extension: str) -> None:
    await connection.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}".encode())
    asked = await _ask(connection, extension)
    if not asked.ready:  # another process may have been first
        # What we make belongs to the role that made the rest, also when a superuser happens to open first.
        await connection.execute(f"SET LOCAL ROLE {asked.maker}".encode())
        script = SCRIPTS[extension].replace("{extension}", str(asked.schema))
        await connection.execute(script.encode())


async def _ask(connection: Connection, extension: str) -> Asked:
    async with connection.cursor(row_factory=class_row(Asked)) as cursor:
        await cursor.execute(SQL["extension"], {"name": extension})
        found = await cursor.fetchone()
        assert found is not None, "the question always has an answer"
        return found
