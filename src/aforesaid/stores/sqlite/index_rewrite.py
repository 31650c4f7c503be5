"""Rewrite the full-text index in bounded steps, so that deleted terms leave the file.

FTS5 marks a deletion by a second entry with the same term. Only a merge into the oldest segment drops both
entries, and FTS5 recognises the oldest segment by its level: the last one. FTS5 also moves small segments to
lower levels and never removes a level. A merge below empty levels therefore keeps deleted terms, even if it
leaves a single segment, and later merges skip a single segment. So this module reads the levels before it
merges: a pass counts only if its output is on the last level; any other pass is followed by one more.

Two additional documents keep the levels apart. `_PADDING` makes every merged segment longer than one page.
`_MARK` adds a segment of one page on level 0, which is too short for FTS5 to move the merged segment there.
Neither matches a search, because no owner has their terms.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import apsw

from aforesaid.errors import StoreDamaged
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE

SQL = queries(PACKAGE)

MERGED_PAGES = 64
"""Index pages written by one step: some milliseconds."""
MAX_PASSES = 8
"""Passes before a rewrite gives up. Two are enough unless large segments arrive during each of them."""

_MARK_ROW, _PADDING_ROW = -1, -2
_MARK = "zmark"
_PADDING = [f"z{sha256(b'%d' % number).hexdigest()}" for number in range(160)]
"""Ten kilobytes that do not compress: more than two pages of FTS5. Terms of owners begin with a hex digit."""
_COUNT = 0xFFFFFFFF
"""The bits of `index_residue` that count deletions. The higher bits count rewrites. So a rewrite detects
deletions, and rewrites by other processes, since it began."""


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
