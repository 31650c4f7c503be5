"""Write the search index.

A stored message is findable at once: a search analyses the messages after the last indexed one itself. When
enough messages wait and the writer is idle, they are indexed in one batch, because FTS5 needs little more
time for many than for one. If the writer is never idle, it indexes after a batch of turns as soon as too many
messages wait. Foreign keys and triggers remove deleted messages from the index.
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
"""An index row: key, conversation, owner's tag, time, sequence, role, length, terms."""

INDEX_BATCH = 64
"""Messages indexed in one batch. A larger batch makes writing cheaper and searching slower."""
MAX_WAITING = 32_000
"""Messages that may wait during continuous writes. A search then indexes them first, in less than a
second."""
OVERDUE_BATCH = 256
"""Messages indexed in one batch when too many wait: five milliseconds, during which turns wait."""
REINDEX_BATCH = 200
"""Messages analysed in one transaction, so that turns can be stored in between."""


@lru_cache(maxsize=1024)
def tag_of(owner: str) -> int:
    """Return the owner's identification in the index: 60 bits of a digest."""
    return int.from_bytes(sha256(owner.encode()).digest()[:8]) >> 4


class Indexer:
    """Background indexing on the writer thread. Counts waiting messages of this process; other processes
    write too."""

    def __init__(self) -> None:
        self.waiting = INDEX_BATCH  # unknown at the start: an earlier process may have left some

    def wrote(self, count: int) -> None:
        """Count stored messages."""
        self.waiting += count

    @property
    def is_overdue(self) -> bool:
        """Whether too many messages wait: index the oldest even while turns wait."""
        return self.waiting >= MAX_WAITING

    @property
    def has_work(self) -> bool:
        """Whether enough messages wait for a batch."""
        return self.waiting >= INDEX_BATCH

    def run_some(self, db: apsw.Connection) -> None:
        """Index the oldest waiting messages."""
        most = OVERDUE_BATCH if self.is_overdue else INDEX_BATCH
        # Other processes write and index too: a batch that is not full shows that nothing waits.
        done = index_waiting(db, most)
        self.waiting = self.waiting - done if done == most else 0


def index_waiting(db: apsw.Connection, most: int) -> int:
    """Index the oldest waiting messages; return their number."""
    # Keys increase with every stored message, so all messages after the last indexed key wait. No list of
    # waiting messages is needed.
    found: list[Any] = db.execute(SQL["waiting_messages"], (most,)).fetchall()
    rows = [
        row_of(tag_of(owner), conversation, key, at, sequence, body)
        for key, conversation, owner, at, sequence, body in found
    ]
    db.executemany(SQL["insert_indexed"], rows)
    _put_terms(db, rows)
    return len(rows)


def index_again(db: apsw.Connection, row: Row, body: str) -> None:
    """Index a replaced message again, unless it is still waiting."""
    if row[0] <= count_of(db, "last_indexed"):
        index_backlog(db, [(row, body)])


def too_many_wait(db: apsw.Connection) -> bool:
    """Return whether more messages wait than a search should analyse itself."""
    return count_of(db, "most_waiting") > 2 * INDEX_BATCH


def _put_terms(db: apsw.Connection, rows: Sequence[Row]) -> None:
    """Update the full-text table and the counts of the conversations.

    A trigger would be slower: FTS5 flushes its buffer at each statement of a trigger.
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
    """Prefix each term with the owner's tag, as in the full-text table and its trigger."""
    owner = f"{tag:015x}"
    return owner + terms.replace(" ", f" {owner}")


def count_of(db: apsw.Connection, query: str) -> int:
    row: Any = db.execute(SQL[query]).fetchone()
    return int(row[0])


class Cursor(NamedTuple):
    """Progress of a search for unindexed messages: a conversation and a position in it."""

    conversation: int = 0
    owner: str = ""
    at: int = -(2**63)
    sequence: int = 0


class Backlog(NamedTuple):
    """Unindexed messages as index rows with bodies, and the cursor for the next ones."""

    rows: list[tuple[Row, bytes]]
    next: Cursor


def backlog(db: apsw.Connection, cursor: Cursor) -> Backlog | None:
    """Return the next unindexed messages; None after the last conversation. Bounded and read-only.

    Finds gaps only: the messages after the last indexed one are indexed in order before.
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
    """Index messages of the backlog that have not changed since; return their number, 0 if all have
    changed."""
    put = []
    for row, body in rows:
        db.execute(SQL["insert_if_not_indexed"], (*row, body))
        if db.changes():
            put.append(row)
    _put_terms(db, put)
    return len(rows) if put else 0


def row_of(tag: int, conversation: int, key: int, at: int, sequence: int, body: bytes | str) -> Row:
    """Return the index row of a message."""
    role, terms = analyse(body, at)
    return key, conversation, tag, at, sequence, role, len(terms), " ".join(terms)


def analyse(body: bytes | str, at: int) -> tuple[Role, list[str]]:
    """Return role and terms. Unreadable and sealed messages have no terms."""
    try:
        message = decode_message(body)
    except StoreDamaged:
        return "system", []
    if message.dialect == SEALED:
        return message.role, []
    if message.timestamp is None:
        force_setattr(message, "timestamp", from_micros(at))
    return message.role, indexed_terms(message)
