"""Pass-through wrappers: a layer derives from them and overrides only what it changes."""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Self

from aforesaid.contracts import (
    Appended,
    Backend,
    ConversationStore,
    Document,
    Entry,
    Position,
    Tally,
    Wrapper,
)
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.messages import Message


class BackendWrapper(Wrapper, Backend):
    """A backend that forwards every call to `inner`."""

    inner: Backend

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    def of(self, owner: str) -> ConversationStore:
        return self.inner.of(owner)

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self.inner.owners(ignored_kinds=ignored_kinds)

    async def purge_expired(self, now: datetime | None = None) -> int:
        return await self.inner.purge_expired(now)


class StoreWrapper(Wrapper, ConversationStore):
    """One owner's store that forwards every call to `inner`.

    `load` and `save` are inherited, not forwarded: they call the other methods, which a layer may override.
    """

    inner: ConversationStore

    @property
    def owner(self) -> str:
        return self.inner.owner

    def now(self) -> datetime:
        return self.inner.now()

    @property
    def degraded(self) -> bool:
        return self.inner.degraded

    async def authoritative(self) -> Self:
        return self.with_inner(await self.inner.authoritative())

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self.inner.create(conversation)

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self.inner.get(conversation_id)

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return await self.inner.update(conversation_id, changes, expected_revision=expected_revision)

    async def find(self, query: Query) -> Page:
        return await self.inner.find(query)

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self.inner.delete(conversation_id, expected_revision=expected_revision)

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return await self.inner.resume(session_id, fresh, active_since=active_since)

    async def session(self, session_id: str) -> Conversation | None:
        return await self.inner.session(session_id)

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self.inner.bind(session_id, conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self.inner.unbind(session_id)

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self.inner.sessions(conversation_id)

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self.inner.append(conversation_id, messages, expected_revision=expected_revision)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self.inner.tail(conversation_id, limit=limit, before=before)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self.inner.recent(conversation_id, limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return await self.inner.page(conversation_id, limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return await self.inner.entry(conversation_id, message_id)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        return await self.inner.replace(conversation_id, message, expected_revision=expected_revision)

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        await self.inner.restore(conversation, entries)

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
        return await self.inner.put_document(
            kind, key, data, conversation_id=conversation_id, expected_version=expected_version
        )

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        return await self.inner.get_document(kind, key, conversation_id=conversation_id)

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self.inner.document_kinds(conversation_id=conversation_id)

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        return await self.inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        await self.inner.restore_documents(documents)

    # Retention

    async def purge_expired(self) -> int:
        return await self.inner.purge_expired()

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self.inner.expired(by=by, limit=limit)

    async def clear(self) -> Tally:
        return await self.inner.clear()

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return await self.inner.tally(conversation_id)
