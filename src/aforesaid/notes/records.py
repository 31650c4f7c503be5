"""Notes: what outlives a conversation, an owner's preferences and facts about their home. The rules.

A note is a sentence with a subject. Each is a document of its own, written once: a later note on the same
subject replaces it, and that is found out when notes are read, by `standing`, and not when one is written.
So two who write at once, an import, or a spool that is replayed cannot lose anything, and cannot disagree.

When two notes are about the same subject:

- their subjects have the same terms, in any order: "bedroom lights" is "the lights of the bedroom";
- a note that names no subject has the one that its sentence begins with, where that is an attribute of
  something, which has one value at a time: at least two terms before *is* or *are* ("the bedroom lights are
  dim at 9 pm"), or one that is an attribute by itself ("my name is Erin"). Names of people are not ("Erin
  Smith is a doctor"), nor is a single thing ("the car is red", "the car is in the garage");
- where a sentence begins with neither, it is its own subject: only the same words replace it.

Pure but for reading and removing. Below: analysis, contracts, tokens. Above: erasure, the manager.
"""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import ConversationStore, Document, parse_listing
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message, parse_tags, parse_text
from aforesaid.search.analysis import terms_of
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.notes")

KIND = "notes"
TAG = "notes"
"""The tag of the message that holds notes in a context."""
IMPORTANT = "important"
"""A note with this tag stays in the context while any other can go."""

LONGEST_NOTE = 2_000
"""Characters: a note is a sentence or a few. What is longer belongs into a conversation."""
LONGEST_SUBJECT = 200
MOST_NOTES = 1_000
"""Notes of one owner. All are looked at for every context, so there is an end to it."""
MOST_EARLIER = 20
"""Replaced notes that are kept for each subject."""
PAGE = 200
FIRST_PAGE = parse_listing(KIND, None, None, PAGE)
NO_PAGE = parse_listing(KIND, None, None, 0)

Subject = tuple[str, ...]
Count = Callable[[str], int]


class Source(Struct, frozen=True, kw_only=True):
    """Where a note was said: a message of a conversation. Either may be unknown, or gone by now."""

    conversation_id: str | None = None
    message_id: str | None = None

    def __post_init__(self) -> None:
        if self.conversation_id is not None:
            checked = parse_uuid(self.conversation_id, field="conversation_id")
            force_setattr(self, "conversation_id", checked)
        if self.message_id is not None:
            parse_name(self.message_id, field="message_id")


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to be remembered."""

    id: str
    text: str
    subject: str
    """What it is about, in words: as given, or as the text says it."""
    remembered_at: datetime
    tags: tuple[str, ...] = ()
    expires_at: datetime | None = None
    source: Source | None = None
    replaced_by: str | None = None
    """The id of the note that stands in its place now; found out when notes are read, never stored."""

    @property
    def about(self) -> Subject:
        """The subject as notes are compared by it."""
        return subject_key(self.subject)

    def has_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


# Checking


def parse_note_text(text: object) -> str:
    """The words of a note, on one line, or an error that says what is wrong with them."""
    words = " ".join(parse_text(text, field="text").split())
    if not any(character.isalnum() for character in words):
        raise InvalidInput(f"text must have words; got {shown(text)}", field="text", value=text)
    return _within(words, LONGEST_NOTE, field="text")


def parse_subject(subject: object) -> str:
    words = " ".join(parse_text(subject, field="subject").split())
    if not words:
        raise InvalidInput("subject must not be empty", field="subject", value=subject)
    return _within(words, LONGEST_SUBJECT, field="subject")


def _within(words: str, longest: int, *, field: str) -> str:
    if len(words) > longest:
        raise InvalidInput(
            f"{field} must have at most {longest:,} characters; got {len(words):,}", field=field, value=words
        )
    return words


def parse_expiry(expires: object, *, now: datetime) -> datetime | None:
    """When a note expires: a moment yet to come, or None for never."""
    if expires is None:
        return None
    moment = parse_moment(expires, field="expires").astimezone(UTC)  # type: ignore[arg-type]  # checked there
    if moment <= now:
        raise InvalidInput(f"expires must lie in the future; got {shown(expires)}", field="expires")
    return moment


# Subjects

_IS = re.compile(
    r"\s(?:is|are|was|were|ist|sind|heißt|heißen|est|sont|es|son|zijn|heet|heten)\s|\s*[:=]\s+", re.IGNORECASE
)
_POLITE = re.compile(
    r"^(?:please\s+)?(?:(?:note|remember)\s+(?:that\s+)?)?(?:from now on,?\s+)?", re.IGNORECASE
)
_ATTRIBUTES = frozenset(
    terms_of(
        "name nickname birthday birthdate age address email phone number password pin code job profession "
        "employer size weight height bedtime language timezone diet nationality hometown"
    )
)
"""Words for what somebody has one of at a time."""


def subject_of(text: str) -> str:
    """The subject of a sentence: what it begins with where that is an attribute, else the sentence."""
    said = _POLITE.sub("", text, count=1)
    found = _IS.search(said)
    head = said[: found.start()] if found else ""
    return head.strip(" ,") if _is_attribute(head) else text[:LONGEST_SUBJECT]


def _is_attribute(head: str) -> bool:
    terms = set(terms_of(head))
    words = head.split()
    names_somebody = all(word[:1].isupper() for word in words) and not any("'" in word for word in words)
    if len(terms) == 1:
        return terms <= _ATTRIBUTES
    return 1 < len(terms) <= 6 and not names_somebody


@lru_cache(maxsize=4_096)
def subject_key(subject: str) -> Subject:
    """What two subjects have in common when they are the same: their terms, whatever the order."""
    return tuple(sorted(set(terms_of(subject)))) or (subject.casefold(),)


# As documents


def encode_note(note: Note) -> bytes:
    return msgspec.json.encode(note)


def decode_note(document: Document) -> Note | None:
    """The note in a document. One that cannot be read is set aside, and the log says so."""
    try:
        note = msgspec.json.decode(document.data, type=Note)
        parse_tags(note.tags)
    except (msgspec.MsgspecError, InvalidInput) as error:
        log.warning("a note cannot be read and is set aside: %s", describe(error))
        return None
    if note.id != document.key or note.remembered_at.tzinfo is None:
        log.warning("note %s is not what its place says and is set aside", shown(document.key))
        return None
    return note


def notes_in(documents: Iterable[Document]) -> list[Note]:
    """The notes in these documents, as they are stored."""
    return [note for document in documents if (note := decode_note(document)) is not None]


async def read_notes(store: ConversationStore) -> list[Note]:
    """All notes that an owner has, replaced and expired ones too; as they are stored."""
    found: list[Note] = []
    after: str | None = None
    while True:
        page = await store.documents(KIND, after=after, limit=PAGE)
        found += notes_in(page)
        if len(page) < PAGE:
            return found
        after = page[-1].key


async def remove_notes(store: ConversationStore, notes: Iterable[Note]) -> int:
    """Remove these notes; returns how many were there."""
    return sum([await store.delete_document(KIND, note.id) for note in notes])


async def purge_notes(store: ConversationStore) -> int:
    """Remove notes that have expired; returns how many."""
    return await remove_notes(store, standing(await read_notes(store), now=store.now()).expired)


async def remove_notes_from(
    store: ConversationStore, conversation_id: str, message_id: str | None = None
) -> int:
    """Remove the notes that were made from a conversation, or from one message of it."""
    return await remove_notes(store, await notes_from(store, conversation_id, message_id))


async def notes_from(
    store: ConversationStore, conversation_id: str, message_id: str | None = None
) -> list[Note]:
    """The notes that were made from a conversation, or from one message of it."""
    return [note for note in await read_notes(store) if _was_said_in(note, conversation_id, message_id)]


def _was_said_in(note: Note, conversation_id: str, message_id: str | None = None) -> bool:
    source = note.source
    if source is None or source.conversation_id != conversation_id:
        return False
    return message_id is None or source.message_id == message_id


# What is known while the store is away

MOST_KNOWN = 50_000
"""Notes, and owners, that are held for that. Who was read longest ago goes first."""


class KnownNotes:
    """The notes of owners as they were last read: better than none. Made once for a memory."""

    def __init__(self, most: int = MOST_KNOWN) -> None:
        # An owner without notes counts as one, so that owners are limited too.
        self._held: BoundedDict[str, list[Note]] = BoundedDict(most, size=lambda notes: len(notes) + 1)

    def keep(self, owner: str, notes: Sequence[Note]) -> None:
        """These are the owner's notes now."""
        self._held[owner] = list(notes)

    def add(self, owner: str, note: Note) -> None:
        """The owner has one more."""
        self.keep(owner, [*self._held.get(owner, ()), note])

    def of(self, owner: str) -> Sequence[Note] | None:
        """The owner's notes as far as they are known; None where they were never read."""
        return self._held.get(owner)

    def drop(self, owner: str) -> None:
        """Something was forgotten: it must not come back from here."""
        self._held.pop(owner, None)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Let go of copies in memory, as `CopyHolder` asks."""
        held = self._held.get(owner, ())
        self.drop(owner)
        meant = [note for note in held if conversation_id is None or _was_said_in(note, conversation_id)]
        return {"cached_copies": len(meant)}


# What holds


class Standing(Struct, frozen=True, kw_only=True):
    """An owner's notes at a moment."""

    current: tuple[Note, ...] = ()
    """Those that hold, oldest first."""
    replaced: tuple[Note, ...] = ()
    """Those that a later one on the same subject stands in for, oldest first."""
    expired: tuple[Note, ...] = ()
    """Those that are over, with all that they replaced."""


def standing(notes: Iterable[Note], *, now: datetime) -> Standing:
    """Which notes hold: of each subject the latest. Where that has expired, no older one comes back."""
    by_subject: dict[Subject, list[Note]] = {}
    for note in sorted(notes, key=_age):
        by_subject.setdefault(note.about, []).append(note)
    current: list[Note] = []
    replaced: list[Note] = []
    expired: list[Note] = []
    for same in by_subject.values():
        *earlier, latest = same
        if latest.has_expired(now):
            expired += same
            continue
        current.append(latest)
        replaced += [replace(note, replaced_by=latest.id) for note in earlier]
    return Standing(
        current=tuple(sorted(current, key=_age)),
        replaced=tuple(sorted(replaced, key=_age)),
        expired=tuple(expired),
    )


def superfluous(replaced: Sequence[Note]) -> list[Note]:
    """Replaced notes beyond those that are kept for their subject: the oldest."""
    counts: Counter[Subject] = Counter()
    found = []
    for note in reversed(replaced):
        counts[note.about] += 1
        if counts[note.about] > MOST_EARLIER:
            found.append(note)
    return found


def after(notes: Iterable[Note], moment: datetime) -> datetime:
    """The moment, or one that is later than all of these notes: who says something later replaces it, also
    where a clock stands still or was set back."""
    latest = max((note.remembered_at for note in notes), default=None)
    return moment if latest is None or latest < moment else latest + _MOMENT


_MOMENT = timedelta(microseconds=1)


def _age(note: Note) -> tuple[datetime, str]:
    return note.remembered_at, note.id


# Finding

WORDS = 0.6
MEANING = 0.4
"""What words and meaning count for, as in the search of conversations."""
NEAR = 0.32
"""How near in meaning a note must be that shares no word with the question."""


def ranked(
    notes: Sequence[Note], query: str, similarities: Sequence[float] | None = None
) -> list[tuple[float, Note]]:
    """The notes that answer the question, best first, with scores between 0 and 1; alike, the latest first.

    A word counts for more the fewer notes have it. `similarities`: how near each is in meaning.
    """
    wanted = tuple(dict.fromkeys(terms_of(query)))
    terms = [note_terms(note) for note in notes]
    rarity = {term: _rarity(term, terms) for term in wanted}
    most = sum(rarity.values()) or 1.0
    found = []
    for at, note in enumerate(notes):
        words = sum(rarity[term] for term in wanted if term in terms[at]) / most
        near = 0.0 if similarities is None else float(similarities[at])
        if words or near >= NEAR:
            score = words if similarities is None else WORDS * words + MEANING * max(0.0, near)
            found.append((score, note))
    found.sort(key=lambda one: _age(one[1]), reverse=True)
    return sorted(found, key=lambda one: -round(one[0], 9))


def note_terms(note: Note) -> frozenset[str]:
    """What a note is found by: its words, its subject and its tags."""
    return frozenset(terms_of(" ".join((note.text, note.subject, *note.tags))))


def _rarity(term: str, notes: Sequence[frozenset[str]]) -> float:
    having = sum(term in terms for terms in notes)
    return math.log(1 + (len(notes) + 1) / (having + 0.5))


def meant(notes: Sequence[Note], what: str) -> list[Note]:
    """The notes that somebody means who wants to be rid of them: never a guess.

    The note of this id; else those on exactly this subject; else those that have every word of it.
    """
    for named in (
        [note for note in notes if note.id == what],
        [note for note in notes if note.about == subject_key(what)],
    ):
        if named:
            return named
    wanted = set(terms_of(what))
    return [note for note in notes if wanted <= note_terms(note)] if wanted else []


# In a context

HEADING = (
    "What is known about this user from earlier conversations, with the day on which it was noted. "
    "What the user says now goes before it."
)


class NotesShown(Struct, frozen=True, kw_only=True):
    """The notes that a context holds, and those that it had no room for."""

    text: str = ""
    shown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def message(self) -> Message | None:
        """What the model reads: a part of its system prompt."""
        return Message(role="system", content=self.text, tags=(TAG,)) if self.shown else None


def fitted(notes: Sequence[Note], *, tokens: int, count: Count) -> NotesShown:
    """As many notes as the budget holds: important ones first, then the latest; told oldest first.

    The same notes give the same text, byte for byte, so that a provider's prompt cache keeps hitting; a
    new one comes at the end.
    """
    lines = {
        note.id: f"- {note.text} ({note.remembered_at.astimezone(UTC).date().isoformat()})" for note in notes
    }
    latest = sorted(notes, key=_age, reverse=True)
    left = tokens - count(HEADING)
    kept: set[str] = set()
    for note in sorted(latest, key=lambda note: IMPORTANT not in note.tags):
        cost = count(lines[note.id]) + 1  # the end of the line
        if cost <= left:
            kept.add(note.id)
            left -= cost
    describe = [note.id for note in reversed(latest) if note.id in kept]
    return NotesShown(
        text="\n".join([HEADING, *(lines[one] for one in describe)]) if describe else "",
        shown=tuple(describe),
        left_out=tuple(note.id for note in reversed(latest) if note.id not in kept),
    )
