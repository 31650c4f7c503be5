"""The store in memory: the model that every other store is compared with. Nothing outlives it."""

from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from msgspec import Struct

from recollect.clock import Clock, from_micros, system_clock, to_micros
from recollect.contracts import Appended, Backend, ConversationStore, Entry, Position
from recollect.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    applied,
    check_count,
    check_revision,
    cursor_of,
    emptied,
    extended,
    is_expired,
    parse_cursor,
    stamp_for,
)
from recollect.errors import (
    ConversationExists,
    ConversationNotFound,
    MessageConflict,
    StoreClosed,
)
from recollect.ids import parse_name, parse_uuid
from recollect.messages import Message
from recollect.stores.urls import Address
from recollect.wire import decode_message, encode_message


def backend(address: Address, clock: Clock) -> "InMemoryBackend":
    """Open `memory://`, with `?max_messages=N` to bound what each conversation keeps."""
    options = address.take(max_messages=int)
    return InMemoryBackend(clock=clock, **options)  # type: ignore[arg-type]


class _Slot(Struct, frozen=True):
    """A message in its place, as bytes: what was handed in can be changed by the caller, this cannot."""

    position: Position
    revision: int
    stored_at: datetime
    body: bytes


class _Log(Struct, kw_only=True):
    """One conversation."""

    record: Conversation
    slots: list[_Slot] = []
    by_id: dict[str, _Slot] = {}
    next_sequence: int = 1


class _Shelf(Struct):
    """One owner's conversations and sessions."""

    logs: dict[str, _Log] = {}
    sessions: dict[str, str] = {}


class InMemoryBackend(Backend):
    """Everything in dictionaries. `max_messages` drops a conversation's oldest beyond that many."""

    def __init__(self, *, clock: Clock = system_clock, max_messages: int | None = None) -> None:
        if max_messages is not None:
            check_count(max_messages, field="max_messages", least=1)
        self.clock = clock
        self.max_messages = max_messages
        self.closed = False
        self.shelves: dict[str, _Shelf] = {}

    async def open(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def of(self, owner: str) -> "InMemoryStore":
        return InMemoryStore(self, parse_name(owner, field="owner"))

    async def owners(self) -> AsyncIterator[str]:
        for owner, shelf in sorted(self.shelves.items()):
            if shelf.logs:
                yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        self.check_open()
        return sum(_purge(shelf, now or self.clock()) for shelf in self.shelves.values())

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed


class InMemoryStore(ConversationStore):
    """One owner's part of the backend. No method waits, so each is atomic as it stands."""

    def __init__(self, backend: InMemoryBackend, owner: str) -> None:
        self._backend = backend
        self._owner = owner

    def now(self) -> datetime:
        return self._backend.clock()

    async def create(self, conversation: Conversation) -> Conversation:
        shelf = self._shelf()
        if self._alive(conversation.id) is not None:
            raise ConversationExists(conversation.id)
        _remove(shelf, conversation.id)
        shelf.logs[conversation.id] = _Log(record=conversation)
        return conversation

    async def get(self, conversation_id: str) -> Conversation | None:
        log = self._alive(parse_uuid(conversation_id, field="conversation_id"))
        return log.record if log else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        log = self._log(conversation_id)
        check_revision(log.record.id, log.record.revision, expected_revision)
        log.record = applied(log.record, changes, now=self.now())
        return log.record

    async def find(self, query: Query) -> Page:
        now = self.now()
        records = [log.record for log in self._shelf().logs.values() if not is_expired(log.record, now=now)]
        found = sorted((r for r in records if query.matches(r)), key=_activity, reverse=True)
        if query.after is not None:
            after = parse_cursor(query.after)
            found = [record for record in found if _activity(record) < after]
        shown = found[: query.limit]
        return Page(
            conversations=tuple(shown), next=cursor_of(shown[-1]) if len(found) > query.limit else None
        )

    async def delete(self, conversation_id: str) -> None:
        _remove(self._shelf(), parse_uuid(conversation_id, field="conversation_id"))

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        bound = await self.session(session_id)
        if bound is not None and (active_since is None or bound.last_activity >= active_since):
            return bound
        await self.create(fresh)
        self._shelf().sessions[session_id] = fresh.id
        return fresh

    async def session(self, session_id: str) -> Conversation | None:
        conversation_id = self._shelf().sessions.get(parse_name(session_id, field="session_id"))
        log = self._alive(conversation_id) if conversation_id else None
        return log.record if log else None

    async def bind(self, session_id: str, conversation_id: str) -> None:
        parse_name(session_id, field="session_id")
        self._shelf().sessions[session_id] = self._log(conversation_id).record.id

    async def unbind(self, session_id: str) -> None:
        self._shelf().sessions.pop(parse_name(session_id, field="session_id"), None)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        bodies = [encode_message(message) for message in messages]
        log = self._log(conversation_id)
        new, known = _sort_out(log, messages, bodies, now=self.now())
        if new or not messages:
            check_revision(log.record.id, log.record.revision, expected_revision)
        if new:
            self._put(log, new)
        return self._appended(log, new, known)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        bodies = [encode_message(message) for message in messages]
        log = self._log(conversation_id)
        check_revision(log.record.id, log.record.revision, expected_revision)
        fresh = _Log(record=emptied(log.record), next_sequence=log.next_sequence)
        new, known = _sort_out(fresh, messages, bodies, now=self.now())
        self._put(fresh, new)
        self._shelf().logs[log.record.id] = fresh
        return self._appended(fresh, new, known)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        log = self._log(conversation_id)
        end = len(log.slots) if before is None else bisect_left(log.slots, before, key=_position)
        return [_entry(log, slot) for slot in log.slots[max(0, end - limit) : end]]

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        log = self._log(conversation_id)
        return [_entry(log, slot) for slot in log.slots[offset : offset + limit]]

    async def purge_expired(self) -> int:
        return _purge(self._shelf(), self.now())

    def _shelf(self) -> _Shelf:
        self._backend.check_open()
        return self._backend.shelves.setdefault(self._owner, _Shelf())

    def _alive(self, conversation_id: str) -> _Log | None:
        log = self._shelf().logs.get(conversation_id)
        return None if log is None or is_expired(log.record, now=self.now()) else log

    def _log(self, conversation_id: str) -> _Log:
        log = self._alive(parse_uuid(conversation_id, field="conversation_id"))
        if log is None:
            raise ConversationNotFound(conversation_id)
        return log

    def _put(self, log: _Log, new: list[tuple[Message, _Slot]]) -> None:
        log.record = extended(log.record, [message for message, _ in new], now=self.now())
        log.next_sequence += len(new)
        for message, slot in new:
            insort(log.slots, slot, key=_position)
            if message.message_id is not None:
                log.by_id[message.message_id] = slot
        surplus = len(log.slots) - (self._backend.max_messages or len(log.slots))
        for slot in log.slots[:surplus]:
            log.by_id.pop(decode_message(slot.body).message_id or "", None)
        del log.slots[:surplus]

    def _appended(self, log: _Log, new: list[tuple[Message, _Slot]], known: list[_Slot]) -> Appended:
        return Appended(
            conversation=log.record,
            new=tuple(_entry(log, slot) for _, slot in new),
            known=tuple(_entry(log, slot) for slot in known),
        )


def _sort_out(
    log: _Log, messages: Sequence[Message], bodies: Sequence[bytes], *, now: datetime
) -> tuple[list[tuple[Message, _Slot]], list[_Slot]]:
    """Which of these messages are new, each in the place that it will have, and which are known."""
    stamp = stamp_for(log.record.last_message_at, now=now)
    new: list[tuple[Message, _Slot]] = []
    known: list[_Slot] = []
    seen = dict[str, _Slot]()
    for message, body in zip(messages, bodies, strict=True):
        message_id = message.message_id
        earlier = seen.get(message_id) or log.by_id.get(message_id) if message_id is not None else None
        if earlier is not None:
            if not decode_message(earlier.body).says_the_same_as(message):
                raise MessageConflict(log.record.id, str(message_id))
            known.append(earlier)
            continue
        stamped = message if message.timestamp else message.with_(timestamp=stamp)
        position = Position(to_micros(stamped.timestamp or stamp), log.next_sequence + len(new))
        slot = _Slot(position, log.record.revision + 1, now, body)
        new.append((stamped, slot))
        if message_id is not None:
            seen[message_id] = slot
    return new, known


def _entry(log: _Log, slot: _Slot) -> Entry:
    message = decode_message(slot.body)
    return Entry(
        conversation_id=log.record.id,
        sequence=slot.position.sequence,
        revision=slot.revision,
        stored_at=slot.stored_at,
        message=message if message.timestamp else message.with_(timestamp=from_micros(slot.position.micros)),
    )


def _position(slot: _Slot) -> Position:
    return slot.position


def _activity(record: Conversation) -> tuple[int, str]:
    return to_micros(record.last_activity), record.id


def _purge(shelf: _Shelf, now: datetime) -> int:
    expired = [log.record.id for log in shelf.logs.values() if is_expired(log.record, now=now)]
    for conversation_id in expired:
        _remove(shelf, conversation_id)
    return len(expired)


def _remove(shelf: _Shelf, conversation_id: str) -> None:
    shelf.logs.pop(conversation_id, None)
    for session_id in [s for s, bound in shelf.sessions.items() if bound == conversation_id]:
        del shelf.sessions[session_id]
