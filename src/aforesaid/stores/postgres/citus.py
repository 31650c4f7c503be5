"""Distribute the tables with Citus, by owner.

Every key, join and foreign key of the schema contains the owner, so all rows of an owner are on one node. The
statements follow the documentation of Citus and have not been run against it. `distribute.sql` lists the
known limitations.
"""

from psycopg.rows import tuple_row

from aforesaid.errors import StoreForeign
from aforesaid.stores._sql_files import sql_file
from aforesaid.stores.postgres.connections import PACKAGE, Connection, server_name, translated

SCRIPT = sql_file(PACKAGE, "distribute.sql").encode()


async def distribute(connection: Connection) -> None:
    """Convert the tables of an up-to-date schema to distributed tables, in one transaction.

    Run it once, as the role that created the schema, while there are no writes. Raise `StoreForeign` if the
    database lacks Citus or the schema.
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
