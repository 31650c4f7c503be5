"""Documents of an owner or of one conversation, inside a transaction."""

from datetime import datetime

import apsw

from aforesaid.contracts import Document, Listing, Place
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE
from aforesaid.stores.sqlite.rows import Row, document

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
