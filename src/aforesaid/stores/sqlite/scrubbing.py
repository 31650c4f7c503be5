"""Remove deleted text from the database file and its write-ahead log.

`secure_delete` (see `connections`) overwrites a deleted cell in its page. The old page stays in the
write-ahead log until a checkpoint copies the log into the file and truncates it; `Scrubber` does that. Copies
of the cell stay in unused bytes of other pages; `unused_space` zeroes them. A reader of an old snapshot, in
any process, keeps the log until it ends. So the scrubber waits for readers, up to a limit, and reports
failure.
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

DELETION_WAIT_SECONDS = 0.2
"""How long a plain deletion waits for readers. The next deletion, the sweep or `close` completes what it
could not do."""
ERASURE_WAIT_SECONDS = 10.0
"""How long an erasure waits."""


DELETION_MAX_BYTES = 64 << 20
"""The largest file that a plain deletion searches for unused bytes. The sweep searches any file."""
MIN_ATTEMPTS = 10
"""The minimum number of attempts to find the log still empty after a checkpoint."""


class Scrubber:
    """Scrubs one file. Concurrent callers share one run."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._run_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._requested = 0
        self._completed = 0
        self.is_clean = True
        """Whether the last run emptied the log and searched the file."""

    def scrub(self, *, seconds: float, most_bytes: int | None = None) -> bool:
        """Empty the log and clear the file; return False if a reader prevents it. Blocks: call it on a
        thread.

        A file larger than `most_bytes` is not searched for unused bytes; `is_clean` is False then.
        """
        with self._count_lock:
            self._requested += 1
            mine = self._requested
        with self._run_lock:
            if self._completed < mine or not self.is_clean:
                with self._count_lock:
                    upto = self._requested
                self.is_clean = _clean(self._path, seconds, most_bytes)
                self._completed = upto
            return self.is_clean


def _clean(path: str, seconds: float, most_bytes: int | None) -> bool:
    with translated(path), contextlib.closing(_connect_existing(path)) as connection:
        connection.set_busy_timeout(int(seconds * 1000))
        try:
            if not _checkpoint(connection):
                return False
            with contextlib.closing(PageFile(path)) as file:
                if most_bytes is not None and file.size > most_bytes:
                    return False
                dirty = file.dirty_pages()
                return not dirty or _clear_pages(connection, file, dirty, seconds)
        except apsw.BusyError:
            return False


def _clear_pages(connection: apsw.Connection, file: PageFile, dirty: list[int], seconds: float) -> bool:
    """Clear the pages while the log is empty; return False if that never happened."""
    deadline = time.monotonic() + seconds
    for attempt in count(1):
        if not _checkpoint(connection):
            return False
        if _clear_locked(connection, file, dirty):
            _checkpoint(connection)
            return True
        if attempt >= MIN_ATTEMPTS and time.monotonic() > deadline:
            break
    return False


def _clear_locked(connection: apsw.Connection, file: PageFile, dirty: list[int]) -> bool:
    """Clear the pages, unless another connection wrote since the checkpoint."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _size_of(f"{connection.filename}-wal"):
            return False
        for number in dirty:
            file.clear(number)
        file.sync()
        # Any commit makes all other connections drop their cached pages. Written back, these would restore
        # the old bytes.
        connection.execute(SQL["touch_index_residue"])
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _checkpoint(connection: apsw.Connection) -> bool:
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    return not busy


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _connect_existing(path: str) -> apsw.Connection:
    """Connect without creating the file: a removed file must not come back empty."""
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
