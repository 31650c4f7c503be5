"""Zero the unused bytes of b-tree pages in the database file.

`secure_delete` overwrites a deleted cell, but not its copies: when SQLite redistributes the cells of
neighbouring pages, old bytes remain between the cell pointers and the first cell. Only VACUUM clears them, by
writing the whole file. So this module finds these bytes and zeroes them in the file, as SQLite would have.
They contain no data, so a crash does no harm.

No other connection may write meanwhile: `scrubbing` holds SQLite's write lock, and the write-ahead log is
empty, so no checkpoint can copy anything. The file is opened through SQLite's file layer, because closing a
separate descriptor would release the locks of the whole process.
"""

import os
from collections.abc import Iterator

import apsw

from aforesaid.errors import StoreUnavailable

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
    """The database file, page by page."""

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
