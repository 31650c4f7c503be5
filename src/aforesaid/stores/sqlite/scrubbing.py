"""Remove deleted text from the database file and from the log beside it.

`secure_delete` (see `connections`) overwrites a deleted cell in its page. The page as it was stays in the
write-ahead log until a checkpoint copies the log into the file and truncates it: `Scrubber` does that. Copies
that SQLite made of the cell stay in unused bytes of other pages, which `unused_space` zeroes. A reader of an
old state, in this process or another, keeps the log for as long as it reads; so the scrubber waits, within
bounds, and reports when it could not be done.
"""

import contextlib
import os
import threading
import time
from itertools import count

import apsw

from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE, translated
from aforesaid.stores.sqlite.unused_space import PageFile

SQL = queries(PACKAGE)

AT_ONCE_SECONDS = 0.2
"""How long a plain deletion waits for readers. What it cannot do, the next one, the sweep or closing does."""
PATIENT_SECONDS = 10.0
"""How long an erasure waits."""


AT_ONCE_BYTES = 64 << 20
"""How large a file may be for a plain deletion to search it for unused bytes. The sweep searches any file."""
LEAST_ATTEMPTS = 10
"""How often the log is emptied again, at least, because another connection wrote right after it was."""


class Scrubber:
    """Cleans one file. Callers who come at the same time share one run."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._asked = 0
        self._answered = 0
        self.is_clean = True
        """Whether the last run emptied the log and searched the file."""

    def scrub(self, *, seconds: float, most_bytes: int | None = None) -> bool:
        """Empty the log and clear the file; False when a reader prevents it. Blocks: call it off the loop.

        A file that is larger than `most_bytes` is not searched for unused bytes: `is_clean` says so.
        """
        with self._counting:
            self._asked += 1
            mine = self._asked
        with self._turn:
            if self._answered < mine or not self.is_clean:
                with self._counting:
                    upto = self._asked
                self.is_clean = _cleaned(self._path, seconds, most_bytes)
                self._answered = upto
            return self.is_clean


def _cleaned(path: str, seconds: float, most_bytes: int | None) -> bool:
    with translated(path), contextlib.closing(_existing(path)) as connection:
        connection.set_busy_timeout(int(seconds * 1000))
        try:
            if not _emptied(connection):
                return False
            with contextlib.closing(PageFile(path)) as file:
                if most_bytes is not None and file.size > most_bytes:
                    return False
                dirty = file.dirty_pages()
                return not dirty or _cleared(connection, file, dirty, seconds)
        except apsw.BusyError:
            return False


def _cleared(connection: apsw.Connection, file: PageFile, dirty: list[int], seconds: float) -> bool:
    """Clear the pages in a moment in which all of the log is in the file; False when none came."""
    deadline = time.monotonic() + seconds
    for attempt in count(1):
        if not _emptied(connection):
            return False
        if _cleared_under_lock(connection, file, dirty):
            _emptied(connection)
            return True
        if attempt >= LEAST_ATTEMPTS and time.monotonic() > deadline:
            break
    return False


def _cleared_under_lock(connection: apsw.Connection, file: PageFile, dirty: list[int]) -> bool:
    """Clear the pages, unless another connection wrote since the log was emptied."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _size_of(f"{connection.filename}-wal"):
            return False
        for number in dirty:
            file.clear(number)
        file.sync()
        # Any commit makes every other connection drop the pages that it has in memory: written again, they
        # would bring the old bytes back.
        connection.execute(SQL["touch_index_residue"])
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _emptied(connection: apsw.Connection) -> bool:
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    return not busy


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _existing(path: str) -> apsw.Connection:
    """A connection that does not create the file: one that was removed must not come back empty."""
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
