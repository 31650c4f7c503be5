"""Writing the index for searching, in the transaction that stores the messages. Below: `search.analysis`.

A turn's terms go into a small table first, which costs little; every `FRESH_MOST` messages all that is
there goes into the full-text index, which takes many at a time for not much more than one. Searching reads
both. What leaves the log leaves the index by foreign keys and triggers, whoever deletes it. Above: `store`.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import apsw

from recollect.clock import from_micros
from recollect.errors import StoreDamaged
from recollect.messages import Message
from recollect.search.analysis import indexed_terms
from recollect.stores.sql_files import queries
from recollect.stores.sqlite.connections import PACKAGE
from recollect.wire import decode_message

SQL = queries(PACKAGE)

FRESH_MOST = 64
"""Messages that wait for the index. More make writing cheaper, and searching dearer."""
MERGED_PAGES = 64
"""Pages of the index that one step writes anew: some milliseconds."""
REINDEX_BATCH = 200
"""Messages that are analysed in one go, so that turns get in between."""


class Written(NamedTuple):
    """A message that was stored, its time set, and its key."""

    key: int
    message: Message


def tag_of(owner: str) -> int:
    """What stands for an owner in the index: 60 bits of a digest."""
    return int.from_bytes(sha256(owner.encode()).digest()[:8]) >> 4


class Indexer:
    """Fills the index on the writing thread. It counts what waits by itself; others may write as well."""

    def __init__(self) -> None:
        self._fresh = FRESH_MOST  # unknown yet: the first turn clears away what an earlier process left

    def add(self, db: apsw.Connection, tag: int, conversation: int, written: Sequence[Written]) -> None:
        """Analyse what was stored in a conversation."""
        rows = [_row(tag, conversation, one) for one in written]
        if len(rows) > FRESH_MOST:
            db.executemany(SQL["insert_indexed"], rows)
            return
        db.execute(_insert_fresh(len(rows)), [value for row in rows for value in row])
        self._fresh += len(rows)
        if self._fresh >= FRESH_MOST:
            self.flush(db)

    def flush(self, db: apsw.Connection) -> None:
        """Into the index with all that waits."""
        db.execute(SQL["index_fresh_terms"])
        db.execute(SQL["delete_fresh_terms"])
        self._fresh = 0


class Squeeze:
    """Writes the full-text index anew in bounded steps, so that what was deleted leaves the file.

    A deletion only marks: to take each term out of its place at once would cost twenty times as much.
    """

    def __init__(self) -> None:
        self._deleted = 0

    def step(self, db: apsw.Connection) -> bool:
        """One step, on the writing thread; whether there is more to do."""
        pages = MERGED_PAGES
        if not self._deleted:
            self._deleted = count_of(db, "index_residue")
            if not self._deleted:
                return False
            pages = -MERGED_PAGES
        before = db.total_changes()
        db.execute(SQL["write_index_anew"], (pages,))
        if db.total_changes() - before >= 2:
            return True
        db.execute(SQL["settle_index_residue"], (self._deleted,))
        return False


def count_of(db: apsw.Connection, query: str) -> int:
    row: Any = db.execute(SQL[query]).fetchone()
    return int(row[0])


class Cursor(NamedTuple):
    """How far a search for messages that nobody analysed has come: a conversation, and a position in it."""

    conversation: int = 0
    owner: str = ""
    at: int = -(2**63)
    sequence: int = 0


class Backlog(NamedTuple):
    """Some messages that nobody analysed, with their terms and bodies, and where to go on."""

    rows: list[tuple[Any, ...]]
    next: Cursor


def backlog(db: apsw.Connection, cursor: Cursor) -> Backlog | None:
    """The next messages that nobody analysed; None after the last conversation. Bounded; reads only."""
    values = (cursor.conversation, cursor.at, cursor.sequence, REINDEX_BATCH)
    found: list[Any] = db.execute(SQL["not_indexed_messages"], values).fetchall()
    if found:
        tag = tag_of(cursor.owner)
        rows = [
            (*_row(tag, cursor.conversation, Written(key, _readable(body, at))), body)
            for key, at, _, body in found
        ]
        _, at, sequence, _ = found[-1]
        return Backlog(rows, cursor._replace(at=at, sequence=sequence))
    following: Any = db.execute(SQL["not_indexed_conversations"], (cursor.conversation,)).fetchone()
    return Backlog([], Cursor(*following)) if following else None


def index_backlog(db: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
    """Index what was found, unless it changed since; returns how many messages."""
    before = db.total_changes()
    db.executemany(SQL["insert_if_not_indexed"], rows)
    return len(rows) if db.total_changes() > before else 0


def _readable(body: str, at: int) -> Message:
    """The message with its time. One that cannot be read has no terms, as one of the system has none."""
    try:
        message = decode_message(body)
    except StoreDamaged:
        return Message(role="system", content="")
    return message if message.timestamp else message.with_(timestamp=from_micros(at))


def _row(tag: int, conversation: int, written: Written) -> tuple[Any, ...]:
    terms = indexed_terms(written.message)
    return written.key, conversation, tag, written.message.role, len(terms), " ".join(terms)


@cache
def _insert_fresh(count: int) -> str:
    """The statement that stores the terms of so many messages."""
    one = SQL["insert_fresh_terms"]
    values = one[one.index("(?") :]
    return one + f", {values}" * (count - 1)
