"""The PostgreSQL store: one database, many services, every row guarded by its owner.

`connections` reaches the server and translates its errors, `schema` brings the database up to date,
`backend` ties them together, `store` is one owner's view, `turns` sorts out what is new in a turn,
`searching` finds messages by their `terms`, `nearness` by their vectors, `extensions` sees what the server
has, `watching` hears of changes, `rows` turns rows into values, `citus` spreads the tables over machines.
The SQL is in `.sql` files. Needs PostgreSQL 15 or later.

Who may see what, once the schema is there: the role that made it, and every role that it admits by
`SELECT aforesaid.admit(role, owner, service)`. See the comments on that function in `schema.sql`.
"""

from aforesaid.errors import MissingExtra
from aforesaid.model.clock import Clock
from aforesaid.stores.urls import Address

try:
    import psycopg as _psycopg  # noqa: F401
    import psycopg_pool as _psycopg_pool  # noqa: F401
except ImportError as error:
    raise MissingExtra("the PostgreSQL store", extra="postgres") from error

from aforesaid.stores.postgres.backend import PostgresBackend
from aforesaid.stores.postgres.citus import distribute

__all__ = ["PostgresBackend", "backend", "distribute"]


def backend(address: Address, clock: Clock) -> PostgresBackend:
    """Open `postgresql://user@host/database`; everything after `?` is libpq's."""
    return PostgresBackend(address.url, clock=clock)
