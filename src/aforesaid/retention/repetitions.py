"""Forget content everywhere: notes, the messages they came from, and messages that repeat it.

An assistant repeats what it hears: in the arguments of a call, in its result, in the answer, on another day.
A message repeats a content if it has one of its numbers of three or more digits, or nearly all of its words
close together. Within the turn that a note came from, all of its words are enough. Summaries, vectors and
kept requests of a conversation are removed with each redaction.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from aforesaid.contracts import Entry
from aforesaid.dialects.tombstones import TAG
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageNotFound, shown
from aforesaid.model.messages import Message, starts_turn, words_of
from aforesaid.notes.records import Note, meant
from aforesaid.search.analysis import searchable_text, terms_of

if TYPE_CHECKING:
    from aforesaid.model.conversations import Conversation
    from aforesaid.search.searcher import Findings

# Conversations that a search adds to those that the notes came from.
MOST_FOUND = 50
PAGE = 200
# Words that a content needs to be recognized outside its turn, and the share of them that a repetition has.
_LEAST_WORDS = 3
_SHARE = 0.75


class Repeat(Struct, frozen=True, kw_only=True):
    """A message with the content."""

    conversation_id: str
    message_id: str
    role: str
    text: str


class ForgetPreview(Struct, frozen=True, kw_only=True):
    """What would be forgotten."""

    notes: tuple[Note, ...] = ()
    messages: tuple[Repeat, ...] = ()


class ForgetReceipt(Struct, frozen=True, kw_only=True):
    """What was forgotten, without the content."""

    notes: int
    messages: int
    conversations: int
    forgotten_at: datetime
    digest: str
    """A hash of the ids of the notes and messages."""

    @property
    def text(self) -> str:
        """The receipt in words. It is stored in the log, so it does not contain the content."""
        return f"Forgotten: {_count(self.notes, 'note')} and {_count(self.messages, 'message')}."


class Forgettable(Protocol):
    """A manager, as far as forgetting needs it."""

    def now(self) -> datetime: ...
    async def get_conversation(self, conversation_id: str) -> "Conversation": ...
    async def entries(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> list[Entry]: ...
    async def search(
        self, query: str = "", max_results: int = 5, *, min_relevance: float | None = None
    ) -> "Findings": ...
    async def notes(self) -> list[Note]: ...
    async def forget(self, what: str) -> list[Note]: ...
    async def redact(self, conversation_id: str, message_id: str, *, scrub: bool = False) -> Message: ...


class _Content(NamedTuple):
    """A content by its terms and numbers."""

    terms: frozenset[str]
    numbers: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "_Content":
        terms = frozenset(terms_of(text))
        return cls(terms, frozenset(term for term in terms if _is_distinctive(term)))

    def is_in(self, message: Message, *, same_turn: bool) -> bool:
        terms = terms_of(f"{searchable_text(message)} {words_of(message)}")
        if not self.numbers.isdisjoint(terms):
            return True
        if same_turn:
            return bool(self.terms) and self.terms <= set(terms)
        return len(self.terms) >= _LEAST_WORDS and self._is_close(terms)

    def _is_close(self, terms: Sequence[str]) -> bool:
        """Return whether nearly all terms occur close together."""
        span, needed = 2 * len(self.terms), _SHARE * len(self.terms)
        return any(
            len(self.terms & set(terms[start : start + span])) >= needed
            for start in range(max(1, len(terms) - span + 1))
        )


async def named_content(manager: Forgettable, what: str) -> ForgetPreview:
    """Return the notes that `what` names, as `manager.forget` does, and the messages that repeat them."""
    if not what.strip():
        raise InvalidInput(
            f"what must be an id, a subject or words; got {shown(what)}", field="what", value=what
        )
    notes = meant(await manager.notes(), what.strip())
    found: dict[tuple[str, str], Repeat] = {}
    for note in notes:
        source = note.source
        start = None if source is None else (source.conversation_id, source.message_id)
        async for repeat in _repeats(manager, note.text, start):
            found[repeat.conversation_id, repeat.message_id] = repeat
    return ForgetPreview(notes=tuple(notes), messages=tuple(found.values()))


async def message_content(manager: Forgettable, conversation_id: str, message_id: str) -> ForgetPreview:
    """Return the message, the notes that came from it or repeat it, and the messages that repeat it.

    Raise `MessageNotFound`.
    """
    record = await manager.get_conversation(conversation_id)
    entries = [entry async for entry in _entries(manager, record.id)]
    message = next((one.message for one in entries if one.message.message_id == message_id), None)
    if message is None:
        raise MessageNotFound(record.id, message_id)
    content = _Content.of(searchable_text(message))
    notes = [
        note
        for note in await manager.notes()
        if (note.source is not None and note.source.message_id == message_id)
        or content.is_in(Message(role="user", content=note.text), same_turn=False)
    ]
    start = record.id, message_id
    repeats = [repeat async for repeat in _repeats(manager, searchable_text(message), start)]
    return ForgetPreview(notes=tuple(notes), messages=tuple(repeats))


async def content_about(manager: Forgettable, topic: str) -> ForgetPreview:
    """Return the notes and messages that have all words of a topic."""
    terms = frozenset(terms_of(topic))
    if not terms:
        return ForgetPreview()
    found = await manager.search(topic, MOST_FOUND, min_relevance=0)
    repeats: list[Repeat] = []
    for conversation_id in dict.fromkeys(passage.conversation_id for passage in found.passages):
        async for entry in _entries(manager, conversation_id):
            if TAG not in entry.message.tags and terms <= set(terms_of(searchable_text(entry.message))):
                repeats += _repeat_of(entry)
    notes = [note for note in await manager.notes() if terms <= set(terms_of(f"{note.subject} {note.text}"))]
    return ForgetPreview(notes=tuple(notes), messages=tuple(repeats))


def _repeat_of(entry: Entry) -> list[Repeat]:
    message = entry.message
    if message.message_id is None:
        return []
    return [
        Repeat(
            conversation_id=entry.conversation_id,
            message_id=message.message_id,
            role=message.role,
            text=searchable_text(message),
        )
    ]


async def forget_all(manager: Forgettable, found: ForgetPreview, *, scrub: bool = False) -> ForgetReceipt:
    """Remove the notes and redact the messages."""
    gone = [note.id for named in found.notes for note in await manager.forget(named.id)]
    for at, repeat in enumerate(found.messages, start=1):
        # Scrubbing rewrites files, so the last redaction does it for all.
        last = at == len(found.messages)
        await manager.redact(repeat.conversation_id, repeat.message_id, scrub=scrub and last)
    ids = sorted([*gone, *(repeat.message_id for repeat in found.messages)])
    return ForgetReceipt(
        notes=len(gone),
        messages=len(found.messages),
        conversations=len({repeat.conversation_id for repeat in found.messages}),
        forgotten_at=manager.now(),
        digest=sha256("\n".join(ids).encode()).hexdigest(),
    )


async def _repeats(
    manager: Forgettable, text: str, start: tuple[str | None, str | None] | None
) -> AsyncIterator[Repeat]:
    """Yield the message at `start` and all messages that repeat the text."""
    content = _Content.of(text)
    conversation_id, message_id = start or (None, None)
    conversations: dict[str, None] = {}
    # A number alone is a repetition, too. Relevance does not matter: each message is compared.
    for query in (text, *sorted(content.numbers)):
        found = await manager.search(query, MOST_FOUND, min_relevance=0)
        conversations |= dict.fromkeys(passage.conversation_id for passage in found.passages)
    for each in dict.fromkeys([*([conversation_id] if conversation_id else []), *conversations]):
        in_turn = False
        async for entry in _entries(manager, each):
            message = entry.message
            is_start = each == conversation_id and message.message_id == message_id
            in_turn = is_start or (in_turn and not starts_turn(message))
            if TAG in message.tags:
                continue
            if is_start or content.is_in(message, same_turn=in_turn):
                for repeat in _repeat_of(entry):
                    yield repeat


async def _entries(manager: Forgettable, conversation_id: str) -> AsyncIterator[Entry]:
    offset = 0
    while True:
        try:
            page = await manager.entries(conversation_id, PAGE, offset)
        except ConversationNotFound:  # removed since the search
            return
        for entry in page:
            if entry.unreadable is None:
                yield entry
        if len(page) < PAGE:
            return
        offset += len(page)


def _is_distinctive(term: str) -> bool:
    digits = sum(map(str.isdigit, term))
    return digits >= 3 and not (digits == len(term) == 4 and term[:2] in ("19", "20"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
