"""A store over an `OwnerData`, shared by the in-memory store and the JSON file store.

Every method reads the owner's data or passes a function that changes it. A store decides where reads find
the data and how a change is committed.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Self, TypeVar

from aforesaid.contracts import (
    Appended,
    Document,
    Entry,
    Listing,
    LogEnd,
    Place,
    Position,
    RecordChanges,
    Tally,
    check_restorable,
    entries_without_head,
    without_head,
)
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.messages import Message
from aforesaid.stores._arguments import DocumentChecks, frozen_in_time, last_sequence
from aforesaid.stores.encoded_logs import EncodedMessage, encode_entries, encode_messages
from aforesaid.stores.owner_data import OwnerData

T = TypeVar("T")


class OwnerDataStore(DocumentChecks):
    """One owner's store over an `OwnerData`."""

    @abstractmethod
    def _data(self) -> OwnerData:
        """Return the owner's data, for reading only; empty for an unknown owner."""

    @abstractmethod
    async def _write(self, work: Callable[[OwnerData], T]) -> T:
        """Run the work on the owner's data, and return its result once the change is committed. When the work
        raises, nothing changes."""

    def _check_bodies(self, bodies: Iterable[bytes]) -> None:
        """Raise `InvalidMessage` for an encoded message that the store could not read back."""

    def _encode(self, messages: Sequence[Message]) -> list[EncodedMessage]:
        # Encode before the change: a caller may modify its content afterwards, and an invalid message must
        # not leave half a turn.
        turn = encode_messages(messages)
        self._check_bodies(body for _, body in turn)
        return turn

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._write(lambda data: data.create(conversation, now=self.now()))

    async def get(self, conversation_id: str) -> Conversation | None:
        return self._data().get(conversation_id, now=self.now())

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return await self._write(
            lambda data: data.update(
                conversation_id, changes, now=self.now(), expected_revision=expected_revision
            ),
        )

    async def find(self, query: Query) -> Page:
        return self._data().find(query, now=self.now())

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self._write(
            lambda data: data.delete(conversation_id, expected_revision=expected_revision),
        )

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        owner_data = self._data()
        bound = owner_data.active_session(session_id, now=self.now(), active_since=active_since)
        if bound is not None:
            return bound  # the usual case, without the writer
        return await self._write(
            lambda data: data.resume(session_id, fresh, now=self.now(), active_since=active_since),
        )

    async def session(self, session_id: str) -> Conversation | None:
        return self._data().session(session_id, now=self.now())

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._write(lambda data: data.bind(session_id, conversation_id, now=self.now()))

    async def unbind(self, session_id: str) -> None:
        await self._write(lambda data: data.unbind(session_id))

    async def sessions(self, conversation_id: str) -> list[str]:
        return self._data().bound_to(conversation_id, now=self.now())

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = self._encode(messages)
        return await self._write(
            lambda data: data.append(
                conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = self._encode(messages)
        return await self._write(
            lambda data: data.rewrite(
                conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
            ),
        )

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        owner_data = self._data()
        return owner_data.tail(conversation_id, now=self.now(), limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        owner_data = self._data()
        return owner_data.page(conversation_id, now=self.now(), limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return self._data().entry(conversation_id, message_id, now=self.now())

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        self._encode([message])  # raises for a message that could not be parsed again
        return await self._write(
            lambda data: data.replace(
                conversation_id, message, now=self.now(), expected_revision=expected_revision
            ),
        )

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        return self._data().log_end(conversation_id, now=self.now())

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        return await self._write(lambda data: data.reseal(conversation_id, entries, now=self.now()))

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        return await self._write(
            lambda data: data.exchange_head(conversation_id, old, new, now=self.now()),
        )

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        encoded_entries = encode_entries(restored.values())
        self._check_bodies(encoded.body for _, encoded in encoded_entries)
        await self._write(
            lambda data: data.restore(
                record, encoded_entries, now=self.now(), expected_revision=expected_revision, head=head
            )
        )

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        return await self._write(
            lambda owner_data: owner_data.put_document(place, data, now=self.now(), expected_version=expected)
        )

    async def _get_document(self, place: Place) -> Document | None:
        return self._data().get_document(place, now=self.now())

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return self._data().list_documents(listing, now=self.now())

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return self._data().document_kinds(holder, now=self.now())

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        return await self._write(
            lambda data: data.delete_document(place, now=self.now(), expected_version=expected),
        )

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        await self._write(lambda data: data.restore_documents(documents, now=self.now()))

    async def purge_expired(self) -> int:
        return await self._write(lambda data: data.purge_expired(now=self.now()))

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return self._data().expired(by=parse_moment(by, field="by"), limit=limit)

    # Branches; see `contracts.Branchable`

    def including_expired(self) -> Self:
        return frozen_in_time(self)

    async def family(self, root_id: str) -> list[Conversation]:
        return self._data().family(root_id)

    async def kept_expired(self) -> list[Conversation]:
        return self._data().kept_expired(now=self.now())

    async def last_sequence(self, conversation_id: str) -> int:
        return last_sequence(conversation_id, await self.log_end(conversation_id))

    # Changes; see `contracts.ChangeTracking`

    async def changes_since(self, mark: str | None) -> RecordChanges:
        return self._data().changes.since(mark)

    async def clear(self) -> Tally:
        return await self._write(lambda data: data.clear())

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return self._data().tally(conversation_id)
