"""Writing the index for searching. Below: `search.analysis`. Above: `store`, `searching`.

A message is findable as soon as it is stored: what comes after the last message in the index waits to be
analysed, and a search reads it from the log. Each time `WAITING_MOST` messages have come, they go into the
index together, in the transaction of the turn that makes up the number: FTS5 takes many for not much more
than one. What leaves the log leaves the index by foreign keys and triggers, whoever deletes it.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import apsw
from msgspec.structs import force_setattr

from recollect.clock import from_micros
from recollect.errors import StoreDamaged
from recollect.messages import SEALED, Role
from recollect.search.analysis import indexed_terms
from recollect.stores.sql_files import queries
from recollect.stores.sqlite.connections import PACKAGE
from recollect.wire import decode_message

SQL = queries(PACKAGE)

WAITING_MOST = 64
"""Messages that wait for the index. More make writing cheaper, and searching dearer."""
INDEXED_AT_ONCE = 500
"""Messages that are taken into memory to be indexed."""
MERGED_PAGES = 64
"""Pages of the index that one step writes anew: some milliseconds."""
REINDEX_BATCH = 200
"""Messages that are analysed in one go, so that turns get in between."""


@lru_cache(maxsize=1024)
def tag_of(owner: str) -> int:
    """What stands for an owner in the index: 60 bits of a digest."""
    return int.from_bytes(sha256(owner.encode()).digest()[:8]) >> 4


class Indexer:
    """Fills the index on the writing thread. It counts what waits by itself; others may write as well."""

    def __init__(self) -> None:
        self._waiting = WAITING_MOST  # unknown yet: the first turn takes in what an earlier process left

    def wrote(self, db: apsw.Connection, count: int) -> None:
        """So many messages were stored: once in a while, all that wait are indexed."""
        self._waiting += count
        if self._waiting >= WAITING_MOST:
            self._waiting = 0
            while index_waiting(db, INDEXED_AT_ONCE) == INDEXED_AT_ONCE:
                pass

    def replaced(self, db: apsw.Connection, row: tuple[Any, ...]) -> None:
        """A message in the midst of the others says something else; the trigger has taken it out."""
        self._waiting = WAITING_MOST
        self.wrote(db, 0)  # first those that wait, for rows are added in order
        index_backlog(db, [row])


def index_waiting(db: apsw.Connection, most: int) -> int:
    """Index the oldest messages that wait; returns how many there were."""
    found: list[Any] = db.execute(SQL["waiting_messages"], (most,)).fetchall()
    rows = [
        row_of(tag_of(owner), conversation, key, at, sequence, body)
        for key, conversation, owner, at, sequence, body in found
    ]
    db.executemany(SQL["insert_indexed"], rows)
    return len(rows)


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
    """The next messages that nobody analysed; None after the last conversation. Bounded; reads only.

    For those in the midst of others: the ones at the end wait, and are indexed in order, before.
    """
    values = (cursor.conversation, cursor.at, cursor.sequence, REINDEX_BATCH)
    found: list[Any] = db.execute(SQL["not_indexed_messages"], values).fetchall()
    if found:
        tag = tag_of(cursor.owner)
        rows = [
            (*row_of(tag, cursor.conversation, key, at, sequence, body), body)
            for key, at, sequence, body in found
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


def row_of(tag: int, conversation: int, key: int, at: int, sequence: int, body: str) -> tuple[Any, ...]:
    """A message as the index keeps it."""
    role, terms = analysed(body, at)
    return key, conversation, tag, at, sequence, role, len(terms), " ".join(terms)


def analysed(body: str, at: int) -> tuple[Role, list[str]]:
    """Who speaks, and the terms. A message that cannot be read, or that is sealed, has none."""
    try:
        message = decode_message(body)
    except StoreDamaged:
        return "system", []
    if message.dialect == SEALED:
        return message.role, []
    if message.timestamp is None:
        force_setattr(message, "timestamp", from_micros(at))
    return message.role, indexed_terms(message)
