"""The audited layer: record every call to a backend in an audit trail.

`acting_as("support", source="10.0.0.7")` returns a view of the backend that is bound to a caller. The layer
records a read before it returns the result, and a write after it is done. Access to data that do not exist,
or belong to another owner, is recorded as denied. The layer is the outermost, so it also records cache hits.
No content reaches the trail: no message text, subject, tag or error message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import NamedTuple, TypeVar

from aforesaid.audit import AuditTrail, Event, Outcome
from aforesaid.contracts import (
    Appended,
    Auditable,
    Auditing,
    Backend,
    Change,
    ConversationStore,
    Document,
    Entry,
    Matches,
    Position,
    Sealable,
    Searchable,
    SnapshotReader,
    Tally,
    VectorMatch,
    VectorSearchable,
    Watchable,
)
from aforesaid.errors import InvalidId, NotFound
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message, parse_text

T = TypeVar("T")

DEFAULT_ACTOR = "application"
"""The actor where the application names none."""


class Caller(NamedTuple):
    """The actor, and where its request comes from."""

    actor: str = DEFAULT_ACTOR
    source: str = ""


class AuditedBackend(BackendWrapper):
    """A backend that records every call in the trail."""

    adds = (Auditing,)

    def __init__(self, inner: Backend, trail: AuditTrail, caller: Caller = Caller()) -> None:  # noqa: B008
        super().__init__(inner)
        self._trail = trail
        self._caller = caller

    def acting_as(self, actor: str, *, source: str = "") -> "AuditedBackend":
        """Return a view of this backend that records calls under this actor."""
        caller = Caller(parse_name(actor, field="actor"), parse_text(source, field="source"))
        return audited(self.inner, self._trail, caller)

    async def denied(self, action: str, owner: str = "") -> None:
        """Record a request that was refused before it reached the store."""
        await _Recorder(self._trail, self._caller, owner).record(action, outcome="denied")

    async def open(self) -> None:
        await self._trail.open()
        await self.inner.open()

    async def close(self) -> None:
        try:
            await self.inner.close()
        finally:
            await self._trail.close()

    def of(self, owner: str) -> "AuditedStore":
        return AuditedStore(self.inner.of(owner), _Recorder(self._trail, self._caller, owner))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        recorder = _Recorder(self._trail, self._caller, "")
        count = 0
        try:
            async for owner in self.inner.owners(ignored_kinds=ignored_kinds):
                count += 1
                yield owner
        finally:
            await recorder.record("owners", count=count)

    async def purge_expired(self, now: datetime | None = None) -> int:
        recorder = _Recorder(self._trail, self._caller, "")
        return await recorder.run("purge", self.inner.purge_expired(now), count=int)


def audited(inner: Backend, trail: AuditTrail, caller: Caller = Caller()) -> AuditedBackend:  # noqa: B008
    """Wrap a backend in the audited layer."""
    return AuditedBackend(inner, trail, caller)


class _Recorder:
    """Write the events of one caller and owner to the trail."""

    def __init__(self, trail: AuditTrail, caller: Caller, owner: str) -> None:
        self._trail = trail
        self._caller = caller
        self._owner = owner

    async def run(
        self,
        action: str,
        call: Awaitable[T],
        conversation_id: object = "",
        *,
        count: Callable[[T], int] | None = None,
        found: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Await the call, record its outcome, and only then return its result."""
        try:
            result = await call
        except BaseException as error:
            outcome: Outcome = "denied" if isinstance(error, NotFound) else "failed"
            await self.record(action, conversation_id, outcome=outcome, error=type(error).__name__)
            raise
        outcome = "done" if found(result) else "denied"
        await self.record(action, conversation_id, outcome=outcome, count=count(result) if count else 0)
        return result

    async def record(
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
            actor=self._caller.actor,
            source=self._caller.source,
            action=action,
            owner=self._owner,
            conversation=_conversation_for_trail(conversation_id),
            outcome=outcome,
            count=count,
            error=error,
        )
        await self._trail.record(event)


class AuditedStore(StoreWrapper):
    """One owner's store that records every call."""

    adds = (Auditable,)
    # The trail would not record a snapshot.
    hides = (SnapshotReader, Sealable)

    def __init__(self, inner: ConversationStore, recorder: _Recorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def audit_action(self, action: str, conversation_id: str = "", *, count: int = 0) -> None:
        """Record an operation that runs above the store, such as an export."""
        await self._recorder.record(action, conversation_id, count=count)

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._recorder.run("create", self.inner.create(conversation), conversation.id)

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self._recorder.run(
            "look", self.inner.get(conversation_id), conversation_id, found=_exists
        )

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        call = self.inner.update(conversation_id, changes, expected_revision=expected_revision)
        return await self._recorder.run("update", call, conversation_id)

    async def find(self, query: Query) -> Page:
        return await self._recorder.run(
            "list", self.inner.find(query), count=lambda page: len(page.conversations)
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        call = self.inner.delete(conversation_id, expected_revision=expected_revision)
        return await self._recorder.run("delete", call, conversation_id)

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        try:
            record = await self.inner.resume(session_id, fresh, active_since=active_since)
        except BaseException as error:
            await self._recorder.record("resume", outcome="failed", error=type(error).__name__)
            raise
        await self._recorder.record("create" if record.id == fresh.id else "look", record.id)
        return record

    async def session(self, session_id: str) -> Conversation | None:
        return await self._recorder.run("look", self.inner.session(session_id), found=_exists)

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._recorder.run("bind", self.inner.bind(session_id, conversation_id), conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self._recorder.run("unbind", self.inner.unbind(session_id))

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._recorder.run(
            "look", self.inner.sessions(conversation_id), conversation_id, count=len
        )

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        call = self.inner.append(conversation_id, messages, expected_revision=expected_revision)
        return await self._recorder.run("append", call, conversation_id, count=lambda done: len(done.new))

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        call = self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)
        return await self._recorder.run("rewrite", call, conversation_id, count=lambda done: len(done.new))

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        call = self.inner.tail(conversation_id, limit=limit, before=before)
        return await self._recorder.run("read", call, conversation_id, count=len)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        call = self.inner.recent(conversation_id, limit=limit, before=before)
        return await self._recorder.run("read", call, conversation_id, count=len)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        call = self.inner.page(conversation_id, limit=limit, offset=offset)
        return await self._recorder.run("read", call, conversation_id, count=len)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        call = self.inner.entry(conversation_id, message_id)
        return await self._recorder.run("read", call, conversation_id, count=_one, found=_exists)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        call = self.inner.replace(conversation_id, message, expected_revision=expected_revision)
        return await self._recorder.run("replace", call, conversation_id, count=_one)

    # Moving

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        call = self.inner.restore(conversation, entries)
        await self._recorder.run("restore", call, conversation.id, count=lambda _: len(entries))

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
        call = self.inner.put_document(
            kind, key, data, conversation_id=conversation_id, expected_version=expected_version
        )
        return await self._recorder.run("put document", call, conversation_id or "", count=_one)

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        call = self.inner.get_document(kind, key, conversation_id=conversation_id)
        return await self._recorder.run(
            "read documents", call, conversation_id or "", count=_one, found=_exists
        )

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        call = self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)
        return await self._recorder.run("read documents", call, conversation_id or "", count=len)

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        call = self.inner.document_kinds(conversation_id=conversation_id)
        return await self._recorder.run("read documents", call, conversation_id or "")

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        call = self.inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )
        return await self._recorder.run("delete document", call, conversation_id or "", count=int, found=bool)

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        call = self.inner.restore_documents(documents)
        await self._recorder.run("restore", call, count=lambda _: len(documents))

    # Retention

    async def purge_expired(self) -> int:
        return await self._recorder.run("purge", self.inner.purge_expired(), count=int)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self._recorder.run("list", self.inner.expired(by=by, limit=limit), count=len)

    async def clear(self) -> Tally:
        return await self._recorder.run("clear", self.inner.clear(), count=lambda gone: gone.messages)

    async def tally(self, conversation_id: str | None = None) -> Tally:
        call = self.inner.tally(conversation_id)
        return await self._recorder.run(
            "count", call, conversation_id or "", count=lambda held: held.messages
        )

    # Capabilities

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        watching = self.inner_capability(Watchable).watch(conversation_id)
        return self._watching(watching, conversation_id or "")

    @asynccontextmanager
    async def _watching(
        self, watching: AbstractAsyncContextManager[AsyncIterator[Change]], conversation_id: str
    ) -> AsyncIterator[AsyncIterator[Change]]:
        async with watching as changes:
            await self._recorder.record("watch", conversation_id)
            yield changes

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        call = self.inner_capability(Searchable).matches(terms, limit=limit)
        return await self._recorder.run("match", call, count=lambda found: len(found.found))

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        call = self.inner_capability(VectorSearchable).nearest(model, vector, limit=limit, around=around)
        return await self._recorder.run("match", call, count=lambda found: len(found or ()))


def _exists(found: object) -> bool:
    return found is not None


def _one(found: object) -> int:
    return int(found is not None)


def _conversation_for_trail(conversation_id: object) -> str:
    """Return the conversation id for the trail. An invalid id may contain anything, so it is left out."""
    if conversation_id == "":
        return ""
    try:
        return parse_uuid(conversation_id, field="conversation_id")
    except InvalidId:
        return "not an id"
