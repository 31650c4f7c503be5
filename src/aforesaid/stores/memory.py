"""The in-memory store, the reference for every other store. Its data ends with the process."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime

from aforesaid.contracts import (
    Appended,
    Backend,
    Document,
    Entry,
    Listing,
    LogEnd,
    Place,
    Position,
    Tally,
    check_restorable,
    entries_without_head,
    without_head,
)
from aforesaid.errors import StoreClosed
from aforesaid.model.clock import Clock, parse_moment, system_clock
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_count
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message
from aforesaid.stores._document_checks import DocumentChecks
from aforesaid.stores.encoded_logs import encode_messages, slots_of
from aforesaid.stores.owner_data import OwnerData
from aforesaid.stores.urls import Address


def backend(address: Address, clock: Clock) -> "InMemoryBackend":
    """Open `memory://`. The option `?max_messages=N` limits each conversation to its newest N messages."""
    options = address.take(max_messages=int)
    return InMemoryBackend(clock=clock, **options)  # type: ignore[arg-type]


class InMemoryBackend(Backend):
    """All data in dictionaries, for one event loop. `max_messages` drops a conversation's oldest messages
    beyond that number."""

    def __init__(self, *, clock: Clock = system_clock, max_messages: int | None = None) -> None:
        if max_messages is not None:
            check_count(max_messages, field="max_messages", least=1)
        self.clock = clock
        self.max_messages = max_messages
        self.closed = False
        self.data_by_owner: dict[str, OwnerData] = {}

    async def open(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def of(self, owner: str) -> "InMemoryStore":
        return InMemoryStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        for owner, owner_data in sorted(self.data_by_owner.items()):
            if owner_data.holds_anything(ignored_kinds=ignored_kinds):
                yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        self.check_open()
        moment = self.clock() if now is None else parse_moment(now, field="now")
        return sum(owner_data.purge_expired(now=moment) for owner_data in self.data_by_owner.values())

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed


class InMemoryStore(DocumentChecks):
    """One owner's store. No method awaits anything, so each is atomic."""

    def __init__(self, backend: InMemoryBackend, owner: str) -> None:
        self._backend = backend
        self._owner = owner

    def now(self) -> datetime:
        return self._backend.clock()

    async def create(self, conversation: Conversation) -> Conversation:
        return self._writable_data().create(conversation, now=self.now())

    async def get(self, conversation_id: str) -> Conversation | None:
        return self._existing_data().get(conversation_id, now=self.now())

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return self._existing_data().update(
            conversation_id, changes, now=self.now(), expected_revision=expected_revision
        )

    async def find(self, query: Query) -> Page:
        return self._existing_data().find(query, now=self.now())

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return self._existing_data().delete(conversation_id, expected_revision=expected_revision)

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return self._writable_data().resume(session_id, fresh, now=self.now(), active_since=active_since)

    async def session(self, session_id: str) -> Conversation | None:
        return self._existing_data().session(session_id, now=self.now())

    async def bind(self, session_id: str, conversation_id: str) -> None:
        self._existing_data().bind(session_id, conversation_id, now=self.now())

    async def unbind(self, session_id: str) -> None:
        self._existing_data().unbind(session_id)

    async def sessions(self, conversation_id: str) -> list[str]:
        return self._existing_data().bound_to(conversation_id, now=self.now())

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        # Store encoded bodies, not objects: a caller may change its content afterwards.
        messages, head = without_head(messages)
        turn = encode_messages(messages)
        return self._existing_data().append(
            conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
        )

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = encode_messages(messages)
        return self._existing_data().rewrite(
            conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
        )

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return self._existing_data().tail(conversation_id, now=self.now(), limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return self._existing_data().page(conversation_id, now=self.now(), limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return self._existing_data().entry(conversation_id, message_id, now=self.now())

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        return self._existing_data().replace(
            conversation_id, message, now=self.now(), expected_revision=expected_revision
        )

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        return self._existing_data().log_end(conversation_id, now=self.now())

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        return self._existing_data().reseal(conversation_id, entries, now=self.now())

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        return self._existing_data().exchange_head(conversation_id, old, new, now=self.now())

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        entries, head = entries_without_head(entries)
        record, restored = check_restorable(conversation, entries)
        self._writable_data().restore(record, slots_of(restored.values()), now=self.now(), head=head)

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        return self._writable_data().put_document(place, data, now=self.now(), expected_version=expected)

    async def _get_document(self, place: Place) -> Document | None:
        return self._existing_data().get_document(place, now=self.now())

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return self._existing_data().list_documents(listing, now=self.now())

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return self._existing_data().document_kinds(holder, now=self.now())

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        return self._existing_data().delete_document(place, now=self.now(), expected_version=expected)

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        self._writable_data().restore_documents(documents, now=self.now())

    async def purge_expired(self) -> int:
        return self._existing_data().purge_expired(now=self.now())

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return self._existing_data().expired(by=parse_moment(by, field="by"), limit=limit)

    async def clear(self) -> Tally:
        return self._existing_data().clear()

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return self._existing_data().tally(conversation_id)

    def _existing_data(self) -> OwnerData:
        """Return the owner's data for reading. Reading an unknown owner's data creates nothing."""
        self._backend.check_open()
        return self._backend.data_by_owner.get(self._owner) or OwnerData()

    def _writable_data(self) -> OwnerData:
        """Return the owner's data for writing; create it when necessary."""
        self._backend.check_open()
        return self._backend.data_by_owner.setdefault(
            self._owner, OwnerData(max_messages=self._backend.max_messages)
        )
