"""The last known state: what the store said last, kept in memory within a bound.

On the usual path nothing is worked out: what was read and written is only noted, newest first to
stay. When the store is away the notes of an owner are made into a `OwnerData`, which answers as a store
does. Below: `stores.shelf`. Above: the layer. One event loop.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from aforesaid.contracts import Appended, Document, Entry, LogEnd, Place, Position
from aforesaid.errors import ConversationNotFound
from aforesaid.layers._sizes import OVERHEAD, is_immutable, private_copies, size_of
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.messages import Message
from aforesaid.stores.encoded_logs import Log, slots_of
from aforesaid.stores.owner_data import OwnerData

MOST_BYTES = 32 * 1024 * 1024
"""What is remembered of all owners together, by the length of its text."""
MOST_NOTES = 32
"""Turns and tails that are remembered of one conversation: more than a context needs."""
MOST_SESSIONS = 1000
"""Sessions that are remembered of one owner."""


class View:
    """What can be answered without the store: a shelf, and the fronts of logs that are not known whole."""

    def __init__(self, owner_data: OwnerData, heads: dict[str, list[Entry]], ends: set[str]) -> None:
        self.owner_data = owner_data
        self.heads = heads
        self.ends = ends
        """Conversations whose next sequence number is known, and not guessed: nobody else writing."""
        self.assumed: set[str] = set()
        """Conversations of which nothing is known but turns that were accepted."""

    def knows(self, conversation_id: str) -> bool:
        return conversation_id in self.owner_data.logs

    def forget_older(self, moment: datetime) -> None:
        """Conversations that were there at this moment are not there any more."""
        for conversation_id, held in list(self.owner_data.logs.items()):
            if held.record.created_at <= moment:
                self.owner_data.delete(conversation_id)

    def copy(self) -> "View":
        view = View(self.owner_data.copy(), self.heads.copy(), self.ends.copy())
        view.assumed = self.assumed.copy()
        return view

    def assume(self, conversation_id: str, *, now: datetime) -> None:
        """Take a conversation that nothing is known of to be there: the store will say when it is back."""
        if not self.knows(conversation_id):
            self.owner_data.logs[conversation_id] = Log(record=started(conversation_id, now=now, ttl=None))
            self.assumed.add(conversation_id)

    def knows_record(self, conversation_id: str) -> bool:
        return self.knows(conversation_id) and conversation_id not in self.assumed

    def knows_tail(self, conversation_id: str, limit: int, before: Position | None) -> bool:
        """Whether all entries that a tail asks for are known."""
        if not self.knows_record(conversation_id) or not isinstance(limit, int):
            return False
        slots = self.owner_data.logs[conversation_id].slots
        known = len(slots) if before is None else sum(slot.position < before for slot in slots)
        return known >= limit or not self._missing(conversation_id)

    def knows_entry(self, conversation_id: str, message_id: str) -> bool:
        """Whether it is known which entry holds this message id, or that none does."""
        if not self.knows(conversation_id):
            return False
        is_whole = conversation_id not in self.assumed and not self._missing(conversation_id)
        return is_whole or message_id in self.owner_data.logs[conversation_id].by_id

    def knows_page(self, conversation_id: str, limit: int, offset: int) -> bool:
        """Whether all entries of a page are known: at the end of the log, or at its front."""
        if (
            not self.knows_record(conversation_id)
            or not isinstance(limit, int)
            or not isinstance(offset, int)
        ):
            return False
        front = len(self.heads.get(conversation_id, ()))
        return offset >= self._missing(conversation_id) or offset + limit <= front

    def page(self, conversation_id: str, *, now: datetime, limit: int, offset: int) -> list[Entry]:
        """The entries of a page that is known."""
        record = self.owner_data.get(conversation_id, now=now)
        if record is None:
            raise ConversationNotFound(conversation_id)
        missing = self._missing(record.id)
        if offset < missing:
            return self.heads[record.id][offset : offset + limit]
        return self.owner_data.page(record.id, now=now, limit=limit, offset=offset - missing)

    def _missing(self, conversation_id: str) -> int:
        """How many entries at the front of a log are not known."""
        log = self.owner_data.logs[conversation_id]
        return max(0, log.record.message_count - len(log.slots))


Part = Appended | list[Entry] | LogEnd


class _Notes:
    """What was noted of one conversation: its record, its front, and tails and turns, oldest first."""

    __slots__ = ("bytes", "head", "parts", "record")

    def __init__(self) -> None:
        self.record: Conversation | None = None
        self.head: list[Entry] = []
        self.parts: deque[tuple[Part, int]] = deque()
        self.bytes = OVERHEAD


Subject = str | Place | None
"""What is asked about: a conversation, a document; None is whatever the owner has."""


class Question:
    """Something that the store is being asked, and whether its answer was overtaken: what it is about was
    dropped meanwhile."""

    __slots__ = ("is_overtaken", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.is_overtaken = False


class LastKnownState:
    """What is remembered of every owner."""

    def __init__(self, *, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._notes: OrderedDict[tuple[str, str], _Notes] = OrderedDict()
        self._conversations: dict[str, dict[str, None]] = {}
        self._sessions: dict[str, dict[str, str]] = {}
        self._documents: dict[str, dict[Place, Document]] = {}
        self._document_sizes: OrderedDict[tuple[str, Place], int] = OrderedDict()
        self._document_bytes = 0
        self._views: dict[str, View] = {}
        self._questions: dict[str, set[Question]] = {}
        self._bytes = 0

    @property
    def size(self) -> int:
        """About how many bytes are remembered."""
        return self._bytes + self._document_bytes

    # Asking

    @contextmanager
    def asking(self, owner: str, subject: Subject) -> Iterator[Question]:
        """While the store is asked: an answer that was overtaken must not be noted."""
        question = Question(subject)
        under_way = self._questions.setdefault(owner, set())
        under_way.add(question)
        try:
            yield question
        finally:
            under_way.remove(question)
            if not under_way:
                del self._questions[owner]

    def _overtake(self, owner: str, subject: Subject = None) -> None:
        """Answers about this, or about anything of the owner's, are of the past."""
        for question in self._questions.get(owner, ()):
            if subject is None or question.subject in (None, subject):
                question.is_overtaken = True

    # Noting

    def record(self, owner: str, record: Conversation) -> None:
        self._of(owner, record.id).record = record

    def records(self, owner: str, records: Iterable[Conversation]) -> None:
        for record in records:
            self.record(owner, record)

    def session(self, owner: str, session_id: str, record: Conversation) -> None:
        self.record(owner, record)
        self.bound(owner, session_id, record.id)

    def bound(self, owner: str, session_id: str, conversation_id: str) -> None:
        self._views.pop(owner, None)
        sessions = self._sessions.setdefault(owner, {})
        sessions.pop(session_id, None)
        sessions[session_id] = conversation_id
        if len(sessions) > MOST_SESSIONS:
            del sessions[next(iter(sessions))]

    def unbound(self, owner: str, session_id: str) -> None:
        self._sessions.get(owner, {}).pop(session_id, None)
        self._views.pop(owner, None)

    def document(self, owner: str, document: Document) -> None:
        """A document of the owner's."""
        place = Place(document.kind, document.key)
        self._remove_document(owner, place)
        self._documents.setdefault(owner, {})[place] = document
        self._document_sizes[owner, place] = OVERHEAD + len(document.data)
        self._document_bytes += OVERHEAD + len(document.data)
        while self._document_bytes > self._limit // 4:
            self._remove_document(*next(iter(self._document_sizes)))

    def drop_document(self, owner: str, place: Place) -> None:
        """Forget the document: it is gone, or no longer what was known."""
        self._overtake(owner, place)
        self._remove_document(owner, place)

    def _remove_document(self, owner: str, place: Place) -> None:
        self._views.pop(owner, None)
        size = self._document_sizes.pop((owner, place), None)
        if size is not None:
            self._document_bytes -= size
            del self._documents[owner][place]

    def appended(self, owner: str, conversation_id: str, turn: Sequence[Message], what: Appended) -> None:
        if not all(map(is_immutable, turn)):
            what = Appended(conversation=what.conversation, new=tuple(private_copies(what.new)))
        self._add(self._of(owner, conversation_id), what, size_of(turn))

    def tail(self, owner: str, conversation_id: str, entries: list[Entry], *, is_whole: bool) -> None:
        """The end of the log as it is now, or all of it."""
        notes = self._of(owner, conversation_id)
        if is_whole:
            self._clear(notes)
            self._set_head(notes, [])
        elif len(entries) >= max((len(part) for part, _ in notes.parts if isinstance(part, list)), default=0):
            self._clear(notes)
        self._add(notes, private_copies(entries), _size(entries))

    def end(self, owner: str, conversation_id: str, end: LogEnd) -> None:
        """Where the log ends."""
        self._add(self._of(owner, conversation_id), end, OVERHEAD)

    def head(self, owner: str, conversation_id: str, entries: list[Entry]) -> None:
        """The front of the log."""
        self._set_head(self._of(owner, conversation_id), private_copies(entries))

    def _set_head(self, notes: _Notes, entries: list[Entry]) -> None:
        before, notes.head = notes.head, entries
        self._grow(notes, _size(entries) - _size(before))

    def rewritten(self, owner: str, conversation_id: str, what: Appended) -> None:
        self.drop(owner, conversation_id)
        self.appended(owner, conversation_id, [entry.message for entry in what.new], what)

    def drop(self, owner: str, conversation_id: str) -> int:
        """Forget the conversation: it is gone, or no longer what was known. Returns how many were known."""
        self._overtake(owner, conversation_id)
        self._views.pop(owner, None)
        notes = self._notes.pop((owner, conversation_id), None)
        if notes is None:
            return 0
        self._gone(owner, conversation_id, notes)
        return 1

    def forget(self, owner: str) -> int:
        """Forget everything of this owner. Returns how many conversations and documents went."""
        conversations = list(self._conversations.get(owner, ()))
        documents = list(self._documents.get(owner, ()))
        self._overtake(owner)
        for conversation_id in conversations:
            self.drop(owner, conversation_id)
        for place in documents:
            self.drop_document(owner, place)
        self._sessions.pop(owner, None)
        return len(conversations) + len(documents)

    def clear(self) -> None:
        for owner in {*self._conversations, *self._documents}:
            self.forget(owner)

    def _of(self, owner: str, conversation_id: str) -> _Notes:
        self._views.pop(owner, None)
        key = owner, conversation_id
        notes = self._notes.get(key)
        if notes is not None:
            self._notes.move_to_end(key)
            return notes
        notes = self._notes[key] = _Notes()
        self._conversations.setdefault(owner, {})[conversation_id] = None
        self._bytes += notes.bytes
        self._evict()
        return notes

    def _add(self, notes: _Notes, part: Part, size: int) -> None:
        notes.parts.append((part, size))
        if len(notes.parts) > MOST_NOTES:
            size -= notes.parts.popleft()[1]
        self._grow(notes, size)

    def _clear(self, notes: _Notes) -> None:
        self._grow(notes, -sum(size for _, size in notes.parts))
        notes.parts.clear()

    def _grow(self, notes: _Notes, amount: int) -> None:
        notes.bytes += amount
        self._bytes += amount
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._limit and len(self._notes) > 1:
            (owner, conversation_id), gone = self._notes.popitem(last=False)
            self._gone(owner, conversation_id, gone)

    def _gone(self, owner: str, conversation_id: str, notes: _Notes) -> None:
        self._bytes -= notes.bytes
        conversations = self._conversations[owner]
        del conversations[conversation_id]
        if not conversations:
            del self._conversations[owner]
            self._sessions.pop(owner, None)

    # Answering

    def owners(self) -> set[str]:
        return set(self._conversations)

    def view(self, owner: str) -> View:
        """What is known of this owner."""
        view = self._views.get(owner)
        if view is None:
            view = self._views[owner] = self._made(owner)
        return view

    def _made(self, owner: str) -> View:
        owner_data = OwnerData()
        heads: dict[str, list[Entry]] = {}
        ends: set[str] = set()
        for conversation_id in self._conversations.get(owner, ()):
            notes = self._notes[owner, conversation_id]
            log, is_end_known = _log_of(notes)
            if log is not None:
                owner_data.logs[conversation_id] = log
                heads[conversation_id] = notes.head
                ends |= {conversation_id} if is_end_known else set()
        bound = self._sessions.get(owner, {})
        owner_data.sessions = {session: where for session, where in bound.items() if where in owner_data.logs}
        owner_data.documents = self._documents.get(owner, {}).copy()
        return View(owner_data, heads, ends)


def _size(entries: Iterable[Entry]) -> int:
    return size_of(entry.message for entry in entries)


def _log_of(notes: _Notes) -> tuple[Log | None, bool]:
    """One conversation's log as far as it is known, its record and its end without a gap; and whether it is
    known for certain what its next sequence number is."""
    record = notes.record
    entries: dict[int, Entry] = {}
    next_sequence = 1 if record is not None and not record.revision else None
    for part, _ in notes.parts:
        if isinstance(part, LogEnd):
            next_sequence = part.next_sequence
            continue
        if isinstance(part, Appended) and (record is None or part.conversation.revision > record.revision):
            record = part.conversation
        found = part.new if isinstance(part, Appended) else part
        new = {entry.sequence: entry for entry in found if entry.unreadable is None}
        if new and entries and min(new) > max(entries) + 1:
            entries = {}  # somebody else wrote in between: what is older does not join on
        entries |= new
        if new and isinstance(part, Appended):
            next_sequence = max(new) + 1
        elif new and next_sequence is not None and max(new) >= next_sequence:
            next_sequence = None  # somebody else wrote
    if record is None:
        return None, False
    return _made_log(record, entries, next_sequence), next_sequence is not None


def _made_log(record: Conversation, entries: dict[int, Entry], next_sequence: int | None) -> Log:
    placed = slots_of(sorted(entries.values(), key=_position))
    return Log(
        record=record,
        slots=[slot for _, slot in placed],
        by_id={message_id: slot for message_id, slot in placed if message_id is not None},
        next_sequence=next_sequence or max(entries, default=0) + 1,
    )


def _position(entry: Entry) -> Position:
    return entry.position
