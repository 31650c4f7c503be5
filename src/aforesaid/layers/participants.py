"""One participant's view of an owner's store: the conversations in which they take part.

The view is a store, so listings, contexts, searches, live updates and exports see nothing else. Another
conversation looks absent. Writes that the role does not allow raise `NotAllowed` and change nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import ClassVar

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    Branchable,
    Change,
    ChangeTracking,
    ConversationStore,
    Document,
    Entry,
    Labelled,
    Listing,
    LogSnapshot,
    Position,
    Reindexable,
    Sealable,
    Searchable,
    SnapshotReader,
    Spooling,
    Tally,
    VectorSearchable,
    Watchable,
    capability,
    is_derived,
)
from aforesaid.errors import ConversationNotFound, NotAllowed
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.branched import BranchedStore
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.lifetimes import DOCUMENT_KIND as RETENTION_RULES
from aforesaid.model.messages import Message
from aforesaid.model.participants import (
    Participant,
    parse_participant_id,
    participant_in,
)

# Fields of a record that only managers change.
_OF_MANAGERS = frozenset(("participants", "ttl", "name"))
# Separates the participant from the session in the name of a participant's session.
_SEPARATOR = "\x1f"


class ParticipantStore(StoreWrapper):
    """An owner's store as one participant sees it."""

    hides: ClassVar[tuple[type, ...]] = (
        ChangeTracking,
        Labelled,
        Searchable,
        VectorSearchable,
        Sealable,
        Reindexable,
        Spooling,
        Branchable,
    )

    def __init__(self, inner: ConversationStore, participant_id: str) -> None:
        super().__init__(inner)
        self.participant_id = parse_participant_id(participant_id)

    # Access

    async def _seen(self, conversation_id: str) -> tuple[Conversation, Participant]:
        """Return the record and the participant. Raise `ConversationNotFound` for any other conversation."""
        record = await self.inner.get(conversation_id)
        found = None if record is None else self._participant(record)
        if record is None or found is None:
            raise ConversationNotFound(conversation_id)
        return record, found

    def _participant(self, record: Conversation) -> Participant | None:
        found = participant_in(record.participants, self.participant_id)
        return found if found is not None and found.has_access else None

    async def _as_manager(self, conversation_id: str) -> Conversation:
        record, participant = await self._seen(conversation_id)
        if participant.role != "manager":
            raise NotAllowed("only a manager of the conversation may do this")
        return record

    async def _as_writer(self, conversation_id: str) -> Participant:
        _, participant = await self._seen(conversation_id)
        if not participant.can_write:
            raise NotAllowed("a guest may read this conversation, not write to it")
        return participant

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self.inner.create(self._managed(conversation))

    def _managed(self, conversation: Conversation) -> Conversation:
        """Return the record with the creator as a manager."""
        others = tuple(one for one in conversation.participants if one.id != self.participant_id)
        creator = Participant(id=self.participant_id, role="manager", joined_at=conversation.created_at)
        return conversation.with_(participants=(creator, *others))

    async def get(self, conversation_id: str) -> Conversation | None:
        record = await self.inner.get(conversation_id)
        if record is None or self._participant(record) is None:
            return None
        return await self._shown(record)

    async def _shown(self, record: Conversation) -> Conversation:
        """Return the record as the participant sees it: its length is that of the visible part."""
        participant = self._participant(record)
        hidden = 0 if participant is None else await self._hidden(record, participant)
        return record.with_(message_count=record.message_count - hidden) if hidden else record

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        if _OF_MANAGERS.isdisjoint(changes.given()):
            await self._as_writer(conversation_id)
        else:
            await self._as_manager(conversation_id)
        changed = await self.inner.update(conversation_id, changes, expected_revision=expected_revision)
        return await self._shown(changed)

    async def find(self, query: Query) -> Page:
        page = await self.inner.find(replace(query, participant=self.participant_id))
        shown = await asyncio.gather(*map(self._shown, page.conversations))
        return replace(page, conversations=tuple(shown))

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        try:
            await self._as_manager(conversation_id)
        except ConversationNotFound:
            return Tally()
        return await self.inner.delete(conversation_id, expected_revision=expected_revision)

    # Sessions: a participant has session names of their own.

    def _session(self, session_id: str) -> str:
        return f"{self.participant_id}{_SEPARATOR}{session_id}"

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        name = self._session(session_id)
        found = await self.inner.resume(name, self._managed(fresh), active_since=active_since)
        if self._participant(found) is not None:
            return await self._shown(found)
        # The participant left this conversation: the session continues with a new one.
        await self.inner.unbind(name)
        return await self.inner.resume(name, self._managed(fresh), active_since=active_since)

    async def session(self, session_id: str) -> Conversation | None:
        record = await self.inner.session(self._session(session_id))
        if record is None or self._participant(record) is None:
            return None
        return await self._shown(record)

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._seen(conversation_id)
        await self.inner.bind(self._session(session_id), conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self.inner.unbind(self._session(session_id))

    async def sessions(self, conversation_id: str) -> list[str]:
        await self._seen(conversation_id)
        own = self._session("")
        names = await self.inner.sessions(conversation_id)
        return [name.removeprefix(own) for name in names if name.startswith(own)]

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        participant = await self._as_writer(conversation_id)
        written = [self._authored(message) for message in messages]
        done = await self.inner.append(conversation_id, written, expected_revision=expected_revision)
        if participant.visible_from is None:
            return done
        record = await self._shown(done.conversation)
        return Appended(conversation=record, new=lambda: done.new, known=done.known)

    def _authored(self, message: Message) -> Message:
        """Return the message as this participant's. Raise `NotAllowed` for a message of another author."""
        if message.author not in (None, self.participant_id):
            raise NotAllowed(f"a participant cannot write as {message.author!r}")
        if message.role != "user" or message.author is not None:
            return message
        return message.with_(author=self.participant_id)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        await self._as_manager(conversation_id)
        return await self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        _, participant = await self._seen(conversation_id)
        found = await self.inner.tail(conversation_id, limit=limit, before=before)
        return _visible(found, participant)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        _, participant = await self._seen(conversation_id)
        found = await self.inner.recent(conversation_id, limit=limit, before=before)
        return _visible(found, participant)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        record, participant = await self._seen(conversation_id)
        hidden = await self._hidden(record, participant)
        found = await self.inner.page(conversation_id, limit=limit, offset=offset + hidden)
        return _visible(found, participant)

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        if not await self._shows(documents.kind, None):
            documents = documents._replace(limit=0)
        snapshot = await self.inner_capability(SnapshotReader).read_snapshot(
            conversation_id, front=front, tail=tail, documents=documents
        )
        record = snapshot.record or await self.inner.get(conversation_id)
        participant = None if record is None else self._participant(record)
        if record is None or participant is None:
            raise ConversationNotFound(conversation_id)
        if participant.visible_from is None:
            return snapshot
        return LogSnapshot(
            message_count=record.message_count - await self._hidden(record, participant),
            front=await self.page(conversation_id, limit=front),
            tail=_visible(snapshot.tail, participant),
            documents=snapshot.documents,
        )

    async def _hidden(self, record: Conversation, participant: Participant) -> int:
        """Count the entries before the visible part, by bisection: the visible part ends the log."""
        if participant.visible_from is None:
            return 0
        low, high = 0, record.message_count
        while low < high:
            middle = (low + high) // 2
            entries = await self.inner.page(record.id, limit=1, offset=middle)
            if not entries or participant.sees(*entries[0].position):
                high = middle
            else:
                low = middle + 1
        return low

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        _, participant = await self._seen(conversation_id)
        found = await self.inner.entry(conversation_id, message_id)
        return found if found is not None and participant.sees(*found.position) else None

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        participant = await self._as_writer(conversation_id)
        if participant.role != "manager":
            old = await self.entry(conversation_id, message.message_id or "")
            if old is not None and old.message.role == "user" and old.message.author != self.participant_id:
                raise NotAllowed("only a manager may change the message of another participant")
        await self._check_holder(conversation_id, message)
        return await self.inner.replace(conversation_id, message, expected_revision=expected_revision)

    async def _check_holder(self, conversation_id: str, message: Message) -> None:
        """Raise `NotAllowed` for a message that a branch shares with a conversation in which the participant
        may not write: the change would show there as well.
        """
        if not isinstance(self.inner, BranchedStore):
            return
        holder = await self.inner.holder_of(conversation_id, message.message_id)
        # An expired conversation is shown in its branches only.
        record = None if holder == conversation_id else await self.inner.get(holder)
        if record is None:
            return
        participant = self._participant(record)
        if participant is None or not participant.can_write:
            raise NotAllowed("this message belongs to a conversation in which the participant may not write")

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        raise _refused()

    # Documents

    async def _shows(self, kind: str, conversation_id: str | None) -> bool:
        if conversation_id is None:
            # A new conversation gets its lifetime by these rules. Everything else of the owner stays hidden.
            return kind == RETENTION_RULES
        _, participant = await self._seen(conversation_id)
        # Summaries and vectors are made from the whole log.
        return participant.visible_from is None or not is_derived(kind)

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        if conversation_id is None:
            raise _refused()
        participant = await self._as_writer(conversation_id)
        if participant.visible_from is not None and is_derived(kind):
            raise _refused()
        return await self.inner.put_document(
            kind, key, data, conversation_id=conversation_id, expected_version=expected_version
        )

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        if not await self._shows(kind, conversation_id):
            return None
        return await self.inner.get_document(kind, key, conversation_id=conversation_id)

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        if not await self._shows(kind, conversation_id):
            return []
        return await self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        if conversation_id is None:
            return []
        kinds = await self.inner.document_kinds(conversation_id=conversation_id)
        return [kind for kind in kinds if await self._shows(kind, conversation_id)]

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        if conversation_id is None:
            raise _refused()
        await self._as_writer(conversation_id)
        return await self.inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        raise _refused()

    # Retention

    async def purge_expired(self) -> int:
        raise _refused()

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        raise _refused()

    async def clear(self) -> Tally:
        raise _refused()

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is None:
            raise _refused()
        return await self.inner.tally(conversation_id) if await self.get(conversation_id) else Tally()

    # Capabilities

    async def family(self, root_id: str) -> list[Conversation]:
        found = await super().family(root_id)
        return [record for record in found if self._participant(record) is not None]

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch what the participant sees. A conversation that they leave is reported as removed."""
        return self._watch(conversation_id)

    @asynccontextmanager
    async def _watch(self, conversation_id: str | None) -> AsyncIterator[AsyncIterator[Change]]:
        watchable = capability(self.inner, Watchable)
        assert watchable is not None, "callers ask for the capability"
        if conversation_id is not None:
            await self._seen(conversation_id)
        async with watchable.watch(conversation_id) as changes:
            yield self._seen_changes(changes)

    async def _seen_changes(self, changes: AsyncIterator[Change]) -> AsyncIterator[Change]:
        seen: set[str] = set()
        async for change in changes:
            record = await self.inner.get(change.conversation_id)
            if record is not None and self._participant(record) is not None:
                seen.add(change.conversation_id)
                yield change
            elif change.conversation_id in seen or record is None:
                seen.discard(change.conversation_id)
                yield Change(conversation_id=change.conversation_id, revision=None)


def _visible(entries: Sequence[Entry], participant: Participant) -> list[Entry]:
    if participant.visible_from is None:
        return list(entries)
    return [entry for entry in entries if participant.sees(*entry.position)]


def _refused() -> NotAllowed:
    return NotAllowed("a participant has no access to the data of the owner")
