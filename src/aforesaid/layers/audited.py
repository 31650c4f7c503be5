"""The audit layer: a backend around a backend, which notes everything that goes through it.

Who acts and from where is bound to a view of the backend: `acting_as("support", source="10.0.0.7")`. A
read is noted before its result is handed out, a write when it is done; what is asked for and is not
there, or not theirs, is noted as denied. It stands outermost, so that it also sees what a cache serves.
No content reaches the trail: not words, not subjects, not tags, not the text of an error.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import cache
from typing import NamedTuple, TypeVar

from aforesaid.audit import AuditTrail, Event, Outcome
from aforesaid.contracts import (
    Appended,
    Backend,
    Change,
    ConversationStore,
    CopyHolder,
    Document,
    Entry,
    Matches,
    Migratable,
    Position,
    Reindexable,
    Scrubbable,
    Searchable,
    Tally,
    VectorMatch,
    VectorSearchable,
    Watchable,
)
from aforesaid.errors import InvalidId, NotFound
from aforesaid.layers._capabilities import around, with_capabilities_of
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message, parse_text

T = TypeVar("T")

DEFAULT_ACTOR = "application"
"""Who acts, where nobody says who."""

BACKEND_POWERS = (Migratable, Scrubbable, CopyHolder, Reindexable)


class Acting(NamedTuple):
    """Who acts, and from where."""

    actor: str = DEFAULT_ACTOR
    source: str = ""


class AuditedBackend(Backend):
    """A backend whose every use is noted in the trail."""

    def __init__(self, inner: Backend, trail: AuditTrail, acting: Acting = Acting()) -> None:  # noqa: B008
        self._inner = inner
        self._trail = trail
        self._acting = acting

    @property
    def inner(self) -> Backend:
        return self._inner

    def acting_as(self, actor: str, *, source: str = "") -> "AuditedBackend":
        """The same backend, its use noted under this name."""
        who = Acting(parse_name(actor, field="actor"), parse_text(source, field="source"))
        return audited(self._inner, self._trail, who)

    async def denied(self, action: str, owner: str = "") -> None:
        """Note that somebody was turned away before they came to the store."""
        await _Notes(self._trail, self._acting, owner).add(action, outcome="denied")

    async def open(self) -> None:
        await self._trail.open()
        await self._inner.open()

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            await self._trail.close()

    def of(self, owner: str) -> "AuditedStore":
        inner = self._inner.of(owner)
        powers = tuple(kind for power, kind in _STORE_POWERS.items() if isinstance(inner, power))
        return _with(powers)(inner, _Notes(self._trail, self._acting, owner))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        notes = _Notes(self._trail, self._acting, "")
        count = 0
        try:
            async for owner in self._inner.owners(ignored_kinds=ignored_kinds):
                count += 1
                yield owner
        finally:
            await notes.add("owners", count=count)

    async def purge_expired(self, now: datetime | None = None) -> int:
        notes = _Notes(self._trail, self._acting, "")
        return await notes.of("purge", self._inner.purge_expired(now), count=int)


def audited(inner: Backend, trail: AuditTrail, acting: Acting = Acting()) -> AuditedBackend:  # noqa: B008
    """The backend, audited, with every power of what is inside."""
    return with_capabilities_of(inner, AuditedBackend(inner, trail, acting), BACKEND_POWERS)


class _Notes:
    """Notes for the trail, about one owner's data."""

    def __init__(self, trail: AuditTrail, acting: Acting, owner: str) -> None:
        self._trail = trail
        self._acting = acting
        self._owner = owner

    async def of(
        self,
        action: str,
        doing: Awaitable[T],
        conversation_id: object = "",
        *,
        count: Callable[[T], int] | None = None,
        found: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Do it, note it, and only then hand out what came of it."""
        try:
            result = await doing
        except BaseException as error:
            outcome: Outcome = "denied" if isinstance(error, NotFound) else "failed"
            await self.add(action, conversation_id, outcome=outcome, error=type(error).__name__)
            raise
        outcome = "done" if found(result) else "denied"
        await self.add(action, conversation_id, outcome=outcome, count=count(result) if count else 0)
        return result

    async def add(
        self,
        action: str,
        conversation_id: object = "",
        *,
        outcome: Outcome = "done",
        count: int = 0,
        error: str = "",
    ) -> None:
        event = Event(
            at=self._trail.clock(),
            actor=self._acting.actor,
            source=self._acting.source,
            action=action,
            owner=self._owner,
            conversation=_shown(conversation_id),
            outcome=outcome,
            count=count,
            error=error,
        )
        await self._trail.record(event)


class AuditedStore(ConversationStore):
    """One owner's part."""

    def __init__(self, inner: ConversationStore, notes: _Notes) -> None:
        self._inner = inner
        self._notes = notes

    async def audit_action(self, action: str, conversation_id: str = "", *, count: int = 0) -> None:
        await self._notes.add(action, conversation_id, count=count)

    def now(self) -> datetime:
        return self._inner.now()

    @property
    def degraded(self) -> bool:
        return self._inner.degraded

    async def authoritative(self) -> "AuditedStore":
        return around(self, await self._inner.authoritative())

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._notes.of("create", self._inner.create(conversation), conversation.id)

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self._notes.of(
            "look", self._inner.get(conversation_id), conversation_id, found=_is_there
        )

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        doing = self._inner.update(conversation_id, changes, expected_revision=expected_revision)
        return await self._notes.of("update", doing, conversation_id)

    async def find(self, query: Query) -> Page:
        return await self._notes.of(
            "list", self._inner.find(query), count=lambda page: len(page.conversations)
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        doing = self._inner.delete(conversation_id, expected_revision=expected_revision)
        return await self._notes.of("delete", doing, conversation_id)

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        try:
            record = await self._inner.resume(session_id, fresh, active_since=active_since)
        except BaseException as error:
            await self._notes.add("resume", outcome="failed", error=type(error).__name__)
            raise
        await self._notes.add("create" if record.id == fresh.id else "look", record.id)
        return record

    async def session(self, session_id: str) -> Conversation | None:
        return await self._notes.of("look", self._inner.session(session_id), found=_is_there)

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._notes.of("bind", self._inner.bind(session_id, conversation_id), conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self._notes.of("unbind", self._inner.unbind(session_id))

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._notes.of("look", self._inner.sessions(conversation_id), conversation_id, count=len)

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        doing = self._inner.append(conversation_id, messages, expected_revision=expected_revision)
        return await self._notes.of("append", doing, conversation_id, count=lambda done: len(done.new))

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        doing = self._inner.rewrite(conversation_id, messages, expected_revision=expected_revision)
        return await self._notes.of("rewrite", doing, conversation_id, count=lambda done: len(done.new))

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        doing = self._inner.tail(conversation_id, limit=limit, before=before)
        return await self._notes.of("read", doing, conversation_id, count=len)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        doing = self._inner.recent(conversation_id, limit=limit, before=before)
        return await self._notes.of("read", doing, conversation_id, count=len)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        doing = self._inner.page(conversation_id, limit=limit, offset=offset)
        return await self._notes.of("read", doing, conversation_id, count=len)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        doing = self._inner.entry(conversation_id, message_id)
        return await self._notes.of("read", doing, conversation_id, count=_one, found=_is_there)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        doing = self._inner.replace(conversation_id, message, expected_revision=expected_revision)
        return await self._notes.of("replace", doing, conversation_id, count=_one)

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        doing = self._inner.restore(conversation, entries)
        await self._notes.of("restore", doing, conversation.id, count=lambda _: len(entries))

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
        doing = self._inner.put_document(
            kind, key, data, conversation_id=conversation_id, expected_version=expected_version
        )
        return await self._notes.of("put document", doing, conversation_id or "", count=_one)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        doing = self._inner.get_document(kind, key, conversation_id=conversation_id)
        return await self._notes.of(
            "read documents", doing, conversation_id or "", count=_one, found=_is_there
        )

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        doing = self._inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)
        return await self._notes.of("read documents", doing, conversation_id or "", count=len)

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        doing = self._inner.document_kinds(conversation_id=conversation_id)
        return await self._notes.of("read documents", doing, conversation_id or "")

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        doing = self._inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )
        return await self._notes.of("delete document", doing, conversation_id or "", count=int, found=bool)

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        doing = self._inner.restore_documents(documents)
        await self._notes.of("restore", doing, count=lambda _: len(documents))

    # Retention

    async def purge_expired(self) -> int:
        return await self._notes.of("purge", self._inner.purge_expired(), count=int)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self._notes.of("list", self._inner.expired(by=by, limit=limit), count=len)

    async def clear(self) -> Tally:
        return await self._notes.of("clear", self._inner.clear(), count=lambda gone: gone.messages)

    async def tally(self, conversation_id: str | None = None) -> Tally:
        doing = self._inner.tally(conversation_id)
        return await self._notes.of("count", doing, conversation_id or "", count=lambda held: held.messages)


class _Watched(AuditedStore):
    """Where the store inside can be watched."""

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        assert isinstance(self._inner, Watchable)
        return self._watching(self._inner.watch(conversation_id), conversation_id or "")

    @asynccontextmanager
    async def _watching(
        self, watching: AbstractAsyncContextManager[AsyncIterator[Change]], conversation_id: str
    ) -> AsyncIterator[AsyncIterator[Change]]:
        async with watching as changes:
            await self._notes.add("watch", conversation_id)
            yield changes


class _Searched(AuditedStore):
    """Where the store inside has an index."""

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        assert isinstance(self._inner, Searchable)
        doing = self._inner.matches(terms, limit=limit)
        return await self._notes.of("match", doing, count=lambda found: len(found.found))


class _Compared(AuditedStore):
    """Where the store inside compares vectors."""

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        assert isinstance(self._inner, VectorSearchable)
        doing = self._inner.nearest(model, vector, limit=limit, around=around)
        return await self._notes.of("match", doing, count=lambda found: len(found or ()))


_STORE_POWERS: dict[type, type[AuditedStore]] = {
    Watchable: _Watched,
    Searchable: _Searched,
    VectorSearchable: _Compared,
}


@cache
def _with(powers: tuple[type[AuditedStore], ...]) -> type[AuditedStore]:
    return type("AuditedStore", powers or (AuditedStore,), {})


def _is_there(found: object) -> bool:
    return found is not None


def _one(found: object) -> int:
    return int(found is not None)


def _shown(conversation_id: object) -> str:
    """A conversation id as the trail keeps it: what is no id may be anything, and is left out."""
    if conversation_id == "":
        return ""
    try:
        return parse_uuid(conversation_id, field="conversation_id")
    except InvalidId:
        return "not an id"
