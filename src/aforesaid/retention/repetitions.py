"""Forget content everywhere: notes, the messages they came from, and messages that repeat it.

An assistant repeats what it hears: in the arguments of a call, in its result, in the answer, on another day.
A message repeats a content if it has one of its codes (a number of three or more digits, letters with digits)
or nearly all of its words close together. Within the turn that a note came from, all of its words are enough.
A content with one or two words of meaning is repeated where these follow each other, or where it is quoted.
Every message of the owner is compared: a search would return only the best of them. Summaries, vectors and
kept requests of a conversation are removed with each redaction.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.patterns import lazy_pattern
from aforesaid.contracts import Entry
from aforesaid.contracts.listing import check_complete
from aforesaid.dialects.tombstones import TAG
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageNotFound, StoreUnavailable, shown
from aforesaid.model.messages import Message, starts_turn, words_of
from aforesaid.notes.records import Note, meant
from aforesaid.search.analysis import searchable_text, terms_of

if TYPE_CHECKING:
    from aforesaid.model.conversations import Conversation, Page

PAGE = 200
# Words from which a content is recognized by most of them, and the share of them that a repetition has.
_LEAST_WORDS = 3
_SHARE = 0.75
# Characters of a word with letters and digits that identifies a content.
_LEAST_CODE = 6
# Characters that two forms of a word share at least, and by which their stems differ at most.
_LEAST_STEM = 5
_MOST_ENDING = 2


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

    def without(self, keep: Collection[str]) -> "ForgetPreview":
        """Return this without the notes and messages of these ids, which stay."""
        return ForgetPreview(
            notes=tuple(note for note in self.notes if note.id not in keep),
            messages=tuple(repeat for repeat in self.messages if repeat.message_id not in keep),
        )


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
    async def notes(self) -> list[Note]: ...
    async def forget(self, what: str) -> list[Note]: ...
    async def redact(self, conversation_id: str, message_id: str, *, scrub: bool = False) -> Message: ...
    # Last: below it, `list` is this method.
    async def list(self, *, limit: int | None = None, after: str | None = None) -> "Page": ...


class _Text(NamedTuple):
    """A text for comparison: its terms in order, and all of its words between blanks."""

    terms: tuple[str, ...]
    words: str

    @classmethod
    def of(cls, text: str) -> "_Text":
        return cls(tuple(terms_of(text)), f" {' '.join(_WORD.findall(text.casefold()))} ")


_WORD = lazy_pattern(r"\w+")


class _Content(NamedTuple):
    """A content by its text, terms and codes, and the message that it comes from."""

    text: _Text
    terms: frozenset[str]
    codes: frozenset[str]
    conversation_id: str | None = None
    message_id: str | None = None

    @classmethod
    def of(cls, text: str, conversation_id: str | None = None, message_id: str | None = None) -> "_Content":
        own = _Text.of(text)
        terms = frozenset(own.terms)
        return cls(own, terms, frozenset(filter(_is_code, terms)), conversation_id, message_id)

    def comes_from(self, entry: Entry) -> bool:
        own = self.conversation_id, self.message_id
        return own == (entry.conversation_id, entry.message.message_id)

    def is_in(self, text: _Text, *, same_turn: bool = False) -> bool:
        if not self.codes.isdisjoint(text.terms):
            return True
        if same_turn:
            return bool(self.terms) and self.terms <= set(text.terms)
        if len(self.terms) >= _LEAST_WORDS:
            return self._is_close(text.terms)
        return bool(self.terms) and self._is_quoted(text)

    def _is_quoted(self, text: _Text) -> bool:
        """Return whether the terms follow each other, or the text stands there word by word."""
        own, length = self.text.terms, len(self.text.terms)
        starts = range(len(text.terms) - length + 1)
        if length > 1 and any(text.terms[at : at + length] == own for at in starts):
            return True
        return self.text.words.count(" ") > _LEAST_WORDS and self.text.words in text.words

    def _is_close(self, terms: Sequence[str]) -> bool:
        """Return whether nearly all terms occur close together."""
        span, needed = 2 * len(self.terms), _SHARE * len(self.terms)
        # Few messages pass this, and it is much cheaper.
        if len(self.terms.intersection(terms)) < needed:
            return False
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
    contents = [
        _Content.of(note.text)
        if note.source is None
        else _Content.of(note.text, note.source.conversation_id, note.source.message_id)
        for note in notes
    ]
    return ForgetPreview(notes=tuple(notes), messages=await _repeats(manager, contents))


async def message_content(manager: Forgettable, conversation_id: str, message_id: str) -> ForgetPreview:
    """Return the message, the notes that came from it or repeat it, and the messages that repeat it.

    Raise `MessageNotFound`.
    """
    record = await manager.get_conversation(conversation_id)
    entries = [entry async for entry in _entries(manager, record.id)]
    message = next((one.message for one in entries if one.message.message_id == message_id), None)
    if message is None:
        raise MessageNotFound(record.id, message_id)
    content = _Content.of(searchable_text(message), record.id, message_id)
    notes = [
        note
        for note in await manager.notes()
        if (note.source is not None and note.source.message_id == message_id)
        or content.is_in(_Text.of(note.text))
    ]
    return ForgetPreview(notes=tuple(notes), messages=await _repeats(manager, [content]))


async def content_about(manager: Forgettable, topic: str) -> ForgetPreview:
    """Return the notes and messages that have all words of a topic, also in another form: an allergy and
    what someone is allergic to.
    """
    topic_terms = frozenset(terms_of(topic))
    if not topic_terms:
        return ForgetPreview()

    def is_about(text: str) -> bool:
        terms = frozenset(terms_of(text))
        return all(term in terms or _has_form(terms, term) for term in topic_terms)

    repeats = await _scan(
        manager, lambda entry: is_about(f"{searchable_text(entry.message)} {words_of(entry.message)}")
    )
    notes = [note for note in await manager.notes() if is_about(f"{note.subject} {note.text}")]
    return ForgetPreview(notes=tuple(notes), messages=repeats)


def _has_form(terms: frozenset[str], term: str) -> bool:
    """Return whether a term continues another one: stems of one word can end differently."""
    return any(
        min(len(one), len(term)) >= _LEAST_STEM
        and abs(len(one) - len(term)) <= _MOST_ENDING
        and (one.startswith(term) or term.startswith(one))
        for one in terms
    )


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


async def forget_all(
    manager: Forgettable, found: ForgetPreview, *, scrub: bool = False, by_message: bool = False
) -> ForgetReceipt:
    """Redact the messages and remove the notes. Call it again after an interruption: it continues.

    By notes or, with `by_message`, by the first message the rest is found, so these are removed last.
    """
    first = int(by_message)
    for repeat in reversed(found.messages[first:]):
        await manager.redact(repeat.conversation_id, repeat.message_id)
    for note in found.notes:
        await _forget_note(manager, note)
    # Scrubbing rewrites files, so one redaction does it for all. A second one of a message changes nothing.
    for repeat in found.messages[: max(first, int(scrub))]:
        await manager.redact(repeat.conversation_id, repeat.message_id, scrub=scrub)
    ids = sorted([*(note.id for note in found.notes), *(repeat.message_id for repeat in found.messages)])
    return ForgetReceipt(
        notes=len(found.notes),
        messages=len(found.messages),
        conversations=len({repeat.conversation_id for repeat in found.messages}),
        forgotten_at=manager.now(),
        digest=sha256("\n".join(ids).encode()).hexdigest(),
    )


async def _forget_note(manager: Forgettable, note: Note) -> None:
    """Remove a note and those that it replaced."""
    if await manager.forget(note.id) or note.subject is None:
        return
    # The redaction of its message has removed the note, so the one that it replaced is valid again.
    for earlier in await manager.notes():
        if earlier.about == note.about:
            await manager.forget(earlier.id)


async def _repeats(manager: Forgettable, contents: Sequence[_Content]) -> tuple[Repeat, ...]:
    """Return the messages that repeat the contents, those that the contents come from first."""
    found = await _scan(manager, _Comparison(contents)) if contents else ()
    origins = {(one.conversation_id, one.message_id) for one in contents}
    return tuple(sorted(found, key=lambda one: (one.conversation_id, one.message_id) not in origins))


class _Comparison:
    """Whether a message is the origin of a content or repeats it; called with one message after another."""

    def __init__(self, contents: Sequence[_Content]) -> None:
        self._contents = contents
        self._conversation_id = ""
        # The contents that come from the turn of the current message.
        self._in_turn: set[_Content] = set()

    def __call__(self, entry: Entry) -> bool:
        message = entry.message
        origins = {content for content in self._contents if content.comes_from(entry)}
        if origins or starts_turn(message) or entry.conversation_id != self._conversation_id:
            self._conversation_id, self._in_turn = entry.conversation_id, origins
        text = _Text.of(f"{searchable_text(message)} {words_of(message)}")
        return bool(origins) or any(
            content.is_in(text, same_turn=content in self._in_turn) for content in self._contents
        )


async def _scan(manager: Forgettable, is_repeat: Callable[[Entry], bool]) -> tuple[Repeat, ...]:
    """Return all messages of the owner that repeat a content, without redacted ones.

    Raise `StoreUnavailable` if not all can be read.
    """
    found: dict[tuple[str, str], Repeat] = {}
    seen: set[str] = set()
    with noting_freshness() as freshness:
        # A conversation that becomes active meanwhile moves to the front of the listing: list once more.
        while fresh := [one async for one in _conversations(manager) if one not in seen]:
            seen.update(fresh)
            for conversation_id in fresh:
                async for entry in _entries(manager, conversation_id):
                    if is_repeat(entry) and TAG not in entry.message.tags:
                        for repeat in _repeat_of(entry):
                            found[repeat.conversation_id, repeat.message_id] = repeat
    if freshness.degraded:
        raise StoreUnavailable("the store is unavailable, so repetitions may be missing")
    return tuple(found.values())


async def _conversations(manager: Forgettable) -> AsyncIterator[str]:
    after: str | None = None
    while True:
        page = check_complete(await manager.list(limit=PAGE, after=after))
        for record in page.conversations:
            yield record.id
        after = page.next
        if after is None:
            return


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


def _is_code(term: str) -> bool:
    """Return whether a term alone identifies a content: a long number other than a year, or `hunter2`."""
    digits = sum(map(str.isdigit, term))
    if 0 < digits < len(term):
        return digits >= 3 or len(term) >= _LEAST_CODE
    return digits >= 3 and not (digits == 4 and term[:2] in ("19", "20"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
