"""Notes: facts and preferences that outlive a conversation, and the rules that compare them.

A note is a sentence with a subject. Each note is a document that is written once. A later note on the same
subject replaces an earlier one; `standing` determines this when notes are read, not when one is written. So
concurrent writers, an import or a replayed spool lose nothing and agree on the result.

Two notes have the same subject when:

- their subjects have the same terms, in any order: "bedroom lights" equals "the lights of the bedroom";
- a note without a subject uses the start of its sentence if that is an attribute, which has one value at a
  time: at least two terms before *is* or *are* ("the bedroom lights are dim at 9 pm"), or one term that is an
  attribute by itself ("my name is Erin"). Names of people are not attributes ("Erin Smith is a doctor"), nor
  are single things ("the car is red", "the car is in the garage");
- any other sentence is its own subject: only the same words replace it.
"""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.patterns import lazy_pattern
from aforesaid.contracts import ConversationStore, Document, parse_listing
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.ids import parse_conversation, parse_name
from aforesaid.model.messages import Message, parse_tags, parse_text
from aforesaid.search.analysis import terms_of
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.notes")

KIND = "notes"
# The tag of the message that contains notes in a context.
TAG = "notes"
# Notes with this tag are the last to be omitted from a context.
IMPORTANT = "important"

# The most characters of a note: a few sentences. Longer texts belong in a conversation.
LONGEST_NOTE = 2_000
LONGEST_SUBJECT = 200
# The most notes of one owner. Every context reads all of them.
MOST_NOTES = 1_000
# The most replaced notes that are kept for each subject.
MOST_EARLIER = 20
PAGE = 200
FIRST_PAGE = parse_listing(KIND, None, None, PAGE)
NO_PAGE = parse_listing(KIND, None, None, 0)

Subject = tuple[str, ...]
Count = Callable[[str], int]


class Source(Struct, frozen=True, kw_only=True):
    """The message from which a note was made. Either id may be unknown or removed by now."""

    conversation_id: str | None = None
    message_id: str | None = None

    def __post_init__(self) -> None:
        if self.conversation_id is not None:
            checked = parse_conversation(self.conversation_id)
            force_setattr(self, "conversation_id", checked)
        if self.message_id is not None:
            parse_name(self.message_id, field="message_id")


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact or preference to remember."""

    id: str
    text: str
    subject: str
    """The subject in words, as given or as the text contains it."""
    remembered_at: datetime
    tags: tuple[str, ...] = ()
    expires_at: datetime | None = None
    source: Source | None = None
    replaced_by: str | None = None
    """The id of the note that replaced it; derived when notes are read, never stored."""

    @property
    def about(self) -> Subject:
        """The subject in the form in which notes are compared."""
        return subject_key(self.subject)

    def has_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


# Validation


def parse_note_text(text: object) -> str:
    """Return the text of a note on one line. Raise `InvalidInput`."""
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
    """Return when a note expires: a time in the future, or None for never."""
    if expires is None:
        return None
    moment = parse_moment(expires, field="expires").astimezone(UTC)  # type: ignore[arg-type]  # checked there
    if moment <= now:
        raise InvalidInput(f"expires must lie in the future; got {shown(expires)}", field="expires")
    return moment


# Subjects

_IS = lazy_pattern(
    r"\s(?:is|are|was|were|ist|sind|heißt|heißen|est|sont|es|son|zijn|heet|heten)\s|\s*[:=]\s+", re.IGNORECASE
)
_POLITE = lazy_pattern(
    r"^(?:please\s+)?(?:(?:note|remember)\s+(?:that\s+)?)?(?:from now on,?\s+)?", re.IGNORECASE
)


@cache
def _attributes() -> frozenset[str]:
    """Return the terms of attributes of which a person has one at a time."""
    return frozenset(
        terms_of(
            "name nickname birthday birthdate age address email phone number password pin code job "
            "profession employer size weight height bedtime language timezone diet nationality hometown"
        )
    )


def subject_of(text: str) -> str:
    """Return the subject of a sentence: its start where that is an attribute, otherwise the sentence."""
    said = _POLITE.sub("", text, count=1)
    found = _IS.search(said)
    head = said[: found.start()] if found else ""
    return head.strip(" ,") if _is_attribute(head) else text[:LONGEST_SUBJECT]


def _is_attribute(head: str) -> bool:
    terms = set(terms_of(head))
    words = head.split()
    is_name = all(word[:1].isupper() for word in words) and not any("'" in word for word in words)
    if len(terms) == 1:
        return terms <= _attributes()
    return 1 < len(terms) <= 6 and not is_name


@lru_cache(maxsize=4_096)
def subject_key(subject: str) -> Subject:
    """Return the key of a subject: its terms, in any order."""
    return tuple(sorted(set(terms_of(subject)))) or (subject.casefold(),)


# As documents


def encode_note(note: Note) -> bytes:
    return msgspec.json.encode(note)


def decode_note(document: Document) -> Note | None:
    """Return the note in a document. An unreadable one is logged and skipped."""
    try:
        note = msgspec.json.decode(document.data, type=Note)
        parse_tags(note.tags)
    except (msgspec.MsgspecError, InvalidInput) as error:
        log.warning("a note cannot be read and is skipped: %s", describe(error))
        return None
    # Plain SQL and imports can write documents that no note of ours would produce.
    if note.id != document.key or note.remembered_at.tzinfo is None:
        log.warning("note %s does not match its key and is skipped", shown(document.key))
        return None
    return note


def notes_in(documents: Iterable[Document]) -> list[Note]:
    """Return the notes in these documents, as stored."""
    return [note for document in documents if (note := decode_note(document)) is not None]


async def read_notes(store: ConversationStore) -> list[Note]:
    """Return all notes of an owner as stored, including replaced and expired ones."""
    return notes_in([document async for document in all_documents(store, KIND, limit=PAGE)])


async def remove_notes(store: ConversationStore, notes: Iterable[Note]) -> int:
    """Remove these notes; return how many existed."""
    return sum([await store.delete_document(KIND, note.id) for note in notes])


async def purge_notes(store: ConversationStore) -> int:
    """Remove expired notes; return how many."""
    return await remove_notes(store, standing(await read_notes(store), now=store.now()).expired)


async def remove_notes_from(
    store: ConversationStore, conversation_id: str, message_id: str | None = None
) -> int:
    """Remove the notes made from a conversation, or from one message of it."""
    return await remove_notes(store, await notes_from(store, conversation_id, message_id))


async def notes_from(
    store: ConversationStore, conversation_id: str, message_id: str | None = None
) -> list[Note]:
    """Return the notes made from a conversation, or from one message of it."""
    return [note for note in await read_notes(store) if _is_from(note, conversation_id, message_id)]


def _is_from(note: Note, conversation_id: str, message_id: str | None = None) -> bool:
    source = note.source
    if source is None or source.conversation_id != conversation_id:
        return False
    return message_id is None or source.message_id == message_id


# Cache

# The most cached notes and owners; the least recently read owner is evicted first.
MOST_KNOWN = 50_000


class NotesCache:
    """A cache of the notes last read for each owner, used while the store is unavailable. One per memory."""

    def __init__(self, most: int = MOST_KNOWN) -> None:
        # An owner without notes counts as one, so that owners are limited too.
        self._by_owner: BoundedDict[str, list[Note]] = BoundedDict(most, size=lambda notes: len(notes) + 1)

    def keep(self, owner: str, notes: Sequence[Note]) -> None:
        """Cache these as the owner's notes."""
        self._by_owner[owner] = list(notes)

    def add(self, owner: str, note: Note) -> None:
        """Add one note."""
        self.keep(owner, [*self._by_owner.get(owner, ()), note])

    def owners(self) -> list[str]:
        """Return the owners with cached notes."""
        return list(self._by_owner)

    def of(self, owner: str) -> Sequence[Note] | None:
        """Return the owner's cached notes; None where there are none."""
        return self._by_owner.get(owner)

    def drop(self, owner: str) -> None:
        """Remove the owner's notes, so that a removed note cannot reappear."""
        self._by_owner.pop(owner, None)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Remove the cached copies; see `contracts.CopyHolder`."""
        cached = self._by_owner.get(owner, ())
        self.drop(owner)
        meant = [note for note in cached if conversation_id is None or _is_from(note, conversation_id)]
        return {"cached_copies": len(meant)}


# Validity


class Standing(Struct, frozen=True, kw_only=True):
    """An owner's notes at one time."""

    current: tuple[Note, ...] = ()
    """The valid notes, oldest first."""
    replaced: tuple[Note, ...] = ()
    """The notes that a later one on the same subject replaced, oldest first."""
    expired: tuple[Note, ...] = ()
    """The expired notes, with those that they had replaced."""


def standing(notes: Iterable[Note], *, now: datetime) -> Standing:
    """Return the valid notes: the latest of each subject. An expired note does not bring back an
    older one.
    """
    by_subject: dict[Subject, list[Note]] = {}
    for note in sorted(notes, key=_age):
        by_subject.setdefault(note.about, []).append(note)
    current: list[Note] = []
    replaced: list[Note] = []
    expired: list[Note] = []
    for same in by_subject.values():
        *earlier, latest = same
        # The replaced notes go with it: otherwise an outdated one would become valid again.
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
    """Return the oldest replaced notes beyond the limit of their subject."""
    counts: Counter[Subject] = Counter()
    found = []
    for note in reversed(replaced):
        counts[note.about] += 1
        if counts[note.about] > MOST_EARLIER:
            found.append(note)
    return found


def after(notes: Iterable[Note], moment: datetime) -> datetime:
    """Return the time, or one after all of these notes, so that a later note replaces an earlier one even
    when a clock stands still or was set back.
    """
    latest = max((note.remembered_at for note in notes), default=None)
    return moment if latest is None or latest < moment else latest + _MOMENT


_MOMENT = timedelta(microseconds=1)


def _age(note: Note) -> tuple[datetime, str]:
    return note.remembered_at, note.id


# Ranking

WORDS = 0.6
# The weights of words and meaning, as in the search of conversations.
MEANING = 0.4
# The score of a note that answers a question of its kind without a common word.
RELATED = 0.5
# The least similarity of a note that shares no word with the question.
NEAR = 0.32


def ranked(
    notes: Sequence[Note], query: str, similarities: Sequence[float] | None = None
) -> list[tuple[float, Note]]:
    """Return the notes that match the question with scores from 0 to 1, best first; equal ones by age, latest
    first.

    A word counts more the fewer notes contain it. `similarities` are those of each note to the question.
    """
    wanted = tuple(dict.fromkeys(terms_of(query)))
    terms = [note_terms(note) for note in notes]
    rarity = {term: _rarity(term, terms) for term in wanted}
    most = sum(rarity.values()) or 1.0
    found = []
    for at, note in enumerate(notes):
        words = sum(rarity[term] for term in wanted if term in terms[at]) / most
        if not words and any(asked & set(wanted) and noted & terms[at] for asked, noted in _related()):
            words = RELATED
        near = 0.0 if similarities is None else float(similarities[at])
        if words or near >= NEAR:
            score = words if similarities is None else WORDS * words + MEANING * max(0.0, near)
            found.append((score, note))
    # Two stable sorts: by age, then by score, so that equal scores list the latest first.
    found.sort(key=lambda one: _age(one[1]), reverse=True)
    # Rounding hides differences of floating-point summation between platforms.
    return sorted(found, key=lambda one: -round(one[0], 9))


# Questions about food or health, and facts that answer them without a common word. Neither words nor vectors
# connect "what can I not eat?" with an allergy, and missing one can harm.
_RELATED = (
    (
        "eat food diet cook meal dish menu recipe dinner lunch breakfast snack avoid ingredients "
        "essen kochen mahlzeit comer comida cocinar mangiare cibo cucinare",
        "allergic allergy allergies intolerant intolerance vegetarian vegan celiac coeliac gluten lactose "
        "kosher halal diabetic allergisch allergie unverträglichkeit vegetarisch alérgico alérgica alergia "
        "intolerancia vegetariano allergico allergica intolleranza",
    ),
    (
        "health ill sick illness medical medicine doctor emergency krank arzt enfermo médico malato medico",
        "allergic allergy allergies asthma diabetic diabetes medication epilepsy pregnant allergisch "
        "allergie alérgico alérgica alergia asma allergico allergica",
    ),
)


@cache
def _related() -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    return tuple((frozenset(terms_of(asked)), frozenset(terms_of(noted))) for asked, noted in _RELATED)


def note_terms(note: Note) -> frozenset[str]:
    """Return the terms of a note's text, subject and tags."""
    return frozenset(terms_of(" ".join((note.text, note.subject, *note.tags))))


def _rarity(term: str, notes: Sequence[frozenset[str]]) -> float:
    having = sum(term in terms for terms in notes)
    return math.log(1 + (len(notes) + 1) / (having + 0.5))


def meant(notes: Sequence[Note], what: str) -> list[Note]:
    """Return the notes that a request to forget names. It never guesses.

    The note of this id; otherwise those on exactly this subject; otherwise those with every word.
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
    "Notes about this user from earlier conversations, each with the date it was made. "
    "What the user says now takes precedence over these notes."
)


class NotesShown(Struct, frozen=True, kw_only=True):
    """The notes in a context, and those that did not fit."""

    text: str = ""
    shown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def message(self) -> Message | None:
        """The notes as a part of the system prompt."""
        return Message(role="system", content=self.text, tags=(TAG,)) if self.shown else None


def _line(note: Note) -> str:
    """Return a note as a model reads it, with its subject where the text does not contain it."""
    names_subject = set(terms_of(note.subject)) <= set(terms_of(note.text))
    text = note.text if names_subject else f"{note.subject}: {note.text}"
    return f"- {text} ({note.remembered_at.astimezone(UTC).date().isoformat()})"


FORGOTTEN = "- a note that was forgotten since"


def shown_again(ids: Sequence[str], notes: Sequence[Note]) -> str:
    """Return the text that notes with these ids had in a context. Forgotten notes leave no words."""
    lines = {note.id: _line(note) for note in notes}
    return "\n".join([HEADING, *(lines.get(one, FORGOTTEN) for one in ids)]) if ids else ""


def fitted(notes: Sequence[Note], *, tokens: int, count: Count) -> NotesShown:
    """Return as many notes as fit the budget: important ones first, then the latest. The text lists the
    oldest first.

    The same notes give the same text, byte for byte, as a provider's prompt cache requires; a new note comes
    last.
    """
    lines = {note.id: _line(note) for note in notes}
    latest = sorted(notes, key=_age, reverse=True)
    left = tokens - count(HEADING)
    chosen: set[str] = set()
    for note in sorted(latest, key=lambda note: IMPORTANT not in note.tags):
        cost = count(lines[note.id]) + 1  # the end of the line
        if cost <= left:
            chosen.add(note.id)
            left -= cost
    listed = [note.id for note in reversed(latest) if note.id in chosen]
    return NotesShown(
        text="\n".join([HEADING, *(lines[one] for one in listed)]) if listed else "",
        shown=tuple(listed),
        left_out=tuple(note.id for note in reversed(latest) if note.id not in chosen),
    )
