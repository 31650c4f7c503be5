"""What a store is: one owner's conversations, and the place that hands them out. Below: its values."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from aforesaid.contracts.documents import Document
from aforesaid.contracts.entries import Appended, Entry, Position, why_unreadable
from aforesaid.model.conversations import Changes, Conversation, Page, Query, started
from aforesaid.model.messages import Message


class Tally(Struct, frozen=True, kw_only=True):
    """How much of each kind: of what there is, or of what was removed. Expired or not."""

    conversations: int = 0
    messages: int = 0
    sessions: int = 0
    index_entries: int = 0
    """Messages in a search index that the store keeps itself; 0 where it keeps none."""
    keys: int = 0
    """Rings of data keys: without them what was sealed can be read nowhere. 0 where nothing is encrypted."""
    documents: dict[str, int] = {}
    """How many documents of each kind, the owner's and those of conversations. Only kinds that there are."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            conversations=self.conversations + other.conversations,
            messages=self.messages + other.messages,
            sessions=self.sessions + other.sessions,
            index_entries=self.index_entries + other.index_entries,
            keys=self.keys + other.keys,
            documents=dict(Counter(self.documents) + Counter(other.documents)),
        )


class ConversationStore(Protocol):
    """One owner's conversations."""

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        """Keep a new, empty conversation. Raises `ConversationExists`."""
        ...

    async def get(self, conversation_id: str) -> Conversation | None:
        """The record, without messages."""
        ...

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        """Change what is given; the revision moves by one."""
        ...

    async def find(self, query: Query) -> Page:
        """One page of records, most recently active first, equal moments by id, descending."""
        ...

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        """Remove the conversation with all that belongs to it; returns how much of each kind went.

        What is not there is no error, and nothing went.

        With `expected_revision`, only if nobody wrote to it since, whether it has expired or not.
        """
        ...

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        """The conversation that the session is bound to; else `fresh`, created and bound in the same step.

        With `active_since`, a conversation whose last activity lies before it is let go: it stays
        where it is, and the session is bound to `fresh`.
        """
        ...

    async def session(self, session_id: str) -> Conversation | None:
        """The conversation that the session is bound to."""
        ...

    async def bind(self, session_id: str, conversation_id: str) -> None:
        """Bind the session to this conversation, whatever it was bound to before."""
        ...

    async def unbind(self, session_id: str) -> None:
        """Forget the session. Its conversation stays."""
        ...

    async def sessions(self, conversation_id: str) -> list[str]:
        """The sessions that are bound to the conversation, sorted."""
        ...

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store one turn, all of it or nothing. With `expected_revision`, only if nobody wrote since.

        When every message is known already nothing changes and nothing is refused: a retry of a
        write that did succeed succeeds.
        """
        ...

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Put these messages in the place of all there are, in one step. Sequence numbers go on."""
        ...

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        """The last `limit` entries in reading order, or the last that stand before a position."""
        ...

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        """As `tail`, for a context: while the store is away, the entries that are known, however few.

        A layer that answers from the last known state notes that (`aforesaid.freshness`). `tail` and `page`
        give all entries that are asked for, or raise.
        """
        return await self.tail(conversation_id, limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        """Entries in reading order, counted from the oldest."""
        ...

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        """The entry that holds this message id."""
        ...

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        """Put the message in the place of the one that holds its id: the one way to change what was said.

        Place, time, role and the moment of storing stay; the revisions of entry and record move on. What
        is derived from the log goes, unless the message says the same as before and only its labels are
        others. Raises `MessageNotFound`.
        """
        ...

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        """Keep the record and the entries exactly as given, expired or not, in one step.

        An entry whose sequence is there already is left as it is, so that a long conversation can be
        brought in parts, and a part twice; the record that is given last holds. New messages go on
        after the largest sequence. An id that another entry holds raises `MessageConflict`.
        """
        ...

    # Documents

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        """Keep the data under this kind and key, in the place of what is there.

        With `expected_version`, only if that is the version there, and 0 only if there is none; else
        `DocumentConflict`.
        """
        ...

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        """The document of this kind and key."""
        ...

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        """Documents of a kind by their keys, which sort by code point; those with keys after `after`."""
        ...

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        """The kinds that there are documents of, sorted."""
        ...

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        """Remove the document; whether there was one. With `expected_version`, only that version of it."""
        ...

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        """Keep the documents exactly as given, whatever is there, in one step.

        For moving: it alone sets versions and moments. All belong to the owner, or all to one
        conversation.
        """
        ...

    # Retention

    async def purge_expired(self) -> int:
        """Remove this owner's expired conversations; returns how many."""
        ...

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        """The records that a purge at this moment removes, those that expire first in front.

        For a look at what a purge will do: it alone shows records that have expired.
        """
        ...

    async def clear(self) -> Tally:
        """Remove all that this owner has, expired or not; returns how much of each kind went."""
        ...

    async def tally(self, conversation_id: str | None = None) -> Tally:
        """What `clear` would remove now, or `delete` of this conversation, without removing it.

        Costs at most a look at every record, and reads no message and no document.
        """
        ...

    def now(self) -> datetime:
        """The store's time: what it stamps messages with and judges expiry by."""
        ...

    @property
    def degraded(self) -> bool:
        """Whether an answer given now would come from the last known state; see `aforesaid.freshness`."""
        return False

    async def authoritative(self) -> "ConversationStore":
        """This store without any fallback, for an operation that needs everything the owner has.

        Every operation that reads everything in order to move, copy, delete, count or verify uses it. A layer
        with a last known state, a cache or a queue of accepted writes first waits, within its deadline, until
        the store has every acknowledged write of this owner; else it raises `StoreUnavailable`. The returned
        store answers from the store itself or raises, and accepts no write while the store is away.
        """
        return self

    # Whole histories, written once over the rest

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        """The whole history as dicts, oldest first; empty when there is none. Leaves out the unreadable."""
        if await self.get(conversation_id) is None:
            return []
        entries = await self.page(conversation_id, limit=_EVERYTHING)
        return [entry.message.to_dict() for entry in entries if why_unreadable(entry) is None]

    async def save(self, conversation_id: str, history: Sequence[dict[str, Any]]) -> None:
        """Make this the whole history, and the conversation if there is none.

        A history that goes on where the stored one ends only costs what is new. Somebody else's
        turn in between raises `RevisionConflict` and is not overwritten.
        """
        messages = [Message.from_dict(document) for document in history]
        record = await self.get(conversation_id)
        if record is None:
            record = await self.create(started(conversation_id, now=self.now()))
        found = await self.page(conversation_id, limit=_EVERYTHING)
        entries = [entry for entry in found if why_unreadable(entry) is None]
        if _goes_on_from(entries, history):
            new = messages[len(entries) :]
            await self.append(conversation_id, new, expected_revision=record.revision)
        else:
            await self.rewrite(conversation_id, messages, expected_revision=record.revision)


def _goes_on_from(entries: Sequence[Entry], history: Sequence[dict[str, Any]]) -> bool:
    return len(history) >= len(entries) and all(
        _is_as_given(entry.message, document) for entry, document in zip(entries, history, strict=False)
    )


def _is_as_given(message: Message, document: dict[str, Any]) -> bool:
    """Whether a stored message is what a document says; what it does not say may be anything."""
    given = Message.from_dict(document)
    same_labels = all(
        getattr(message, name) == getattr(given, name) for name in _LABELS if document.get(name) is not None
    )
    return same_labels and message.says_the_same_as(given)


_LABELS = ("timestamp", "content_type", "agent_name", "message_id", "tags", "speech")


_EVERYTHING = 2**53


@runtime_checkable
class Backend(Protocol):
    """A place where conversations are kept: opened once, shared by all owners."""

    async def open(self) -> None:
        """Connect and prepare the schema. Errors name the file or server."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go. Closing twice is fine; using afterwards is `StoreClosed`."""
        ...

    def of(self, owner: str) -> ConversationStore:
        """The store of one owner. Costs nothing and may be called before `open`."""
        ...

    def owners(self, *, beside: Collection[str] = ()) -> AsyncIterator[str]:
        """Everybody who has a conversation or a document here. For operators.

        Whoever has nothing beside documents of these kinds is left out. The list is complete, or the iterator
        raises: there is no list of the owners that happen to be known.
        """
        ...

    async def purge_expired(self, now: datetime | None = None) -> int:
        """Remove every owner's expired conversations; returns how many."""
        ...
