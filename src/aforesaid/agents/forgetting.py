"""Forget content everywhere: notes, the messages they came from, and messages that repeat it.

An assistant repeats what it hears: in the arguments of a call, in its result, in the answer, on another day.
A message repeats a content if it has one of its numbers of three or more digits, or nearly all of its words
close together. Within the turn that a note came from, all of its words are enough. Summaries, vectors and
kept requests of a conversation are removed with each redaction.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Entry
from aforesaid.dialects.tombstones import TAG
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageNotFound, shown
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.messages import Message, starts_turn, words_of
from aforesaid.notes.records import Note, meant
from aforesaid.search.analysis import searchable_text, terms_of

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


@validated
async def preview_forget(manager: ManagerProtocol, what: str) -> ForgetPreview:
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


@validated
async def forget_everywhere(manager: ManagerProtocol, what: str) -> ForgetReceipt:
    """Remove the notes that `what` names, and redact the messages that repeat them."""
    preview = await preview_forget(manager, what)
    gone = [note for named in preview.notes for note in await manager.forget(named.id)]
    return await _redacted(manager, preview.messages, [note.id for note in gone])


@validated
async def redact_everywhere(manager: ManagerProtocol, conversation_id: str, message_id: str) -> ForgetReceipt:
    """Redact a message and all messages that repeat its content. Raise `MessageNotFound`."""
    record = await manager.get_conversation(conversation_id)
    entries = [entry async for entry in _entries(manager, record.id)]
    message = next((one.message for one in entries if one.message.message_id == message_id), None)
    if message is None:
        raise MessageNotFound(record.id, message_id)
    text = searchable_text(message)
    repeats = [repeat async for repeat in _repeats(manager, text, (record.id, message_id))]
    return await _redacted(manager, repeats, ())


async def _redacted(
    manager: ManagerProtocol, repeats: Sequence[Repeat], note_ids: Sequence[str]
) -> ForgetReceipt:
    for repeat in repeats:
        await manager.redact(repeat.conversation_id, repeat.message_id)
    ids = sorted([*note_ids, *(repeat.message_id for repeat in repeats)])
    return ForgetReceipt(
        notes=len(note_ids),
        messages=len(repeats),
        conversations=len({repeat.conversation_id for repeat in repeats}),
        forgotten_at=manager.now(),
        digest=sha256("\n".join(ids).encode()).hexdigest(),
    )


async def _repeats(
    manager: ManagerProtocol, text: str, start: tuple[str | None, str | None] | None
) -> AsyncIterator[Repeat]:
    """Yield the message at `start` and all messages that repeat the text."""
    content = _Content.of(text)
    conversation_id, message_id = start or (None, None)
    found = await manager.search(text, MOST_FOUND)
    conversations = dict.fromkeys(passage.conversation_id for passage in found.passages)
    for each in dict.fromkeys([*([conversation_id] if conversation_id else []), *conversations]):
        in_turn = False
        async for entry in _entries(manager, each):
            message = entry.message
            is_start = each == conversation_id and message.message_id == message_id
            in_turn = is_start or (in_turn and not starts_turn(message))
            if message.message_id is None or TAG in message.tags:
                continue
            if is_start or content.is_in(message, same_turn=in_turn):
                shown = searchable_text(message)
                yield Repeat(
                    conversation_id=each, message_id=message.message_id, role=message.role, text=shown
                )


async def _entries(manager: ManagerProtocol, conversation_id: str) -> AsyncIterator[Entry]:
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
