"""Writing the index for searching. Below: `search.analysis`. Above: `store`, `searching`.

A message is findable as soon as it is stored: what comes after the last message in the index waits to be
analysed, and a search reads it from the log. When some have gathered, and the writing thread has nothing else
to do, they go into the index together: FTS5 takes many for not much more than one, and no turn waits for it.
Where turns come so fast that it never rests, it goes on after them until few enough wait; whoever stores many
at once waits for that, and leaves nothing of it for the turns that follow.
What leaves the log leaves the index by foreign keys and triggers, whoever deletes it.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import apsw
from msgspec.structs import force_setattr

from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import from_micros
from aforesaid.model.messages import SEALED, Role
from aforesaid.model.wire import decode_message
from aforesaid.search.analysis import indexed_terms
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE

SQL = queries(PACKAGE)

Row = tuple[int, int, int, int, int, Role, int, str]
"""A message as the index keeps it: key, conversation, owner's tag, moment, sequence, role, length, terms."""

WORTH_INDEXING = 64
"""Messages that wait before they go into the index. More make writing cheaper, and searching dearer."""
MOST_WAITING = 32_000
"""Messages that may wait while turns come without a pause: a search then takes them in first, in less than a
second."""
TAKEN_WHEN_LATE = 256
"""Messages that go into the index together when too many wait: five milliseconds, for which turns wait."""
REINDEX_BATCH = 200
"""Messages that are analysed in one go, so that turns get in between."""


@lru_cache(maxsize=1024)
def tag_of(owner: str) -> int:
    """What stands for an owner in the index: 60 bits of a digest."""
    return int.from_bytes(sha256(owner.encode()).digest()[:8]) >> 4


class Indexer:
    """Fills the index on the writing thread. It counts what waits by itself; others may write as well."""

    def __init__(self) -> None:
        self.waiting = WORTH_INDEXING  # unknown yet: an earlier process may have left some

    def wrote(self, count: int) -> None:
        """So many messages were stored."""
        self.waiting += count

    @property
    def is_late(self) -> bool:
        """Whether more wait than may: the oldest go into the index now, however many turns wait as well."""
        return self.waiting >= MOST_WAITING

    @property
    def has_work(self) -> bool:
        """Whether as many wait as are worth a transaction."""
        return self.waiting >= WORTH_INDEXING

    def do_some(self, db: apsw.Connection) -> None:
        """Take the oldest that wait into the index."""
        most = TAKEN_WHEN_LATE if self.is_late else WORTH_INDEXING
        done = index_waiting(db, most)
        self.waiting = self.waiting - done if done == most else 0


def index_waiting(db: apsw.Connection, most: int) -> int:
    """Index the oldest messages that wait; returns how many there were."""
    found: list[Any] = db.execute(SQL["waiting_messages"], (most,)).fetchall()
    rows = [
        row_of(tag_of(owner), conversation, key, at, sequence, body)
        for key, conversation, owner, at, sequence, body in found
    ]
    db.executemany(SQL["insert_indexed"], rows)
    _put_terms(db, rows)
    return len(rows)


def index_again(db: apsw.Connection, row: Row, body: str) -> None:
    """A message that says something else has left the index: it goes back, unless it waits there."""
    if row[0] <= count_of(db, "last_indexed"):
        index_backlog(db, [(row, body)])


def too_many_wait(db: apsw.Connection) -> bool:
    """Whether more wait than a search should analyse by itself."""
    return count_of(db, "most_waiting") > 2 * WORTH_INDEXING


def _put_terms(db: apsw.Connection, rows: Sequence[Row]) -> None:
    """What else an indexed message changes: the full-text table, and the counts of its conversation.

    No trigger does this: for each statement of a trigger FTS5 writes down what it has gathered so far.
    """
    spoken = [row for row in rows if row[-1]]
    db.executemany(SQL["insert_terms"], [(row[0], _tagged(row[2], row[-1])) for row in spoken])
    counts: dict[int, list[int]] = {}
    for row in rows:
        count = counts.setdefault(row[1], [0, 0, 0])
        count[0] += 1
        count[1] += row[-2] > 0
        count[2] += row[-2]
    db.executemany(SQL["count_indexed"], [(*count, key) for key, count in counts.items()])


def _tagged(tag: int, terms: str) -> str:
    """The terms with the owner before each, as the full-text table and its trigger have them."""
    owner = f"{tag:015x}"
    return owner + terms.replace(" ", f" {owner}")


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
    """Some messages that nobody analysed, as the index keeps them, with their bodies, and where to go on."""

    rows: list[tuple[Row, bytes]]
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
            (row_of(tag, cursor.conversation, key, at, sequence, body), body)
            for key, at, sequence, body in found
        ]
        _, at, sequence, _ = found[-1]
        return Backlog(rows, cursor._replace(at=at, sequence=sequence))
    following: Any = db.execute(SQL["not_indexed_conversations"], (cursor.conversation,)).fetchone()
    return Backlog([], Cursor(*following)) if following else None


def index_backlog(db: apsw.Connection, rows: Sequence[tuple[Row, bytes | str]]) -> int:
    """Index what was found, unless it changed since; returns how many messages were looked at, if any did."""
    put = []
    for row, body in rows:
        db.execute(SQL["insert_if_not_indexed"], (*row, body))
        if db.changes():
            put.append(row)
    _put_terms(db, put)
    return len(rows) if put else 0


def row_of(tag: int, conversation: int, key: int, at: int, sequence: int, body: bytes | str) -> Row:
    """A message as the index keeps it."""
    role, terms = analysed(body, at)
    return key, conversation, tag, at, sequence, role, len(terms), " ".join(terms)


def analysed(body: bytes | str, at: int) -> tuple[Role, list[str]]:
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
