"""One owner's conversations in dictionaries: the whole behaviour of a store, without the waiting.

Below: the rules of `conversations`. Above: the stores that keep everything in memory, be it alone
or in front of a file. Each call is one step: what it refuses, it refuses before it changes
anything. The time is handed in; a `OwnerData` belongs to one thread at a time.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from aforesaid.contracts import (
    Appended,
    Document,
    Entry,
    Listing,
    LogEnd,
    Place,
    Position,
    Tally,
    check_head,
    check_not_partly_stored,
    check_position,
    check_same_content,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    unreadable_entry,
    without_head,
)
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    MessageConflict,
    MessageNotFound,
    StoreDamaged,
)
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    applied,
    check_count,
    check_revision,
    cursor_of,
    emptied,
    end_of,
    extended,
    is_expired,
    parse_cursor,
    stamp_for,
    touched,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message, encode_message


class Packed(NamedTuple):
    """A message on its way in, and its body: the caller can change what was handed in, but not bytes."""

    message: Message
    body: bytes


def pack(messages: Sequence[Message]) -> list[Packed]:
    """The messages with their bodies. Refuses what is not JSON, so call it before anything is changed."""
    return [Packed(message, encode_message(message)) for message in messages]


class Slot(Struct, frozen=True):
    """A message in its place, as bytes. The body always holds the timestamp, given or stamped."""

    position: Position
    revision: int
    stored_at: datetime
    body: bytes


class Log(Struct, kw_only=True):
    """One conversation: its record and its slots in reading order."""

    record: Conversation
    slots: list[Slot] = []
    by_id: dict[str, Slot] = {}
    next_sequence: int = 1
    documents: dict[Place, Document] = {}
    head: str | None = None
    """The sealed head of the log; see `contracts.Sealable`."""

    def copy(self) -> "Log":
        return Log(
            record=self.record,
            slots=self.slots.copy(),
            by_id=self.by_id.copy(),
            next_sequence=self.next_sequence,
            documents=self.documents.copy(),
            head=self.head,
        )


Placed: TypeAlias = list[tuple[Message, Slot]]
Placing: TypeAlias = tuple[str | None, Slot]
"""A message id and the slot that holds the message."""


class OwnerData(Struct, kw_only=True):
    """One owner's conversations, sessions and documents. `max_messages` bounds each conversation."""

    logs: dict[str, Log] = {}
    sessions: dict[str, str] = {}
    documents: dict[Place, Document] = {}
    max_messages: int | None = None
    forgotten: int = 0
    """How often something was taken away. A store with copies elsewhere sees by it that they must go too."""

    def copy(self) -> "OwnerData":
        """A shelf that can be changed without changing this one. Slots never change and are shared."""
        return OwnerData(
            logs={conversation_id: log.copy() for conversation_id, log in self.logs.items()},
            sessions=self.sessions.copy(),
            documents=self.documents.copy(),
            max_messages=self.max_messages,
            forgotten=self.forgotten,
        )

    def holds_anything(self, *, ignored_kinds: Collection[str] = ()) -> bool:
        """Whether there is a conversation, expired or not, or a document of no kind in `ignored_kinds`."""
        return bool(self.logs) or any(place.kind not in ignored_kinds for place in self.documents)

    # Records

    def create(self, conversation: Conversation, *, now: datetime) -> Conversation:
        if self._alive(conversation.id, now) is not None:
            raise ConversationExists(conversation.id)
        self._remove(conversation.id)
        self.logs[conversation.id] = Log(record=conversation)
        return conversation

    def get(self, conversation_id: str, *, now: datetime) -> Conversation | None:
        log = self._alive(parse_uuid(conversation_id, field="conversation_id"), now)
        return log.record if log else None

    def update(
        self, conversation_id: str, changes: Changes, *, now: datetime, expected_revision: int | None = None
    ) -> Conversation:
        log = self._log(conversation_id, now)
        check_revision(log.record.id, log.record.revision, expected_revision)
        log.record = applied(log.record, changes, now=now)
        return log.record

    def find(self, query: Query, *, now: datetime) -> Page:
        records = [log.record for log in self.logs.values() if not is_expired(log.record, now=now)]
        found = sorted((r for r in records if query.matches(r)), key=_activity, reverse=True)
        if query.after is not None:
            after = parse_cursor(query.after)
            found = [record for record in found if _activity(record) < after]
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        log = self.logs.get(conversation_id)
        if log is None:
            return Tally()
        check_revision(conversation_id, log.record.revision, expected_revision)
        gone = self.tally(conversation_id)
        self._remove(conversation_id)
        return gone

    # Sessions

    def resume(
        self, session_id: str, fresh: Conversation, *, now: datetime, active_since: datetime | None = None
    ) -> Conversation:
        bound = self.active_session(session_id, now=now, active_since=active_since)
        if bound is not None:
            return bound
        self.create(fresh, now=now)
        self.sessions[session_id] = fresh.id
        return fresh

    def session(self, session_id: str, *, now: datetime) -> Conversation | None:
        conversation_id = self.sessions.get(parse_name(session_id, field="session_id"))
        log = self._alive(conversation_id, now) if conversation_id else None
        return log.record if log else None

    def active_session(
        self, session_id: str, *, now: datetime, active_since: datetime | None
    ) -> Conversation | None:
        """What `resume` goes on with; None when it starts afresh."""
        bound = self.session(session_id, now=now)
        if bound is None or active_since is None or bound.last_activity >= active_since:
            return bound
        return None

    def bind(self, session_id: str, conversation_id: str, *, now: datetime) -> None:
        parse_name(session_id, field="session_id")
        self.sessions[session_id] = self._log(conversation_id, now).record.id

    def unbind(self, session_id: str) -> None:
        self.sessions.pop(parse_name(session_id, field="session_id"), None)

    def bound_to(self, conversation_id: str, *, now: datetime) -> list[str]:
        found = self._log(conversation_id, now).record.id
        return sorted(session_id for session_id, bound in self.sessions.items() if bound == found)

    # The log

    def append(
        self,
        conversation_id: str,
        turn: Sequence[Packed],
        *,
        now: datetime,
        expected_revision: int | None = None,
        head: str | None = None,
    ) -> Appended:
        head, seen = split_head(head)
        log = self._log(conversation_id, now)
        new, known = sort_out(log, turn, now=now)
        check_not_partly_stored(log.record.id, head, new=len(new), known=len(known))
        if new or not turn:
            check_revision(log.record.id, log.record.revision, expected_revision)
        if new:
            check_head(log.record.id, log.record.revision, log.head, seen)
            self._put(log, new, now)
            log.head = head or log.head
        return _appended(log, new, known)

    def rewrite(
        self,
        conversation_id: str,
        turn: Sequence[Packed],
        *,
        now: datetime,
        expected_revision: int | None = None,
        head: str | None = None,
    ) -> Appended:
        log = self._log(conversation_id, now)
        check_revision(log.record.id, log.record.revision, expected_revision)
        fresh = Log(record=emptied(log.record), next_sequence=log.next_sequence, head=head)
        new, known = sort_out(fresh, turn, now=now)
        check_not_partly_stored(log.record.id, head, new=len(new), known=len(known))
        self._put(fresh, new, now)
        self.logs[log.record.id] = fresh
        self.forgotten += bool(log.slots or log.documents)
        return _appended(fresh, new, known)

    def tail(
        self, conversation_id: str, *, now: datetime, limit: int, before: Position | None = None
    ) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        log = self._log(conversation_id, now)
        end = len(log.slots) if before is None else bisect_left(log.slots, before, key=_position)
        return [_entry(log, slot) for slot in log.slots[max(0, end - limit) : end]]

    def page(self, conversation_id: str, *, now: datetime, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        log = self._log(conversation_id, now)
        return [_entry(log, slot) for slot in log.slots[offset : offset + limit]]

    def entry(self, conversation_id: str, message_id: str, *, now: datetime) -> Entry | None:
        log = self._log(conversation_id, now)
        slot = log.by_id.get(parse_name(message_id, field="message_id"))
        return _entry(log, slot) if slot else None

    def replace(
        self, conversation_id: str, message: Message, *, now: datetime, expected_revision: int | None = None
    ) -> Entry:
        message_id = replaced_id(message)
        (message,), head = without_head([message])
        log = self._log(conversation_id, now)
        held = log.by_id.get(message_id)
        if held is None:
            raise MessageNotFound(log.record.id, message_id)
        before = _entry(log, held)
        body = encode_message(replacement_message(before, message))
        check_revision(log.record.id, log.record.revision, expected_revision)
        slot = Slot(held.position, log.record.revision + 1, held.stored_at, body)
        log.slots[bisect_left(log.slots, held.position, key=_position)] = slot
        log.by_id[message_id] = slot
        log.head = head or log.head
        log.record = touched(log.record, now=now)
        if not same_content(before, message):
            log.documents.clear()
        self.forgotten += 1
        return _entry(log, slot)

    # Sealing

    def log_end(self, conversation_id: str, *, now: datetime) -> LogEnd | None:
        log = self._alive(parse_uuid(conversation_id, field="conversation_id"), now)
        if log is None:
            return None
        return LogEnd(log.record.revision, log.next_sequence, log.record.last_message_at, log.head)

    def reseal(self, conversation_id: str, entries: Sequence[Entry], *, now: datetime) -> int:
        log = self._log(conversation_id, now)
        bodies = {(e.position, e.revision): encode_message(e.message) for e in entries}
        exchanged = 0
        for at, slot in enumerate(log.slots):
            body = bodies.get((slot.position, slot.revision))
            if body is not None:
                _exchange(log, at, Slot(slot.position, slot.revision, slot.stored_at, body))
                exchanged += 1
        self.forgotten += bool(exchanged)
        return exchanged

    def exchange_head(self, conversation_id: str, old: str | None, new: str, *, now: datetime) -> bool:
        log = self._log(conversation_id, now)
        if log.head != old:
            return False
        log.head = new
        return True

    # Moving

    def restore(
        self, record: Conversation, slots: Sequence[Placing], *, now: datetime, head: str | None = None
    ) -> None:
        log = self.logs.get(record.id)
        if log is not None and is_expired(log.record, now=now) and not is_expired(record, now=now):
            log = None
        new = _not_there(log, record.id, slots)
        if log is None:
            self._remove(record.id)
            log = self.logs[record.id] = Log(record=record)
        log.record = record
        log.head = head or log.head
        self._place(log, new)

    # Documents

    def put_document(
        self, place: Place, data: bytes, *, now: datetime, expected_version: int | None
    ) -> Document:
        held = self._documents(place.conversation_id, now)
        before = held.get(place)
        version = before.version if before else 0
        place.check_version(version, expected_version)
        self.forgotten += before is not None
        held[place] = document = place.document(data, version=version + 1, updated_at=now)
        return document

    def get_document(self, place: Place, *, now: datetime) -> Document | None:
        return self._documents(place.conversation_id, now).get(place)

    def list_documents(self, listing: Listing, *, now: datetime) -> list[Document]:
        held = self._documents(listing.conversation_id, now)
        wanted = sorted(place for place in held if place.kind == listing.kind and place.key > listing.after)
        return [held[place] for place in wanted[: listing.limit]]

    def document_kinds(self, conversation_id: str | None, *, now: datetime) -> list[str]:
        return sorted({place.kind for place in self._documents(conversation_id, now)})

    def delete_document(self, place: Place, *, now: datetime, expected_version: int | None) -> bool:
        held = self._documents(place.conversation_id, now)
        if place not in held:
            return False
        place.check_version(held[place].version, expected_version)
        del held[place]
        self.forgotten += 1
        return True

    def restore_documents(self, given: Mapping[Place, Document], *, now: datetime) -> None:
        for place, document in given.items():
            held = self._documents(place.conversation_id, now)
            self.forgotten += place in held
            held[place] = document

    def _documents(self, conversation_id: str | None, now: datetime) -> dict[Place, Document]:
        return self.documents if conversation_id is None else self._log(conversation_id, now).documents

    # Retention

    def purge_expired(self, *, now: datetime) -> int:
        expired = [log.record.id for log in self.logs.values() if is_expired(log.record, now=now)]
        for conversation_id in expired:
            self._remove(conversation_id)
        return len(expired)

    def expired(self, *, by: datetime, limit: int) -> list[Conversation]:
        check_count(limit, field="limit", least=0)
        records = [log.record for log in self.logs.values() if is_expired(log.record, now=by)]
        return sorted(records, key=end_of)[:limit]

    def forget_copies(self) -> None:
        """Say that whatever copies there are elsewhere must go."""
        self.forgotten += 1

    def clear(self) -> Tally:
        gone = self.tally()
        self.logs.clear()
        self.sessions.clear()
        self.documents.clear()
        self.forgotten += 1
        return gone

    def tally(self, conversation_id: str | None = None) -> Tally:
        """How much there is of all, or of one conversation."""
        if conversation_id is None:
            return _tally_of(self.logs.values(), sessions=len(self.sessions), documents=self.documents)
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        logs = [log for log in (self.logs.get(conversation_id),) if log is not None]
        return _tally_of(logs, sessions=sum(bound == conversation_id for bound in self.sessions.values()))

    def _alive(self, conversation_id: str, now: datetime) -> Log | None:
        log = self.logs.get(conversation_id)
        return None if log is None or is_expired(log.record, now=now) else log

    def _log(self, conversation_id: str, now: datetime) -> Log:
        log = self._alive(parse_uuid(conversation_id, field="conversation_id"), now)
        if log is None:
            raise ConversationNotFound(conversation_id)
        return log

    def _remove(self, conversation_id: str) -> None:
        gone = self.logs.pop(conversation_id, None)
        self.forgotten += gone is not None
        for session_id in [s for s, bound in self.sessions.items() if bound == conversation_id]:
            del self.sessions[session_id]

    def _put(self, log: Log, new: Placed, now: datetime) -> None:
        log.record = extended(log.record, [message for message, _ in new], now=now)
        self._place(log, [(message.message_id, slot) for message, slot in new])

    def _place(self, log: Log, new: Sequence[Placing]) -> None:
        for message_id, slot in new:
            insort(log.slots, slot, key=_position)
            log.next_sequence = max(log.next_sequence, slot.position.sequence + 1)
            if message_id is not None:
                log.by_id[message_id] = slot
        surplus = len(log.slots) - (self.max_messages or len(log.slots))
        for slot in log.slots[:surplus]:
            _forget_id(log, slot)
        del log.slots[:surplus]


def _tally_of(logs: Collection[Log], *, sessions: int, documents: Iterable[Place] = ()) -> Tally:
    places = chain(documents, *(log.documents for log in logs))
    return Tally(
        conversations=len(logs),
        messages=sum(len(log.slots) for log in logs),
        sessions=sessions,
        documents=dict(Counter(place.kind for place in places)),
    )


def _exchange(log: Log, at: int, slot: Slot) -> None:
    old, log.slots[at] = log.slots[at], slot
    for message_id, held in log.by_id.items():
        if held is old:
            log.by_id[message_id] = slot
            return


def _forget_id(log: Log, slot: Slot) -> None:
    try:
        message_id = decode_message(slot.body).message_id
    except StoreDamaged:
        message_id = next((one for one, held in log.by_id.items() if held is slot), None)
    if message_id is not None:
        log.by_id.pop(message_id, None)


def slots_of(entries: Iterable[Entry]) -> list[Placing]:
    """The entries as a shelf keeps them."""
    return [
        (
            entry.message.message_id,
            Slot(entry.position, entry.revision, entry.stored_at, encode_message(entry.message)),
        )
        for entry in entries
    ]


def _not_there(log: Log | None, conversation_id: str, slots: Sequence[Placing]) -> list[Placing]:
    """Those whose sequence is free. An id that another slot holds is refused."""
    taken = {slot.position.sequence for slot in log.slots} if log else set[int]()
    new = [one for one in slots if one[1].position.sequence not in taken]
    for message_id, _ in new:
        if log is not None and message_id is not None and message_id in log.by_id:
            raise MessageConflict(conversation_id, message_id)
    return new


def sort_out(log: Log, turn: Sequence[Packed], *, now: datetime) -> tuple[Placed, list[Slot]]:
    """Which of these messages are new, each in the place that it will have, and which are known."""
    stamp = stamp_for(log.record.last_message_at, now=now)
    new: Placed = []
    known: list[Slot] = []
    seen = dict[str, Slot]()
    for message, body in turn:
        message_id = message.message_id
        earlier = seen.get(message_id) or log.by_id.get(message_id) if message_id is not None else None
        if earlier is not None:
            check_same_content(_entry(log, earlier), decode_message(body))
            known.append(earlier)
            continue
        position = Position(to_micros(message.timestamp or stamp), log.next_sequence + len(new))
        if message.timestamp is None:
            message, body = message.with_(timestamp=stamp), _stamped(body, position)
        slot = Slot(position, log.record.revision + 1, now, body)
        new.append((message, slot))
        if message_id is not None:
            seen[message_id] = slot
    return new, known


def _stamped(body: bytes, position: Position) -> bytes:
    """The body of a message without a time, with the time of its position. A body ends with its brace."""
    stamp = from_micros(position.micros).isoformat().replace("+00:00", "Z")
    return b'%b,"timestamp":"%b"}' % (body[:-1], stamp.encode())


def _appended(log: Log, new: Placed, known: Sequence[Slot]) -> Appended:
    return Appended(
        conversation=log.record,
        new=lambda: tuple(_entry(log, slot) for _, slot in new),  # slots never change
        known=tuple(_entry(log, slot) for slot in known),
    )


def _entry(log: Log, slot: Slot) -> Entry:
    try:
        message = decode_message(slot.body)
    except StoreDamaged as error:
        return unreadable_entry(
            log.record.id, slot.position, revision=slot.revision, stored_at=slot.stored_at, why=str(error)
        )
    return Entry(
        conversation_id=log.record.id,
        sequence=slot.position.sequence,
        revision=slot.revision,
        stored_at=slot.stored_at,
        message=message,
    )


def _position(slot: Slot) -> Position:
    return slot.position


def _activity(record: Conversation) -> tuple[int, str]:
    return to_micros(record.last_activity), record.id
