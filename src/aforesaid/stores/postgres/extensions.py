"""Optional extensions of the server: `pg_trgm` and `vector`.

Without them, the store works too, some of it more slowly. A role with CREATE on the database may create
`pg_trgm`; `vector` mostly needs a superuser.
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
    """Optional abilities of a database."""

    trigrams: bool = False
    """Trigram indexes of subjects and client names, for roles without row-level security."""
    vectors: bool = False
    """The server compares vectors; see `contracts.Nearest`."""


class ExtensionState(Struct, frozen=True):
    """The state of an extension and of our objects that use it."""

    available: bool
    schema: str | None
    """The extension's schema, quoted; None if it is not installed."""
    may_create: bool
    maker: str | None
    """The role that owns our schema, quoted; None if this role may not act as it."""
    ready: bool
    """Whether our objects exist and this role may use them."""


async def find_abilities(connection: Connection, server: str) -> Abilities:
    """Return the abilities, after creating what this role may create."""
    found = {}
    for extension in SCRIPTS:
        found[extension] = await _is_ready(connection, extension) or await _create_if_allowed(
            connection, extension, server
        )
    return Abilities(trigrams=found[TRIGRAMS], vectors=found[VECTORS])


async def _is_ready(connection: Connection, extension: str) -> bool:
    return bool((await _extension_state(connection, extension)).ready)


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
    state = await _extension_state(connection, extension)
    if not state.ready:  # another process may have created it
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
