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
from hashlib import sha256
from itertools import count
from typing import NamedTuple

import apsw

from aforesaid.errors import StoreDamaged, StoreUnavailable
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE, translated

# Rewrite the full-text index in bounded steps, so that deleted terms leave the file.
#
# FTS5 marks a deletion by a second entry with the same term. Only a merge into the oldest segment drops
# both entries, and FTS5 recognises the oldest segment by its level: the last one. FTS5 also moves small
# segments to lower levels and never removes a level. A merge below empty levels therefore keeps deleted
# terms, even if it leaves a single segment, and later merges skip a single segment. So this module reads
# the levels before it merges: a pass counts only if its output is on the last level; any other pass is
# followed by one more.
#
# Two additional documents keep the levels apart. `_PADDING` makes every merged segment longer than one
# page. `_MARK` adds a segment of one page on level 0, which is too short for FTS5 to move the merged
# segment there. Neither matches a search, because no owner has their terms.


SQL = queries(PACKAGE)

# Index pages written by one step: some milliseconds.
MERGED_PAGES = 64
# Passes before a rewrite gives up. Two are enough unless large segments arrive during each of them.
MAX_PASSES = 8

_MARK_ROW, _PADDING_ROW = -1, -2
_MARK = "zmark"
# Ten kilobytes that do not compress: more than two pages of FTS5. Terms of owners begin with a hex digit.
_PADDING = [f"z{sha256(b'%d' % number).hexdigest()}" for number in range(160)]
# The bits of `index_residue` that count deletions. The higher bits count rewrites. So a rewrite detects
# deletions, and rewrites by other processes, since it began.
_COUNT = 0xFFFFFFFF


class Level(NamedTuple):
    """A level of the index: the number of segments that a merge is reading, and of all segments."""

    merging: int
    segments: int


class Pass(NamedTuple):
    """One merge of everything into one segment."""

    residue: int
    """The value of `index_residue` when it began."""
    is_last: bool
    """Whether its output is on the last level, so that it drops what was deleted."""
    number: int = 1


class IndexRewrite:
    """One rewrite. `step` runs in a transaction that may be rolled back and repeated; call `advance` after
    the commit."""

    def __init__(self) -> None:
        self._pass: Pass | None = None
        self.steps = 0
        self.is_done = False

    def step(self, db: apsw.Connection) -> Pass | None:
        """Write some pages; return the pass that the next step continues, None after the last."""
        if self._pass is None:
            return _begin(db, number=1) if residue_count(db) else None
        before = db.total_changes()
        db.execute(SQL["merge_index"], (MERGED_PAGES,))
        # FTS5 documents this test: a merge that changed fewer than two rows had nothing to do.
        if db.total_changes() - before >= 2:
            return self._pass
        # A deletion during the pass has changed the residue: then it is not settled, and a later rewrite
        # follows.
        if self._pass.is_last:
            db.execute(SQL["settle_index_residue"], (self._pass.residue,))
            return None
        return _begin(db, number=self._pass.number + 1)

    def advance(self, following: Pass | None) -> bool:
        """Take the result of a committed step; return whether there is more to do."""
        self._pass = following
        self.steps += 1
        self.is_done = following is None
        return following is not None and following.number <= MAX_PASSES


def residue_count(db: apsw.Connection) -> int:
    """Return the number of messages removed from the index since its last rewrite."""
    return _residue(db) & _COUNT


def _begin(db: apsw.Connection, *, number: int) -> Pass:
    residue = _residue(db)
    db.execute(SQL["prepare_merging"])
    if db.execute(SQL["has_padding"], (_PADDING[0],)).fetchone() is None:
        db.execute(SQL["insert_terms"], (_PADDING_ROW, " ".join(_PADDING)))
    db.execute(SQL["insert_terms"], (_MARK_ROW, _MARK))
    db.execute(SQL["merge_index"], (0,))  # writes the mark as a segment and merges nothing
    begun = Pass(residue, is_last=merges_into_last(levels_of(db)), number=number)
    # With a negative number FTS5 first assigns all segments to one level, so that it merges all of them.
    db.execute(SQL["merge_index"], (-MERGED_PAGES,))
    return begun


def merges_into_last(levels: list[Level]) -> bool:
    """Return whether a merge of all segments writes to the last level.

    FTS5 merges from a new level above the others, unless all segments are on one level, or all but the output
    of a running merge: then it merges from that level.
    """
    total = sum(level.segments for level in levels)
    for number, (merging, segments) in enumerate(levels):
        if segments and (segments == total or segments == total - 1 == merging):
            return number + 2 >= len(levels)
    return True


def levels_of(db: apsw.Connection) -> list[Level]:
    """Return the levels of the index, from the structure record of FTS5."""
    row = db.execute(SQL["index_structure"]).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise StoreDamaged("the full-text index has no structure record")
    numbers = _varints(row[0][4:])  # after the configuration cookie
    try:
        count, _segments, _writes = next(numbers), next(numbers), next(numbers)
        levels = []
        for _ in range(count):
            level = Level(merging=next(numbers), segments=next(numbers))
            for _ in range(3 * level.segments):  # each segment's id, first page and last page
                next(numbers)
            levels.append(level)
    except StopIteration:
        raise StoreDamaged("the structure record of the full-text index is cut short") from None
    return levels


def _varints(data: bytes) -> Iterator[int]:
    """Decode SQLite's variable-length integers: seven bits in each byte, eight in a ninth."""
    value = length = 0
    for byte in data:
        length += 1
        value = value << 8 | byte if length == 9 else value << 7 | byte & 0x7F
        if byte < 0x80 or length == 9:
            yield value
            value = length = 0


def _residue(db: apsw.Connection) -> int:
    row = db.execute(SQL["index_residue"]).fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreDamaged("the full-text index does not count deletions")
    return row[0]


# How long a plain deletion waits for readers. The next deletion, the sweep or `close` completes what it
# could not do.
DELETION_WAIT_SECONDS = 0.2
# How long an erasure waits.
ERASURE_WAIT_SECONDS = 10.0


# The largest file that a plain deletion searches for unused bytes. The sweep searches any file.
DELETION_MAX_BYTES = 64 << 20
# The minimum number of attempts to find the log still empty after a checkpoint.
MIN_ATTEMPTS = 10


class Scrubber:
    """Scrubs one file. Concurrent callers share one run."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._run_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._requested = 0
        self._completed = 0
        # Whether the last run emptied the log and searched the file.
        self.is_clean = True

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

# B-tree page type → header length.
_BTREE_HEADER = {2: 12, 5: 12, 10: 8, 13: 8}
# Other pages begin with a page number. In a file with fewer pages than this, its first byte is 0 or 1,
# which is not a b-tree page type.
_MOST_PAGES = 2 * 2**24
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
