"""Documents, and snapshots: everything a context needs, read in one transaction."""

import threading
from datetime import datetime
from typing import NamedTuple

import apsw

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Document, Entry, Listing, LogSnapshot, Place
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.lineages import decode_lineage
from aforesaid.model.messages import is_immutable
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite import rows
from aforesaid.stores.sqlite.connections import PACKAGE
from aforesaid.stores.sqlite.rows import Row, document

# Documents of an owner or of one conversation, inside a transaction.


SQL = queries(PACKAGE)


class Documents:
    """The documents of a conversation, given its key, or of the owner."""

    def __init__(self, db: apsw.Connection, owner: str, conversation: int | None) -> None:
        self._db = db
        self._owner = owner
        self._conversation = conversation

    def put(self, place: Place, data: bytes, *, now: datetime, expected: int | None) -> Document:
        version = self._version(place)
        place.check_version(version, expected)
        document = place.document(data, version=version + 1, updated_at=now)
        self.restore(place, document)
        return document

    def get(self, place: Place) -> Document | None:
        row = self._db.execute(SQL["get_document"], self._named(place)).fetchone()
        if row is None:
            return None
        version, updated_at, data = row
        return place.document(data, version=version, updated_at=from_micros(updated_at))

    def page(self, listing: Listing) -> list[Document]:
        return [document(listing, row) for row in self.rows(listing)]

    def rows(self, listing: Listing) -> list[Row]:
        values = (*self._mine(), listing.kind, listing.after, listing.limit)
        return self._db.execute(SQL["list_documents"], values).fetchall()

    def kinds(self) -> list[str]:
        return [str(kind) for (kind,) in self._db.execute(SQL["document_kinds"], self._mine()).fetchall()]

    def delete(self, place: Place, *, expected: int | None) -> bool:
        version = self._version(place)
        if not version:
            return False
        place.check_version(version, expected)
        self._db.execute(SQL["delete_document"], self._named(place))
        return True

    def restore(self, place: Place, document: Document) -> None:
        """Store the document unchanged, with its version and time."""
        values = (document.version, to_micros(document.updated_at), document.data)
        self._db.execute(
            SQL["put_document"], (self._owner, self._conversation, place.kind, place.key, *values)
        )

    def _version(self, place: Place) -> int:
        (version,) = self._db.execute(SQL["document_version"], self._named(place)).fetchone() or (0,)
        return int(version)

    def _mine(self) -> tuple[str, int]:
        return self._owner, self._conversation or 0

    def _named(self, place: Place) -> tuple[str, int, str, str]:
        return (*self._mine(), place.kind, place.key)


# Read and cache snapshots: everything a context needs, in one transaction on one reader thread.
#
# A conversation in progress is read again in every turn, mostly unchanged. So snapshots are cached together
# with the rows they were decoded from. A cached snapshot is returned only if SQLite reports no write by any
# connection since, or if the rows, read again, are equal. So it is never stale.


# Approximate size of the cache. The least recently stored snapshots are dropped first.
MAX_BYTES = 8 * 1024 * 1024
# Approximate size of an entry without its text, including its row and its place in a window.
ENTRY_BYTES = 1500


class SnapshotQuery(NamedTuple):
    """The parameters of a snapshot."""

    owner: str
    conversation_id: str
    front: int
    tail: int
    documents: Listing


class _Rows(NamedTuple):
    """Rows of one snapshot."""

    message_count: int
    expires_at: int | None
    front: list[rows.Row]
    tail: list[rows.Row]
    documents: list[rows.Row]
    head: str | None
    lineage: str | None


class _CachedSnapshot(NamedTuple):
    """A cached snapshot with its rows."""

    rows: _Rows
    entries: dict[rows.Row, Entry]
    """Entries with immutable messages."""
    snapshot: LogSnapshot
    is_immutable: bool
    """Whether several callers may get the snapshot: all of its messages are immutable."""
    size: int
    versions: dict[int, int]
    """Connection → file version in which it read these rows."""

    def is_current(self, db: apsw.Connection, now: int) -> bool:
        """Return whether the file is unchanged since this connection read it."""
        expires_at = self.rows.expires_at
        alive = expires_at is None or expires_at > now
        return alive and self.is_immutable and self.versions.get(id(db)) == _version(db)


class SnapshotCache:
    """The cache of snapshots, shared by the reader threads."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._cached: BoundedDict[SnapshotQuery, _CachedSnapshot] = BoundedDict(
            max_bytes, size=lambda cached: cached.size
        )
        self._lock = threading.Lock()

    def read_snapshot(self, db: apsw.Connection, query: SnapshotQuery, now: int) -> LogSnapshot | None:
        """Read a consistent snapshot of a conversation; None if it is missing."""
        cached = self._cached.get(query)
        if cached is not None and cached.is_current(db, now):
            return cached.snapshot
        # One transaction: all queries see the same state. The version is read inside it, so that a later
        # write is never taken for this version.
        db.execute("BEGIN")
        try:
            version, found = _version(db), _read(db, query, now)
        finally:
            db.execute("COMMIT")
        if found is None:
            return None
        # Any write to the file ends the quick check above. Comparing rows is cheaper than decoding them.
        if cached is None or cached.rows != found or not cached.is_immutable:
            cached = self._build(query, found, {} if cached is None else cached.entries)
        cached.versions[id(db)] = version
        return cached.snapshot

    def _build(self, query: SnapshotQuery, found: _Rows, known: dict[rows.Row, Entry]) -> _CachedSnapshot:
        name = query.conversation_id
        # Decode only new rows: most of a conversation is unchanged since the last snapshot.
        entries = {row: known.get(row) or rows.entry(name, row) for row in (*found.front, *found.tail)}
        snapshot = LogSnapshot(
            message_count=found.message_count,
            front=[entries[row] for row in found.front],
            tail=[entries[row] for row in found.tail],
            documents=[rows.document(query.documents, row) for row in found.documents],
            head=found.head,
            lineage=decode_lineage(found.lineage),
        )
        shared = {row: entry for row, entry in entries.items() if is_immutable(entry.message)}
        size = sum([ENTRY_BYTES + 2 * len(row[-1]) for row in (*shared, *found.documents)])
        cached = _CachedSnapshot(found, shared, snapshot, len(shared) == len(entries), size, {})
        with self._lock:
            self._cached[query] = cached
        return cached


def _version(db: apsw.Connection) -> int:
    """Return a number that changes when another connection of any process writes."""
    return int(db.execute("PRAGMA data_version").get)


def _read(db: apsw.Connection, query: SnapshotQuery, now: int) -> _Rows | None:
    values = query.owner, query.conversation_id, now
    row = db.execute(SQL["get_ends"], values).fetchone()
    if row is None:
        return None
    key, count, expires_at, head, lineage = row
    last = db.execute(SQL["tail"], (key, query.tail)).fetchall()[::-1]
    # The tail is the whole log, so the front is part of it.
    if len(last) < query.tail:
        first = last[: query.front]
    else:
        first = db.execute(SQL["page"], (key, query.front, 0)).fetchall() if query.front else []
    listing = query.documents
    documents = Documents(db, query.owner, None).rows(listing) if listing.limit else []
    return _Rows(count, expires_at, first, last, documents, head, lineage)
