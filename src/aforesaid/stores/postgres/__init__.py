"""The PostgreSQL store: one database, many services, rows protected by row-level security per owner.

- `database` is the open database with its pool; `connections` connects and translates the driver's errors.
- `schema` migrates and detects optional extensions.
- `backend` serves all owners; `store` is one owner's part, made of `log`, `documents` and `search`, which
  share an `OwnerConnection`.
- `watch` reports changes; `rows` converts rows to values and back.

The SQL is in `.sql` files. Needs PostgreSQL 15 or later.

Access: the role that created the schema, and every role admitted with `SELECT aforesaid.admit(role, owner,
service)`; see that function in `schema.sql`.
"""

from aforesaid.errors import MissingExtra
from aforesaid.model.clock import Clock
from aforesaid.stores._arguments import Address

try:
    import psycopg as _psycopg  # noqa: F401
    import psycopg_pool as _psycopg_pool  # noqa: F401
except ImportError as error:
    raise MissingExtra("the PostgreSQL store", extra="postgres") from error

from aforesaid.stores.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend", "backend"]


def backend(address: Address, clock: Clock) -> PostgresBackend:
    """Open `postgresql://user@host/database`; libpq interprets the options.

    Behind a transaction pooler, `listen_host` and `listen_port` name the server itself, for notifications.
    """
    return PostgresBackend(address.url, clock=clock)
