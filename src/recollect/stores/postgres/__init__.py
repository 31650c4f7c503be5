"""The PostgreSQL store: one database, many services, every row guarded by its owner.

`connections` reaches the server and translates its errors, `schema` brings the database up to date,
`backend` ties them together, `store` is one owner's view, `turns` sorts out what is new in a turn,
`searching` finds messages by their `terms`, `nearness` by their vectors, `extensions` sees what the server
has, `watching` hears of changes, `rows` turns rows into values, `citus` spreads the tables over machines.
The SQL is in `.sql` files. Needs PostgreSQL 15 or later.

Who may see what, once the schema is there: the role that made it, and every role that it admits by
`SELECT recollect.admit(role, owner, service)`. See the comments on that function in `schema.sql`.
"""

from recollect.clock import Clock
from recollect.errors import MissingExtra
from recollect.stores.urls import Address

try:
    import psycopg as _psycopg  # noqa: F401
    import psycopg_pool as _psycopg_pool  # noqa: F401
except ImportError as error:
    raise MissingExtra("the PostgreSQL store", extra="postgres") from error

from recollect.stores.postgres.backend import PostgresBackend
from recollect.stores.postgres.citus import distribute

__all__ = ["PostgresBackend", "backend", "distribute"]


def backend(address: Address, clock: Clock) -> PostgresBackend:
    """Open `postgresql://user@host/database`; everything after `?` is libpq's."""
    return PostgresBackend(address.url, clock=clock)
