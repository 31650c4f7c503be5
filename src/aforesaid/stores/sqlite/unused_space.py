"""Zero the unused bytes of b-tree pages in the database file.

`secure_delete` overwrites a deleted cell, but not the copies that SQLite makes: when it distributes the
cells of neighbouring pages anew, the old bytes stay between the cell pointers and the first cell. No SQL
statement reaches them short of VACUUM, which writes the whole file. So this module finds these bytes and
zeroes them in the file, as SQLite would have. They carry no data, so a crash on the way harms nothing.

Nothing else may write the file meanwhile: `scrubbing` holds SQLite's write lock, and the log beside the file
is empty, so there is nothing that a checkpoint could copy. The file is opened through SQLite's file layer:
closing a descriptor of ours would release the locks of the whole process.
"""

import os
from collections.abc import Iterator

import apsw

from aforesaid.errors import StoreUnavailable

_BTREE_HEADER = {2: 12, 5: 12, 10: 8, 13: 8}
"""The types of b-tree pages, and how long their headers are."""
_MOST_PAGES = 2 * 2**24
"""Other pages begin with a page number. In a file with fewer pages than this, its first byte is 0 or 1, so
that none of them can be taken for a b-tree page."""
_BLOCK = 1 << 20
_FILE_HEADER = 100

Region = tuple[int, int]
"""From an offset in a page up to another."""


class PageFile:
    """The database file, page by page."""

    def __init__(self, path: str) -> None:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE
        # SQLite's file layer follows no link.
        self._file = apsw.VFSFile("", os.path.realpath(path), [flags, 0])
        header = self._file.xRead(_FILE_HEADER, 0)
        size = int.from_bytes(header[16:18])
        self._page_size = 65536 if size == 1 else size
        self._usable = self._page_size - header[20]

    @property
    def size(self) -> int:
        return self._file.xFileSize()

    def dirty_pages(self) -> list[int]:
        """The pages with something left in unused bytes. Needs no lock: a page may change right after."""
        count = self.size // self._page_size
        if count >= _MOST_PAGES:
            raise StoreUnavailable(f"unused bytes are not found in a file of {count} pages: run VACUUM")
        return [number for number, page in self._pages(count) if self._dirty_regions(page, number)]

    def clear(self, number: int) -> None:
        """Zero the unused bytes of a page, as it is now. The caller locks out writers."""
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
        """The unused parts of a page that are not zero."""
        regions = unused_regions(page, self._usable, _FILE_HEADER if number == 1 else 0)
        return [(start, end) for start, end in regions if bytes(page[start:end]).strip(b"\0")]


def unused_regions(page: memoryview, usable: int, at: int = 0) -> list[Region]:
    """The unused parts of a b-tree page, whose header is at `at`; none of other pages and damaged ones."""
    if len(page) < usable or page[at] not in _BTREE_HEADER:
        return []
    begin = at + _BTREE_HEADER[page[at]] + 2 * _number(page, at + 3)
    end = _number(page, at + 5) or 65536
    blocks = _free_blocks(page, _number(page, at + 1), end, usable)
    if not begin <= end <= usable or blocks is None:
        return []
    return [(begin, end), *blocks]


def _free_blocks(page: memoryview, block: int, least: int, usable: int) -> list[Region] | None:
    """The insides of the free blocks, which begin with their own pointers; None when the chain is damaged."""
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
