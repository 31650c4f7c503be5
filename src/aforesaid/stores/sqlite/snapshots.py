"""What a context is made from, in one step: one transaction, on one reading thread. Above: `store`.

A conversation that goes on is read again with every turn, and nearly all of it was there the turn before. So
what was read of late is remembered beside the rows that it was read from. It cannot be out of date: it is
given only where nobody, in this process or another, has written to the file since, which the engine tells
each connection; or else where the rows are read again, and are the same, byte for byte.
"""

import threading
from collections import OrderedDict
from typing import NamedTuple

import apsw

from aforesaid.contracts import Entry, Listing, LogSnapshot
from aforesaid.model.messages import Message
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite import rows
from aforesaid.stores.sqlite.connections import PACKAGE
from aforesaid.stores.sqlite.documents import Documents

SQL = queries(PACKAGE)

MOST_BYTES = 8 * 1024 * 1024
"""What is remembered, about. What was read longest ago goes first."""
ENTRY_BYTES = 1500
"""What an entry takes besides its words, its row and its place in a window included."""


class Wanted(NamedTuple):
    """Whose conversation is looked at, and how much of it."""

    owner: str
    conversation_id: str
    front: int
    tail: int
    documents: Listing


class _Found(NamedTuple):
    """What the file says."""

    message_count: int
    expires_at: int | None
    front: list[rows.Row]
    tail: list[rows.Row]
    documents: list[rows.Row]
    head: str | None


class _Held(NamedTuple):
    """What was made of rows, and from which."""

    found: _Found
    entries: dict[rows.Row, Entry]
    """Those that can be shared."""
    read_snapshot: LogSnapshot
    can_be_shared: bool
    """Whether the glance may be given to others too: all of its entries can."""
    size: int
    seen_at: dict[int, int]
    """By connection, the version of the file in which it found these rows."""

    def holds(self, db: apsw.Connection, now: int) -> bool:
        """Whether the file is still the one that this connection looked at."""
        ends = self.found.expires_at
        alive = ends is None or ends > now
        return alive and self.can_be_shared and self.seen_at.get(id(db)) == _version(db)


class Recent:
    """Glances of late. Shared by the reading threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Wanted, _Held] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read_snapshot(self, db: apsw.Connection, wanted: Wanted, now: int) -> LogSnapshot | None:
        """What the file says of a conversation, all of it at one moment; None where there is no such one."""
        held = self._held.get(wanted)
        if held is not None and held.holds(db, now):
            return held.read_snapshot
        db.execute("BEGIN")
        try:
            version, found = _version(db), _read(db, wanted, now)
        finally:
            db.execute("COMMIT")
        if found is None:
            return None
        if held is None or held.found != found or not held.can_be_shared:
            held = self._made(wanted, found, {} if held is None else held.entries)
        held.seen_at[id(db)] = version
        return held.read_snapshot

    def _made(self, wanted: Wanted, found: _Found, known: dict[rows.Row, Entry]) -> _Held:
        name = wanted.conversation_id
        entries = {row: known.get(row) or rows.entry(name, row) for row in (*found.front, *found.tail)}
        read_snapshot = LogSnapshot(
            message_count=found.message_count,
            front=[entries[row] for row in found.front],
            tail=[entries[row] for row in found.tail],
            documents=[rows.document(wanted.documents, row) for row in found.documents],
            head=found.head,
        )
        shared = {row: entry for row, entry in entries.items() if _can_be_shared(entry.message)}
        size = sum([ENTRY_BYTES + 2 * len(row[-1]) for row in (*shared, *found.documents)])
        held = _Held(found, shared, read_snapshot, len(shared) == len(entries), size, {})
        self._keep(wanted, held)
        return held

    def _keep(self, wanted: Wanted, held: _Held) -> None:
        with self._lock:
            before = self._held.pop(wanted, None)
            self._held[wanted] = held
            self._size += held.size - (0 if before is None else before.size)
            while self._size > self._most:
                self._size -= self._held.popitem(last=False)[1].size


def _can_be_shared(message: Message) -> bool:
    """Whether whoever is given the message can change nothing in it: not so where its content has parts."""
    return type(message.content) is str and not message.extra


def _version(db: apsw.Connection) -> int:
    """Differs from what it was before when another connection, of any process, has written in between."""
    return int(db.execute("PRAGMA data_version").get)


def _read(db: apsw.Connection, wanted: Wanted, now: int) -> _Found | None:
    named = wanted.owner, wanted.conversation_id, now
    row = db.execute(SQL["get_ends"], named).fetchone()
    if row is None:
        return None
    key, count, expires_at, head = row
    last = db.execute(SQL["tail"], (key, wanted.tail)).fetchall()[::-1]
    if len(last) < wanted.tail:
        first = last[: wanted.front]
    else:
        first = db.execute(SQL["page"], (key, wanted.front, 0)).fetchall() if wanted.front else []
    listing = wanted.documents
    documents = Documents(db, wanted.owner, None).rows(listing) if listing.limit else []
    return _Found(count, expires_at, first, last, documents, head)
