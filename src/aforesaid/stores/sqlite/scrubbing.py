"""Remove deleted text from the database file and its write-ahead log.

`secure_delete` (see `connections`) overwrites a deleted cell in its page, but two copies remain:

- The old page stays in the write-ahead log until a checkpoint copies the log into the file and truncates it.
  `Scrubber` does that. A reader of an old snapshot, in any process, keeps the log until it ends. So the
  scrubber waits for readers, up to a limit, and reports failure.
- When SQLite redistributes the cells of neighbouring pages, old bytes remain between the cell pointers and
  the first cell. Only VACUUM clears them, by writing the whole file. `PageFile` finds these bytes and zeroes
  them in the file, as SQLite would have. They contain no data, so a crash does no harm.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from itertools import count

import apsw

from aforesaid.errors import StoreUnavailable
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE, translated

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
            # A run that began after this request covers it.
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
                # Search without a lock, which can take long, then clear the few pages found under the write
                # lock.
                dirty = file.dirty_pages()
                return not dirty or _clear_pages(connection, file, dirty, seconds)
        except apsw.BusyError:
            return False


def _clear_pages(connection: apsw.Connection, file: "PageFile", dirty: list[int], seconds: float) -> bool:
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


def _clear_locked(connection: apsw.Connection, file: "PageFile", dirty: list[int]) -> bool:
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


# Unused bytes

_BTREE_HEADER = {2: 12, 5: 12, 10: 8, 13: 8}
"""B-tree page type → header length."""
_MOST_PAGES = 2 * 2**24
"""Other pages begin with a page number. In a file with fewer pages than this, its first byte is 0 or 1,
which is not a b-tree page type."""
_BLOCK = 1 << 20
_FILE_HEADER = 100

Region = tuple[int, int]
"""Start and end offset in a page."""


class PageFile:
    """The database file, page by page.

    No other connection may write meanwhile: `_clear_locked` holds the write lock, and the write-ahead log
    is empty, so no checkpoint can copy anything. The file is opened through SQLite's file layer, because
    closing a separate descriptor would release the locks of the whole process.
    """

    def __init__(self, path: str) -> None:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE
        # SQLite's file layer does not follow links.
        self._file = apsw.VFSFile("", os.path.realpath(path), [flags, 0])
        header = self._file.xRead(_FILE_HEADER, 0)
        size = int.from_bytes(header[16:18])
        self._page_size = 65536 if size == 1 else size
        self._usable = self._page_size - header[20]

    @property
    def size(self) -> int:
        return self._file.xFileSize()

    def dirty_pages(self) -> list[int]:
        """Return the pages with non-zero unused bytes. Needs no lock, so a page may change right
        afterwards."""
        count = self.size // self._page_size
        if count >= _MOST_PAGES:
            raise StoreUnavailable(f"unused bytes are not found in a file of {count} pages: run VACUUM")
        return [number for number, page in self._pages(count) if self._dirty_regions(page, number)]

    def clear(self, number: int) -> None:
        """Zero the unused bytes of a page. The caller locks out writers."""
        offset = (number - 1) * self._page_size
        page = memoryview(self._file.xRead(self._page_size, offset))
        for start, end in self._dirty_regions(page, number):
            self._file.xWrite(bytes(end - start), offset + start)

    def sync(self) -> None:
        self._file.xSync(apsw.SQLITE_SYNC_NORMAL)

    def close(self) -> None:
        self._file.xClose()

    def _pages(self, count: int) -> Iterator[tuple[int, memoryview]]:
        at_once = max(_BLOCK // self._page_size, 1)
        for first in range(1, count + 1, at_once):
            length = min(at_once, count + 1 - first) * self._page_size
            block = memoryview(self._file.xRead(length, (first - 1) * self._page_size))
            for start in range(0, len(block), self._page_size):
                yield first + start // self._page_size, block[start : start + self._page_size]

    def _dirty_regions(self, page: memoryview, number: int) -> list[Region]:
        """Return the unused regions of a page that are not zero."""
        regions = unused_regions(page, self._usable, _FILE_HEADER if number == 1 else 0)
        return [(start, end) for start, end in regions if bytes(page[start:end]).strip(b"\0")]


def unused_regions(page: memoryview, usable: int, at: int = 0) -> list[Region]:
    """Return the unused regions of a b-tree page with its header at `at`; none for other or damaged pages."""
    if len(page) < usable or page[at] not in _BTREE_HEADER:
        return []
    begin = at + _BTREE_HEADER[page[at]] + 2 * _number(page, at + 3)
    end = _number(page, at + 5) or 65536
    blocks = _free_blocks(page, _number(page, at + 1), end, usable)
    if not begin <= end <= usable or blocks is None:
        return []
    return [(begin, end), *blocks]


def _free_blocks(page: memoryview, block: int, least: int, usable: int) -> list[Region] | None:
    """Return the contents of the free blocks without their pointers; None if the chain is damaged."""
    found: list[Region] = []
    while block:
        if not least <= block <= usable - 4:
            return None
        size = _number(page, block + 2)
        least = block + size
        if size < 4 or least > usable:
            return None
        found.append((block + 4, least))
        block = _number(page, block)
    return found


def _number(page: memoryview, at: int) -> int:
    return page[at] << 8 | page[at + 1]
