"""The store in memory: the model that every other store is compared with. Nothing outlives it.

Below: `owner_data`, which does it all.
"""

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
from aforesaid.stores.owner_data import OwnerData, pack, slots_of
from aforesaid.stores.urls import Address


def backend(address: Address, clock: Clock) -> "InMemoryBackend":
    """Open `memory://`, with `?max_messages=N` to bound what each conversation keeps."""
    options = address.take(max_messages=int)
    return InMemoryBackend(clock=clock, **options)  # type: ignore[arg-type]


class InMemoryBackend(Backend):
    """Everything in dictionaries, for one event loop. `max_messages` drops a conversation's oldest
    beyond that many."""

    def __init__(self, *, clock: Clock = system_clock, max_messages: int | None = None) -> None:
        if max_messages is not None:
            check_count(max_messages, field="max_messages", least=1)
        self.clock = clock
        self.max_messages = max_messages
        self.closed = False
        self.shelves: dict[str, OwnerData] = {}

    async def open(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def of(self, owner: str) -> "InMemoryStore":
        return InMemoryStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        for owner, owner_data in sorted(self.shelves.items()):
            if owner_data.holds_anything(ignored_kinds=ignored_kinds):
                yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        self.check_open()
        moment = self.clock() if now is None else parse_moment(now, field="now")
        return sum(owner_data.purge_expired(now=moment) for owner_data in self.shelves.values())

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed


class InMemoryStore(DocumentChecks):
    """One owner's part of the backend. No method waits, so each is atomic as it stands."""

    def __init__(self, backend: InMemoryBackend, owner: str) -> None:
        self._backend = backend
        self._owner = owner

    def now(self) -> datetime:
        return self._backend.clock()

    async def create(self, conversation: Conversation) -> Conversation:
        return self._own_data().create(conversation, now=self.now())

    async def get(self, conversation_id: str) -> Conversation | None:
        return self._shelf().get(conversation_id, now=self.now())

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return self._shelf().update(
            conversation_id, changes, now=self.now(), expected_revision=expected_revision
        )

    async def find(self, query: Query) -> Page:
        return self._shelf().find(query, now=self.now())

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return self._shelf().delete(conversation_id, expected_revision=expected_revision)

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return self._own_data().resume(session_id, fresh, now=self.now(), active_since=active_since)

    async def session(self, session_id: str) -> Conversation | None:
        return self._shelf().session(session_id, now=self.now())

    async def bind(self, session_id: str, conversation_id: str) -> None:
        self._shelf().bind(session_id, conversation_id, now=self.now())

    async def unbind(self, session_id: str) -> None:
        self._shelf().unbind(session_id)

    async def sessions(self, conversation_id: str) -> list[str]:
        return self._shelf().bound_to(conversation_id, now=self.now())

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = pack(messages)
        return self._shelf().append(
            conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
        )

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        messages, head = without_head(messages)
        turn = pack(messages)
        return self._shelf().rewrite(
            conversation_id, turn, now=self.now(), expected_revision=expected_revision, head=head
        )

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return self._shelf().tail(conversation_id, now=self.now(), limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return self._shelf().page(conversation_id, now=self.now(), limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return self._shelf().entry(conversation_id, message_id, now=self.now())

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        return self._shelf().replace(
            conversation_id, message, now=self.now(), expected_revision=expected_revision
        )

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        return self._shelf().log_end(conversation_id, now=self.now())

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        return self._shelf().reseal(conversation_id, entries, now=self.now())

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        return self._shelf().exchange_head(conversation_id, old, new, now=self.now())

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        entries, head = entries_without_head(entries)
        record, given = check_restorable(conversation, entries)
        self._own_data().restore(record, slots_of(given.values()), now=self.now(), head=head)

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        return self._own_data().put_document(place, data, now=self.now(), expected_version=expected)

    async def _get_document(self, place: Place) -> Document | None:
        return self._shelf().get_document(place, now=self.now())

    async def _list_documents(self, listing: Listing) -> list[Document]:
        return self._shelf().list_documents(listing, now=self.now())

    async def _document_kinds(self, holder: str | None) -> list[str]:
        return self._shelf().document_kinds(holder, now=self.now())

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        return self._shelf().delete_document(place, now=self.now(), expected_version=expected)

    async def _restore_documents(self, given: Mapping[Place, Document]) -> None:
        self._own_data().restore_documents(given, now=self.now())

    async def purge_expired(self) -> int:
        return self._shelf().purge_expired(now=self.now())

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return self._shelf().expired(by=parse_moment(by, field="by"), limit=limit)

    async def clear(self) -> Tally:
        return self._shelf().clear()

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return self._shelf().tally(conversation_id)

    def _shelf(self) -> OwnerData:
        """What there is of this owner; to look for somebody leaves no trace."""
        self._backend.check_open()
        return self._backend.shelves.get(self._owner) or OwnerData()

    def _own_data(self) -> OwnerData:
        """The shelf to put something new on."""
        self._backend.check_open()
        return self._backend.shelves.setdefault(
            self._owner, OwnerData(max_messages=self._backend.max_messages)
        )
