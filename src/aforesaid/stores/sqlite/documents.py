"""The part of an owner's store that has documents."""

from collections.abc import Mapping
from datetime import datetime

import apsw

from aforesaid.contracts import OPEN_TURNS, Document, Listing, Place
from aforesaid.errors import ConversationNotFound
from aforesaid.model.clock import to_micros
from aforesaid.stores._arguments import DocumentChecks
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE
from aforesaid.stores.sqlite.database import Database
from aforesaid.stores.sqlite.snapshots import Documents

SQL = queries(PACKAGE)


class StoredDocuments(DocumentChecks):
    """Documents of the owner and of conversations."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    @property
    def owner(self) -> str:
        return self._owner

    def now(self) -> datetime:
        return self._database.clock()

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        def work(db: apsw.Connection) -> Document:
            documents = Documents(db, self._owner, self._holder(db, place.conversation_id))
            return documents.put(place, data, now=self.now(), expected=expected)

        return await self._database.writer.run(work)

    async def _get_document(self, place: Place) -> Document | None:
        def work(db: apsw.Connection) -> Document | None:
            return Documents(db, self._owner, self._holder(db, place.conversation_id)).get(place)

        return await self._database.readers.run(work)

    async def _list_documents(self, listing: Listing) -> list[Document]:
        def work(db: apsw.Connection) -> list[Document]:
            return Documents(db, self._owner, self._holder(db, listing.conversation_id)).page(listing)

        return await self._database.readers.run(work)

    async def _document_kinds(self, holder: str | None) -> list[str]:
        def work(db: apsw.Connection) -> list[str]:
            return Documents(db, self._owner, self._holder(db, holder)).kinds()

        return await self._database.readers.run(work)

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        def work(db: apsw.Connection) -> tuple[bool, bool]:
            holder = self._holder(db, place.conversation_id)
            was_there = Documents(db, self._owner, holder).delete(place, expected=expected)
            return was_there, was_there and self._is_answered(db, place, holder)

        was_there, is_answered = await self._database.writer.run(work)
        # The words of an answered turn are in the log: their removal there cleans the file.
        if was_there and not is_answered:
            await self._database.clean_after_removal()
        return was_there

    def _is_answered(self, db: apsw.Connection, place: Place, holder: int | None) -> bool:
        """Return whether the document is an open turn whose question is in the log."""
        if place.kind != OPEN_TURNS or holder is None:
            return False
        return db.execute(SQL["get_message"], (holder, place.key)).fetchone() is not None

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        def work(db: apsw.Connection) -> None:
            for place, document in documents.items():
                key = self._holder(db, place.conversation_id)
                Documents(db, self._owner, key).restore(place, document)

        await self._database.writer.run(work)

    def _key(self, db: apsw.Connection, conversation_id: str) -> int:
        (key,) = db.execute(SQL["get_key"], self._named(conversation_id)).fetchone() or (None,)
        if key is None:
            raise ConversationNotFound(conversation_id)
        return int(key)

    def _holder(self, db: apsw.Connection, conversation_id: str | None) -> int | None:
        """Return the key of the conversation that has the documents; None for the owner's documents."""
        return None if conversation_id is None else self._key(db, conversation_id)

    def _named(self, conversation_id: str) -> tuple[str, str, int]:
        return self._owner, conversation_id, to_micros(self.now())
