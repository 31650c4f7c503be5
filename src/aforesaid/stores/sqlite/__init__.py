"""The SQLite store, the embedded default: one file, many tasks, many processes.

- `database` opens and closes the file and its threads; `backend` serves all owners.
- `store` is one owner's view.
- `workers` runs reads and commits writes on threads.
- `logs` appends turns; `rows` converts rows to values and back.
- `connections` opens and checks the file.
- `search` writes and reads the full-text index; `snapshots` reads what a context needs.
- `scrubbing` removes deleted text from the file.

The SQL is in `.sql` files.
"""

from aforesaid.errors import InvalidSetting
from aforesaid.model.clock import Clock
from aforesaid.stores._arguments import Address
from aforesaid.stores.sqlite.backend import SQLiteBackend
from aforesaid.stores.sqlite.connections import check_lock_timeout

__all__ = ["SQLiteBackend", "backend"]


def backend(address: Address, clock: Clock) -> SQLiteBackend:
    """Open `sqlite:///path/to.db`. Options:

    - `?synchronous=normal` trades power-cut safety for speed.
    - `?search=off` writes no index.
    - `?lock_timeout=5` is how many seconds a call waits for the locks of other processes.

    `sqlite:///memory.db` is relative to the working folder, `sqlite:////var/memory.db` is absolute.
    """
    path = address.path.removeprefix("/")
    if address.host:
        raise _refused(address, f"{address.host!r} is read as the name of a machine")
    if not path or path == ":memory:":
        raise _refused(address, "it names no file; for nothing on disk use memory://")
    if "#" in address.url:
        raise _refused(address, "a # in a path is written %23")
    options = address.take(synchronous=str.lower, search=_switch, lock_timeout=_seconds)
    return SQLiteBackend(path, clock=clock, **options)  # type: ignore[arg-type]


def _switch(text: str) -> bool:
    return {"on": True, "off": False}[text.lower()]


def _seconds(text: str) -> float:
    return check_lock_timeout(float(text))


def _refused(address: Address, reason: str) -> InvalidSetting:
    return InvalidSetting(
        f"{reason}; a sqlite: URL is sqlite:///relative.db or sqlite:////absolute/path.db",
        field="url",
        value=address.url,
    )
