"""The audited layer: record every call to a backend in an audit trail.

`acting_as("support", source="10.0.0.7")` returns a view of the backend that is bound to a caller. The layer
records a read before it returns the result, and a write after it is done. Access to data that do not exist,
or belong to another owner, is recorded as denied. The layer is the outermost, so it also records cache hits.
No content reaches the trail: no message text, subject, tag or error message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

from aforesaid.audit import AuditTrail, Event, Outcome
from aforesaid.contracts import (
    Appended,
    Auditable,
    Auditing,
    Backend,
    Change,
    ConversationStore,
    Listing,
    LogSnapshot,
    Sealable,
    Searchable,
    SnapshotReader,
    Tally,
    VectorSearchable,
    Watchable,
)
from aforesaid.errors import InvalidId, NotFound
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import conversation_key, parse_name
from aforesaid.model.messages import parse_text

# The actor where the application names none.
DEFAULT_ACTOR = "application"


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

    @property
    def trail(self) -> AuditTrail:
        """The trail, to read and verify it."""
        return self._trail

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
        try:
            count = await self.inner.purge_expired(now)
        except BaseException as error:
            await recorder.record_failure("purge", "", error)
            raise
        await recorder.record("purge", count=count)
        return count


def audited(inner: Backend, trail: AuditTrail, caller: Caller = Caller()) -> AuditedBackend:  # noqa: B008
    """Wrap a backend in the audited layer."""
    return AuditedBackend(inner, trail, caller)


class _Recorder:
    """Write the events of one caller and owner to the trail."""

    def __init__(self, trail: AuditTrail, caller: Caller, owner: str) -> None:
        self._trail = trail
        self._caller = caller
        self._owner = owner

    async def record(
        self,
        action: str,
        conversation_id: object = "",
        *,
        outcome: Outcome = "done",
        count: int = 0,
        error: str = "",
    ) -> None:
        """Record one event."""
        await self._trail.record(self.event(action, conversation_id, outcome, count, error))

    async def record_failure(self, action: str, conversation_id: object, error: BaseException) -> None:
        """Record a call that raised. Missing data and data of another owner look the same: denied."""
        outcome: Outcome = "denied" if isinstance(error, NotFound) else "failed"
        await self.record(action, conversation_id, outcome=outcome, error=type(error).__name__)

    async def record_snapshot(self, conversation_id: object, snapshot: LogSnapshot, listing: Listing) -> None:
        """Record the read of a log, and of documents if any were requested, in one write."""
        sequences = {entry.sequence for entry in (*snapshot.front, *snapshot.tail)}  # they may overlap
        events = [self.event("read", conversation_id, count=len(sequences))]
        if listing.limit:
            events.append(self.event("read documents", count=len(snapshot.documents)))
        await self._trail.record(*events)

    def event(
        self,
        action: str,
        conversation_id: object = "",
        outcome: Outcome = "done",
        count: int = 0,
        error: str = "",
    ) -> Event:
        return Event(
            at=self._trail.clock(),
            actor=self._caller.actor,
            source=self._caller.source,
            action=action,
            owner=self._owner,
            conversation=_conversation_for_trail(conversation_id, self._owner),
            outcome=outcome,
            count=count,
            error=error,
        )


# What the trail records: one row for each method


def _first_argument(args: Sequence[Any], options: Mapping[str, Any]) -> object:
    return args[0] if args else options["conversation_id"]


def _option(args: Sequence[Any], options: Mapping[str, Any]) -> object:
    return options.get("conversation_id") or ""


def _optional_argument(args: Sequence[Any], options: Mapping[str, Any]) -> object:
    return (args[0] if args else options.get("conversation_id")) or ""


def _record_argument(args: Sequence[Any], options: Mapping[str, Any]) -> object:
    return (args[0] if args else options["conversation"]).id


def _no_conversation(args: Sequence[Any], options: Mapping[str, Any]) -> object:
    return ""


def _exists(found: object) -> bool:
    return found is not None


def _always(found: object) -> bool:
    return True


def _no_count(found: object) -> int:
    return 0


def _one(found: object) -> int:
    return int(found is not None)


class _Action(NamedTuple):
    """How the trail records a call: the action, and how to get its values from arguments and result."""

    name: str
    conversation: Callable[[Sequence[Any], Mapping[str, Any]], object] = _no_conversation
    count: Callable[[Any], int] = _no_count
    found: Callable[[Any], bool] = _always
    """Whether there was something; if not, the call is recorded as denied."""
    given: Callable[[Sequence[Any]], int] | None = None
    """The count where it follows from the arguments, because the call returns nothing."""


def _messages(tally: Tally) -> int:
    return tally.messages


def _new_messages(done: Appended) -> int:
    return len(done.new)


_ACTIONS: Mapping[str, _Action] = {
    # Records
    "create": _Action("create", _record_argument),
    "get": _Action("look", _first_argument, found=_exists),
    "update": _Action("update", _first_argument),
    "find": _Action("list", count=lambda page: len(page.conversations)),
    "delete": _Action("delete", _first_argument),
    # Sessions; `resume` is below
    "session": _Action("look", found=_exists),
    "bind": _Action("bind", lambda args, options: args[1] if len(args) > 1 else options["conversation_id"]),
    "unbind": _Action("unbind"),
    "sessions": _Action("look", _first_argument, count=len),
    # The log; `read_snapshot` is below
    "append": _Action("append", _first_argument, count=_new_messages),
    "rewrite": _Action("rewrite", _first_argument, count=_new_messages),
    "tail": _Action("read", _first_argument, count=len),
    "recent": _Action("read", _first_argument, count=len),
    "page": _Action("read", _first_argument, count=len),
    "entry": _Action("read", _first_argument, count=_one, found=_exists),
    "replace": _Action("replace", _first_argument, count=_one),
    "restore": _Action("restore", _record_argument, given=lambda args: len(args[1])),
    # Documents
    "put_document": _Action("put document", _option, count=_one),
    "get_document": _Action("read documents", _option, count=_one, found=_exists),
    "documents": _Action("read documents", _option, count=len),
    "document_kinds": _Action("read documents", _option),
    "delete_document": _Action("delete document", _option, count=int, found=bool),
    "restore_documents": _Action("restore", given=lambda args: len(args[0])),
    # Retention
    "purge_expired": _Action("purge", count=int),
    "expired": _Action("list", count=len),
    "clear": _Action("clear", count=_messages),
    "tally": _Action("count", _optional_argument, count=_messages),
}

_CAPABILITY_ACTIONS: Mapping[str, tuple[type, _Action]] = {
    "matches": (Searchable, _Action("match", count=lambda matches: len(matches.found))),
    "nearest": (VectorSearchable, _Action("match", count=lambda found: len(found or ()))),
}


class AuditedStore(StoreWrapper):
    """One owner's store that records every call. `_add_methods` adds the methods of the table."""

    adds = (Auditable,)
    hides = (Sealable,)

    def __init__(self, inner: ConversationStore, recorder: _Recorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def audit_action(self, action: str, conversation_id: str = "", *, count: int = 0) -> None:
        """Record an operation that runs above the store, such as an export."""
        await self._recorder.record(action, conversation_id, count=count)

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

    # Capabilities

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        """See `contracts.SnapshotReader`. One read of the store, so that a window costs one audit write."""
        reader = self.inner_capability(SnapshotReader)
        try:
            snapshot = await reader.read_snapshot(
                conversation_id, front=front, tail=tail, documents=documents
            )
        except BaseException as error:
            await self._recorder.record_failure("read", conversation_id, error)
            raise
        await self._recorder.record_snapshot(conversation_id, snapshot, documents)
        return snapshot

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


def _audited_method(name: str, action: _Action, capability: type | None) -> Callable[..., Awaitable[Any]]:
    """Return the method that calls the inner one, records its outcome, and only then returns its result."""

    async def method(self: AuditedStore, *args: Any, **options: Any) -> Any:
        target = self.inner if capability is None else self.inner_capability(capability)
        recorder, conversation_id = self._recorder, action.conversation(args, options)
        try:
            result = await getattr(target, name)(*args, **options)
        except BaseException as error:
            await recorder.record_failure(action.name, conversation_id, error)
            raise
        outcome: Outcome = "done" if action.found(result) else "denied"
        count = action.count(result) if action.given is None else action.given(args)
        await recorder.record(action.name, conversation_id, outcome=outcome, count=count)
        return result

    method.__name__ = name
    return method


def _add_methods() -> None:
    for name, action in _ACTIONS.items():
        setattr(AuditedStore, name, _audited_method(name, action, None))
    for name, (capability, action) in _CAPABILITY_ACTIONS.items():
        setattr(AuditedStore, name, _audited_method(name, action, capability))


_add_methods()


def _conversation_for_trail(conversation_id: object, owner: str) -> str:
    """Return the conversation's UUID for the trail, never its name. An invalid id may contain anything, so it
    is left out.
    """
    if conversation_id == "":
        return ""
    try:
        return conversation_key(conversation_id, owner=owner).id
    except InvalidId:
        return "not an id"
