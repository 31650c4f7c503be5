"""The last known state: the store's latest answers, in memory, within a bound of bytes.

While the store is available, answers are only recorded, which is cheap. During an outage, the recorded
answers of an owner are built into an `OwnerData`, which answers as a store does. It belongs to one event
loop.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Appended, Document, Entry, LogEnd, LogSnapshot, Place, Position
from aforesaid.errors import ConversationNotFound
from aforesaid.layers.base import OVERHEAD, private_copies, size_of
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.messages import Message, is_immutable
from aforesaid.stores.encoded_logs import Log, encode_entries
from aforesaid.stores.owner_data import OwnerData

# The bound for all owners together, by the length of their text.
MAX_BYTES = 32 * 1024 * 1024
# Recorded turns and tails per conversation: more than a context needs.
MAX_PARTS = 32
# Recorded sessions per owner.
MAX_SESSIONS = 1000


class View:
    """One owner's data as far as known, and the first entries of logs that are not known completely."""

    def __init__(self, owner_data: OwnerData, fronts: dict[str, list[Entry]], ends: set[str]) -> None:
        self.owner_data = owner_data
        self.fronts = fronts
        # Conversations whose next sequence number is known, provided that no other process writes.
        self.ends = ends
        # Conversations of which only accepted turns are known.
        self.assumed: set[str] = set()

    def has_log(self, conversation_id: str) -> bool:
        return conversation_id in self.owner_data.logs

    def forget(self, conversation_id: str | None, until: datetime | None) -> None:
        """Remove one conversation; without an id, all that were created by `until`, or everything."""
        if conversation_id is not None:
            self.owner_data.delete(conversation_id)
        elif until is None:
            self.owner_data.logs.clear()
            self.owner_data.sessions.clear()
        else:
            for one, log in list(self.owner_data.logs.items()):
                if log.record.created_at <= until:
                    self.owner_data.delete(one)

    def copy(self) -> "View":
        view = View(self.owner_data.copy(), self.fronts.copy(), self.ends.copy())
        view.assumed = self.assumed.copy()
        return view

    def assume(self, conversation_id: str, *, now: datetime) -> None:
        """Assume that an unknown conversation exists. The store decides on replay."""
        if not self.has_log(conversation_id):
            self.owner_data.logs[conversation_id] = Log(record=started(conversation_id, now=now, ttl=None))
            self.assumed.add(conversation_id)

    def has_record(self, conversation_id: str) -> bool:
        return self.has_log(conversation_id) and conversation_id not in self.assumed

    def has_tail(self, conversation_id: str, limit: int, before: Position | None) -> bool:
        """Whether all entries of the tail are known."""
        if not self.has_record(conversation_id) or not isinstance(limit, int):
            return False
        encoded_entries = self.owner_data.logs[conversation_id].entries
        known = (
            len(encoded_entries)
            if before is None
            else sum(encoded.position < before for encoded in encoded_entries)
        )
        return known >= limit or not self._missing(conversation_id)

    def has_entry(self, conversation_id: str, message_id: str) -> bool:
        """Whether the entry of this message id is known, or known not to exist."""
        if not self.has_log(conversation_id):
            return False
        is_whole = conversation_id not in self.assumed and not self._missing(conversation_id)
        return is_whole or message_id in self.owner_data.logs[conversation_id].by_id

    def has_page(self, conversation_id: str, limit: int, offset: int) -> bool:
        """Whether all entries of the page are known: at the end of the log, or among the first entries."""
        if not self.has_record(conversation_id) or not isinstance(limit, int) or not isinstance(offset, int):
            return False
        front = len(self.fronts.get(conversation_id, ()))
        return offset >= self._missing(conversation_id) or offset + limit <= front

    def page(self, conversation_id: str, *, now: datetime, limit: int, offset: int) -> list[Entry]:
        """Return the entries of a known page."""
        record = self.owner_data.get(conversation_id, now=now)
        if record is None:
            raise ConversationNotFound(conversation_id)
        missing = self._missing(record.id)
        if offset < missing:
            return self.fronts[record.id][offset : offset + limit]
        return self.owner_data.page(record.id, now=now, limit=limit, offset=offset - missing)

    def _missing(self, conversation_id: str) -> int:
        """Return the number of unknown entries at the front of the log."""
        log = self.owner_data.logs[conversation_id]
        return max(0, log.record.message_count - len(log.entries))


Part = Appended | list[Entry] | LogEnd


class _ConversationState:
    """Recorded answers about one conversation: its record, first entries, and tails and turns, oldest
    first."""

    __slots__ = ("bytes", "front", "parts", "record")

    def __init__(self) -> None:
        self.record: Conversation | None = None
        self.front: list[Entry] = []
        self.parts: deque[tuple[Part, int]] = deque()
        self.bytes = OVERHEAD

    def add(self, part: Part, size: int) -> None:
        self.parts.append((part, size))
        self.bytes += size
        if len(self.parts) > MAX_PARTS:
            self.bytes -= self.parts.popleft()[1]

    def clear(self) -> None:
        self.bytes -= sum(size for _, size in self.parts)
        self.parts.clear()

    def set_front(self, entries: list[Entry]) -> None:
        self.bytes += _size(entries) - _size(self.front)
        self.front = entries


# The key under which a snapshot caches the state that contains it.
_RECORDED = "recorded"

# The subject of a call: a conversation or a document; None for all data of the owner.
Subject = str | Place | None


class TrackedCall:
    """A call to the store in progress. Its answer is outdated if its subject was dropped meanwhile."""

    __slots__ = ("is_outdated", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.is_outdated = False


class LastKnownState:
    """Recorded answers about all owners; the least recently used are evicted."""

    def __init__(self, *, limit: int = MAX_BYTES) -> None:
        self._states: BoundedDict[tuple[str, str], _ConversationState] = BoundedDict(
            limit, size=lambda state: state.bytes, on_evict=lambda key, _: self._unlist(*key)
        )
        self._conversations: dict[str, dict[str, None]] = {}
        self._sessions: dict[str, BoundedDict[str, str]] = {}
        self._documents: BoundedDict[tuple[str, Place], Document] = BoundedDict(
            limit // 4,
            size=lambda document: OVERHEAD + len(document.data),
            on_evict=lambda key, _: self._unlist_document(*key),
        )
        self._places: dict[str, set[Place]] = {}
        self._views: dict[str, View] = {}
        self._calls: dict[str, set[TrackedCall]] = {}

    @property
    def size(self) -> int:
        """The approximate number of bytes."""
        return self._states.used + self._documents.used

    # Calls in progress

    @contextmanager
    def track_call(self, owner: str, subject: Subject) -> Iterator[TrackedCall]:
        """Track a call to the store. The caller must not record an outdated answer."""
        tracked = TrackedCall(subject)
        calls = self._calls.setdefault(owner, set())
        calls.add(tracked)
        try:
            yield tracked
        finally:
            calls.remove(tracked)
            if not calls:
                del self._calls[owner]

    def _mark_outdated(self, owner: str, subject: Subject = None) -> None:
        """Mark the calls about the subject as outdated, or all calls of the owner."""
        for tracked in self._calls.get(owner, ()):
            if subject is None or tracked.subject in (None, subject):
                tracked.is_outdated = True

    # Recording

    def record(self, owner: str, record: Conversation) -> None:
        with self._changed_state(owner, record.id) as state:
            state.record = record

    def records(self, owner: str, records: Iterable[Conversation]) -> None:
        for record in records:
            self.record(owner, record)

    def session(self, owner: str, session_id: str, record: Conversation) -> None:
        self.record(owner, record)
        self.bind_session(owner, session_id, record.id)

    def bind_session(self, owner: str, session_id: str, conversation_id: str) -> None:
        self._views.pop(owner, None)
        self._sessions.setdefault(owner, BoundedDict(MAX_SESSIONS))[session_id] = conversation_id

    def unbind_session(self, owner: str, session_id: str) -> None:
        if owner in self._sessions:
            self._sessions[owner].pop(session_id, None)
        self._views.pop(owner, None)

    def document(self, owner: str, document: Document) -> None:
        """Record a document of the owner."""
        place = Place(document.kind, document.key)
        self._views.pop(owner, None)
        self._places.setdefault(owner, set()).add(place)
        self._documents[owner, place] = document

    def drop_document(self, owner: str, place: Place) -> None:
        """Drop the document, because it was deleted or changed."""
        self._mark_outdated(owner, place)
        if self._documents.pop((owner, place), None) is not None:
            self._unlist_document(owner, place)

    def _unlist_document(self, owner: str, place: Place) -> None:
        self._views.pop(owner, None)
        places = self._places[owner]
        places.remove(place)
        if not places:
            del self._places[owner]

    def add_turn(self, owner: str, conversation_id: str, turn: Sequence[Message], what: Appended) -> None:
        # The caller may change its content later; the recorded turn must not change with it.
        if not all(map(is_immutable, turn)):
            what = Appended(conversation=what.conversation, new=tuple(private_copies(what.new)))
        with self._changed_state(owner, conversation_id) as state:
            state.add(what, size_of(turn))

    def tail(self, owner: str, conversation_id: str, entries: list[Entry], *, is_whole: bool) -> None:
        """Record the last entries of the log, or all of them."""
        with self._changed_state(owner, conversation_id) as state:
            tails = [len(part) for part, _ in state.parts if isinstance(part, list)]
            # A longer tail contains everything that shorter ones contain.
            if is_whole:
                state.clear()
                state.set_front([])
            elif len(entries) >= max(tails, default=0):
                state.clear()
            state.add(private_copies(entries), _size(entries))

    def snapshot(self, owner: str, snapshot: LogSnapshot, *, is_whole: bool) -> None:
        """Record the record and both ends of the log. The same snapshot, read again, changes nothing."""
        record = snapshot.record
        if record is None:
            return
        state = self._states.use((owner, record.id))
        if state is not None and snapshot.cached(_RECORDED) is state:
            return
        self.record(owner, record)
        if snapshot.front:
            self.front(owner, record.id, list(snapshot.front))
        self.tail(owner, record.id, list(snapshot.tail), is_whole=is_whole)
        snapshot.cache(_RECORDED, self._states[owner, record.id])

    def end(self, owner: str, conversation_id: str, end: LogEnd) -> None:
        """Record the end of the log."""
        with self._changed_state(owner, conversation_id) as state:
            state.add(end, OVERHEAD)

    def front(self, owner: str, conversation_id: str, entries: list[Entry]) -> None:
        """Record the first entries of the log."""
        with self._changed_state(owner, conversation_id) as state:
            state.set_front(private_copies(entries))

    def replace_log(self, owner: str, conversation_id: str, what: Appended) -> None:
        self.drop(owner, conversation_id)
        self.add_turn(owner, conversation_id, [entry.message for entry in what.new], what)

    def drop(self, owner: str, conversation_id: str) -> int:
        """Drop the conversation, because it was deleted or changed; return how many were known."""
        self._mark_outdated(owner, conversation_id)
        self._views.pop(owner, None)
        if self._states.pop((owner, conversation_id), None) is None:
            return 0
        self._unlist(owner, conversation_id)
        return 1

    def forget(self, owner: str) -> int:
        """Drop everything of this owner; return the number of conversations and documents."""
        conversations = list(self._conversations.get(owner, ()))
        documents = list(self._places.get(owner, ()))
        self._mark_outdated(owner)
        for conversation_id in conversations:
            self.drop(owner, conversation_id)
        for place in documents:
            self.drop_document(owner, place)
        self._sessions.pop(owner, None)
        return len(conversations) + len(documents)

    def clear(self) -> None:
        for owner in {*self._conversations, *self._places}:
            self.forget(owner)

    @contextmanager
    def _changed_state(self, owner: str, conversation_id: str) -> Iterator[_ConversationState]:
        """Yield the state of a conversation for a change. Assigning it afterwards measures it again."""
        self._views.pop(owner, None)
        key = owner, conversation_id
        state = self._states.get(key) or _ConversationState()
        yield state
        self._conversations.setdefault(owner, {})[conversation_id] = None
        self._states[key] = state

    def _unlist(self, owner: str, conversation_id: str) -> None:
        self._views.pop(owner, None)
        conversations = self._conversations[owner]
        del conversations[conversation_id]
        if not conversations:
            del self._conversations[owner]
            self._sessions.pop(owner, None)

    # Views

    def owners(self) -> set[str]:
        return set(self._conversations)

    def view(self, owner: str) -> View:
        """Return the view of this owner, built at the first call after a change."""
        # Building takes much longer than recording, and is needed only during an outage.
        view = self._views.get(owner)
        if view is None:
            view = self._views[owner] = self._build_view(owner)
        return view

    def _build_view(self, owner: str) -> View:
        owner_data = OwnerData()
        fronts: dict[str, list[Entry]] = {}
        ends: set[str] = set()
        for conversation_id in self._conversations.get(owner, ()):
            state = self._states[owner, conversation_id]
            log, is_end_known = _known_log(state)
            if log is not None:
                owner_data.logs[conversation_id] = log
                fronts[conversation_id] = state.front
                ends |= {conversation_id} if is_end_known else set()
        owner_data.sessions = {
            session: where
            for session, where in self._sessions.get(owner, {}).items()
            if where in owner_data.logs
        }
        owner_data.documents = {place: self._documents[owner, place] for place in self._places.get(owner, ())}
        return View(owner_data, fronts, ends)


def _size(entries: Iterable[Entry]) -> int:
    return size_of(entry.message for entry in entries)


def _known_log(state: _ConversationState) -> tuple[Log | None, bool]:
    """Return the log as far as it is known without a gap at its end, and whether its next sequence number is
    certain."""
    record = state.record
    entries: dict[int, Entry] = {}
    next_sequence = 1 if record is not None and not record.revision else None
    for part, _ in state.parts:
        if isinstance(part, LogEnd):
            next_sequence = part.next_sequence
            continue
        if isinstance(part, Appended) and (record is None or part.conversation.revision > record.revision):
            record = part.conversation
        found = part.new if isinstance(part, Appended) else part
        new = {entry.sequence: entry for entry in found if entry.unreadable is None}
        if new and entries and min(new) > max(entries) + 1:
            entries = {}  # another process wrote in between: older entries would leave a gap
        entries |= new
        if new and isinstance(part, Appended):
            next_sequence = max(new) + 1
        elif new and next_sequence is not None and max(new) >= next_sequence:
            next_sequence = None  # another process wrote
    if record is None:
        return None, False
    return _build_log(record, entries, next_sequence), next_sequence is not None


def _build_log(record: Conversation, entries: dict[int, Entry], next_sequence: int | None) -> Log:
    placed = encode_entries(sorted(entries.values(), key=_position))
    return Log(
        record=record,
        entries=[encoded for _, encoded in placed],
        by_id={message_id: encoded for message_id, encoded in placed if message_id is not None},
        next_sequence=next_sequence or max(entries, default=0) + 1,
    )


def _position(entry: Entry) -> Position:
    return entry.position
