"""Documents, and snapshots: everything a context needs, read in one transaction."""

from datetime import datetime

import apsw

from aforesaid.contracts import Document, Listing, LogSnapshot, Place
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.stores import _snapshots
from aforesaid.stores._snapshots import CachedSnapshot, RowDecoders, SnapshotQuery, SnapshotRows
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


# Read snapshots: everything a context needs, in one transaction on one reader thread.
#
# A cached snapshot is returned without reading it again if SQLite reports no write by any connection since.


def _text_size(row: Row) -> int:
    return len(row[-1])


_DECODERS = RowDecoders(
    record=lambda _, row: rows.conversation(row), entry=rows.entry, document=document, size=_text_size
)


class SnapshotCache(_snapshots.SnapshotCache):
    """The cache of snapshots, shared by the reader threads."""

    def __init__(self, max_bytes: int = _snapshots.MAX_BYTES) -> None:
        super().__init__(_DECODERS, max_bytes)

    def read_snapshot(self, db: apsw.Connection, query: SnapshotQuery, now: int) -> LogSnapshot | None:
        """Read a consistent snapshot of a conversation; None if it is missing."""
        cached = self.get(query)
        if cached is not None and _is_current(cached, db, now):
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
        cached = self.decoded(query, found)
        cached.versions[id(db)] = version
        return cached.snapshot


def _is_current(cached: CachedSnapshot, db: apsw.Connection, now: int) -> bool:
    """Return whether the file is unchanged since this connection read it."""
    expires_at = cached.rows.record[rows.EXPIRES_AT]
    alive = expires_at is None or expires_at > now
    return alive and cached.is_immutable and cached.versions.get(id(db)) == _version(db)


def _version(db: apsw.Connection) -> int:
    """Return a number that changes when another connection of any process writes."""
    return int(db.execute("PRAGMA data_version").get)


def _read(db: apsw.Connection, query: SnapshotQuery, now: int) -> SnapshotRows | None:
    row = db.execute(SQL["get_conversation"], (query.owner, query.conversation_id, now)).fetchone()
    if row is None:
        return None
    key = row[rows.KEY]
    last = db.execute(SQL["tail"], (key, query.tail)).fetchall()[::-1]
    # The tail is the whole log, so the front is part of it.
    if len(last) < query.tail:
        first = last[: query.front]
    else:
        first = db.execute(SQL["page"], (key, query.front, 0)).fetchall() if query.front else []
    listing = query.documents
    documents = Documents(db, query.owner, None).rows(listing) if listing.limit else []
    return SnapshotRows(row, row[rows.HEAD], first, last, documents)
