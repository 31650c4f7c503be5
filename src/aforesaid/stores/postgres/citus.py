"""Spreading the tables over several machines with Citus, by owner.

Every key, join and foreign key of the schema carries the owner, so each owner's rows end up on one
machine together. Citus could not be had where this was written: the statements follow its documentation
and have not been run against it. What is known to need care there is said in `distribute.sql`.
"""

from psycopg.rows import tuple_row

from aforesaid.errors import StoreForeign
from aforesaid.stores._sql_files import sql_file
from aforesaid.stores.postgres.connections import PACKAGE, Connection, server_name, translated

SCRIPT = sql_file(PACKAGE, "distribute.sql").encode()


async def distribute(connection: Connection) -> None:
    """Make the tables of an up-to-date schema distributed tables, in one transaction.

    Run it as the role that made the schema, once, while nobody writes. Raises `StoreForeign` when the
    database has no Citus, or no Aforesaid.
    """
    server = server_name(connection.info.dsn)
    with translated(server):
        async with connection.transaction():
            if not await _holds(connection, "SELECT 1 FROM pg_extension WHERE extname = 'citus'"):
                raise StoreForeign(
                    f"{server} has no Citus: install it on every node, then CREATE EXTENSION citus"
                )
            if not await _holds(connection, "SELECT to_regclass('aforesaid.migrations') IS NOT NULL"):
                raise StoreForeign(
                    f"{server} has no Aforesaid schema yet: open it once before distributing it"
                )
            await connection.execute(SCRIPT)


async def _holds(connection: Connection, sql: str) -> bool:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(sql.encode())
        found = await cursor.fetchone()
    return bool(found and found[0])
