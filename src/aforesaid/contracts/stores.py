"""The contract of a store: `ConversationStore` for one owner, `Backend` for all owners."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from aforesaid.contracts.documents import Document
from aforesaid.contracts.entries import Appended, Entry, Position, unreadable_reason
from aforesaid.contracts.names import accept_names
from aforesaid.model.conversations import Changes, Conversation, Page, Query, started
from aforesaid.model.ids import conversation_key
from aforesaid.model.messages import Message


class Tally(Struct, frozen=True, kw_only=True):
    """Numbers of items that exist or were removed, by kind. Expired items are included."""

    conversations: int = 0
    messages: int = 0
    sessions: int = 0
    index_entries: int = 0
    """Messages in the store's own search index; 0 where it has none."""
    keys: int = 0
    """Data keys. Without them the owner's encrypted data is unreadable everywhere. 0 where nothing is
    encrypted.
    """
    documents: dict[str, int] = {}
    """Documents by kind, the owner's and those of conversations. Kinds without documents are left out."""

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
    """One owner's conversations.

    A `conversation_id` is a UUID or a name: any text of up to 1,024 characters. A class that derives from
    this one gets the UUID of the named conversation in its methods.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        accept_store_names(cls)

    @property
    def owner(self) -> str:
        """The owner of this store."""
        ...

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        """Store a new, empty conversation. Raise `ConversationExists`."""
        ...

    async def get(self, conversation_id: str) -> Conversation | None:
        """Return the record, without messages."""
        ...

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        """Change the given fields; the revision increases by one."""
        ...

    async def find(self, query: Query) -> Page:
        """Return one page of records, most recently active first; records of the same time by id,
        descending.
        """
        ...

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        """Remove the conversation with everything that belongs to it; return the counts.

        Deleting a missing conversation is not an error and returns zero counts. With `expected_revision`,
        delete only at that revision, whether the conversation has expired or not.
        """
        ...

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        """Return the session's conversation; if there is none, create `fresh` and bind it in the same step.

        With `active_since`, a conversation that was last active before it stays, and the session is bound to
        `fresh`.
        """
        ...

    async def session(self, session_id: str) -> Conversation | None:
        """Return the conversation that the session is bound to."""
        ...

    async def bind(self, session_id: str, conversation_id: str) -> None:
        """Bind the session to this conversation, replacing an earlier binding."""
        ...

    async def unbind(self, session_id: str) -> None:
        """Remove the session's binding. Its conversation stays."""
        ...

    async def sessions(self, conversation_id: str) -> list[str]:
        """Return the sessions that are bound to the conversation, sorted."""
        ...

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store one turn, all of it or nothing. With `expected_revision`, only at that revision.

        When every message is known already, nothing changes and no error is raised, so a retried append
        succeeds.
        """
        ...

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Replace the whole log by these messages in one step. Sequence numbers continue."""
        ...

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        """Return the last `limit` entries in reading order, or the last before a position."""
        ...

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        """Return what `tail` returns, for a context; while the store is unavailable, the entries of the last
        known state.

        A layer that answers from the last known state records it (`aforesaid._internal.freshness`). `tail`
        and `page` return all requested entries or raise.
        """
        return await self.tail(conversation_id, limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        """Return entries in reading order, counted from the oldest."""
        ...

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        """Return the entry with this message id."""
        ...

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        """Replace the message that has the same id. This is the only way to change a stored message.

        Place, time, role and storing time stay; the revisions of entry and record increase. Data derived from
        the log is removed unless the content is the same and only labels differ. Open turns stay. Raise
        `MessageNotFound`.
        """
        ...

    # Restoring

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        """Store the record and the entries exactly as given, expired or not, in one step.

        With `expected_revision`, only if the conversation is there at that revision; otherwise raise
        `RevisionConflict`.

        An entry with a known sequence is skipped, so a long conversation can be restored in parts, and a part
        twice; the last record wins. New messages continue after the largest sequence. An id that another
        entry has raises `MessageConflict`.
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
        """Store the data under this kind and key, replacing an earlier document.

        With `expected_version`, raise `DocumentConflict` unless the document has that version; 0 means that
        there is none.
        """
        ...

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        """Return the document of this kind and key."""
        ...

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        """Return documents of a kind, sorted by key (by code point), with keys greater than `after`."""
        ...

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        """Return the kinds of existing documents, sorted."""
        ...

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        """Remove the document; return whether there was one. With `expected_version`, only that version."""
        ...

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        """Store the documents exactly as given, replacing existing ones, in one step.

        For moving data: no other method sets versions and times. All documents belong to the owner, or all to
        one conversation.
        """
        ...

    # Retention

    async def purge_expired(self) -> int:
        """Remove this owner's expired conversations; return how many."""
        ...

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        """Return the records that a purge at this time would remove, in the order of expiry.

        For a dry run: no other method returns expired records.
        """
        ...

    async def clear(self) -> Tally:
        """Remove everything this owner has, expired or not; return the counts."""
        ...

    async def tally(self, conversation_id: str | None = None) -> Tally:
        """Return what `clear`, or `delete` of this conversation, would remove now.

        It reads at most every record, but no message and no document.
        """
        ...

    def now(self) -> datetime:
        """Return the store's time, which it uses for timestamps and expiry."""
        ...

    @property
    def degraded(self) -> bool:
        """Whether an answer would now come from the last known state; see `aforesaid._internal.freshness`."""
        return False

    async def authoritative(self) -> "ConversationStore":
        """Return this store without any fallback, for an operation that needs all of the owner's data.

        Operations that read everything in order to move, copy, delete, count or verify use it. A layer with a
        last known state, a cache or a spool first waits, within its deadline, until the store has every
        acknowledged write of this owner; otherwise it raises `StoreUnavailable`. The returned store answers
        from the store itself or raises, and accepts no write while the store is unavailable.
        """
        return self

    # Whole histories, implemented with the methods above

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        """Return the whole history as dicts, oldest first, without unreadable messages; empty when there is
        none.
        """
        if await self.get(conversation_id) is None:
            return []
        entries = await self.page(conversation_id, limit=_EVERYTHING)
        return [entry.message.to_dict() for entry in entries if unreadable_reason(entry) is None]

    async def save(self, conversation_id: str, history: Sequence[dict[str, Any]]) -> None:
        """Store this as the whole history. Create the conversation, with its name, if there is none.

        A history that continues the stored one costs only its new messages. A concurrent turn raises
        `RevisionConflict` and is not overwritten.
        """
        messages = [Message.from_dict(document) for document in history]  # raises before anything changes
        conversation_id, name = conversation_key(conversation_id, owner=self.owner)
        record = await self.get(conversation_id)
        if record is None:
            # A concurrent `save` may create it first and raise `ConversationExists` here.
            record = await self.create(started(conversation_id, now=self.now(), name=name))
        found = await self.page(conversation_id, limit=_EVERYTHING)
        entries = [entry for entry in found if unreadable_reason(entry) is None]
        if _continues(entries, history):
            new = messages[len(entries) :]
            await self.append(conversation_id, new, expected_revision=record.revision)
        else:
            await self.rewrite(conversation_id, messages, expected_revision=record.revision)


def accept_store_names(kind: type[Any]) -> None:
    """Make the methods of a store class accept names. Call it again for methods that are added later."""
    accept_names(kind, lambda store: store.owner, untranslated=("save", "audit_action"))


def _continues(entries: Sequence[Entry], history: Sequence[dict[str, Any]]) -> bool:
    return len(history) >= len(entries) and all(
        _matches(entry.message, document) for entry, document in zip(entries, history, strict=False)
    )


def _matches(message: Message, document: dict[str, Any]) -> bool:
    """Return whether a stored message matches a document in every field that the document has."""
    parsed = Message.from_dict(document)
    same_labels = all(
        getattr(message, name) == getattr(parsed, name) for name in _LABELS if document.get(name) is not None
    )
    return same_labels and message.same_content_as(parsed)


_LABELS = ("timestamp", "content_type", "agent_name", "message_id", "tags", "speech", "author")


_EVERYTHING = 2**53  # more than any log has, and exact as a double in Redis scripts


@runtime_checkable
class Backend(Protocol):
    """Storage for all owners, opened once."""

    async def open(self) -> None:
        """Connect and prepare the schema. Errors name the file or server."""
        ...

    async def close(self) -> None:
        """Finish accepted work, then release everything. Closing twice is allowed; later use raises
        `StoreClosed`.
        """
        ...

    def of(self, owner: str) -> ConversationStore:
        """Return the store of one owner. This does no I/O and may be called before `open`."""
        ...

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        """Yield every owner with a conversation or a document. For operators.

        Owners that have only documents of `ignored_kinds` are left out. The listing is complete, or the
        iterator raises.
        """
        ...

    async def purge_expired(self, now: datetime | None = None) -> int:
        """Remove every owner's expired conversations; return how many."""
        ...
