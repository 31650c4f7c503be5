"""The SQLite store, the embedded default: one file, many tasks, many processes.

`connections` opens and checks the file, `lanes` runs work on threads, `backend` ties them
together, `store` is one owner's view, `rows` turns rows into values. The SQL is in `.sql` files.
"""

from recollect.clock import Clock
from recollect.errors import InvalidSetting
from recollect.stores.sqlite.backend import SQLiteBackend
from recollect.stores.urls import Address

__all__ = ["SQLiteBackend", "backend"]


def backend(address: Address, clock: Clock) -> SQLiteBackend:
    """Open `sqlite:///path/to.db`, with `?synchronous=normal` to trade power-cut safety for speed.

    `sqlite:///memory.db` is relative to the working folder, `sqlite:////var/memory.db` is absolute.
    """
    path = address.path.removeprefix("/")
    if not path:
        raise InvalidSetting(
            "a sqlite: URL needs a path, as in sqlite:///memory.db; for nothing on disk use memory://",
            field="url",
            value=address.url,
        )
    options = address.take(synchronous=str.lower)
    return SQLiteBackend(path, clock=clock, **options)  # type: ignore[arg-type]
