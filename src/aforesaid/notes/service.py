"""An owner's notes: remember, recall, forget, and select the notes for a context."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aforesaid._internal.deadlines import within
from aforesaid._internal.freshness import note_degraded
from aforesaid.contracts import ConversationStore, Document, TokenCounter, audit_action
from aforesaid.errors import (
    EncoderFailed,
    InvalidInput,
    NoteNotFound,
    StoreError,
    StoreUnavailable,
    shown,
)
from aforesaid.intake.messages import Intake
from aforesaid.intake.redaction import Redactor, redacted
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import IdSource
from aforesaid.model.messages import Message, parse_tags
from aforesaid.notes.records import (
    KIND,
    MOST_NOTES,
    KnownNotes,
    Note,
    NotesShown,
    Source,
    Standing,
    after,
    encode_note,
    fitted,
    meant,
    notes_in,
    parse_expiry,
    parse_note_text,
    parse_subject,
    ranked,
    read_notes,
    remove_notes,
    standing,
    subject_of,
    superfluous,
)
from aforesaid.settings import ConversationConfig
from aforesaid.telemetry import describe
from aforesaid.windows import WindowPolicy

if TYPE_CHECKING:
    from aforesaid.search.searcher import Searcher

log = logging.getLogger("aforesaid.notes")

AS_LAST_READ = "notes are as they were last read"
PART_OF_DEADLINE = 4
SHARE = 4
"""Where the whole request has a budget, notes take one part in so many of it at most."""


class Notes:
    """One owner's notes."""

    def __init__(
        self,
        store: ConversationStore,
        searcher: "Searcher",
        intake: Intake,
        config: ConversationConfig,
        known_notes: KnownNotes,
        ids: IdSource,
    ) -> None:
        self.store = store
        self.searcher = searcher
        self.intake = intake
        self.config = config
        self.known_notes = known_notes
        self._ids = ids

    async def remember(
        self,
        text: str,
        *,
        subject: str | None = None,
        tags: Sequence[str] = (),
        expires: datetime | str | timedelta | None = None,
        source: Source | None = None,
    ) -> Note:
        """Keep something that holds beyond this conversation: a preference, a fact about the home.

        A note on the same subject, which is named or taken from the text, is replaced; `aforesaid.notes`
        says when two are the same. `expires`: a moment, or a time from now. `source`: the message that
        it was said in. The same note said again is the one that is there. While the store is away a note
        is accepted as a turn is.
        """
        new = self._made(text, subject, parse_tags(tags), expires, source)
        there = await self._standing_or_nothing()
        new = replace(new, remembered_at=after((*there.current, *there.expired), new.remembered_at))
        known = next((one for one in there.current if one.about == new.about), None)
        if known is not None and _says_the_same(known, new):
            return known
        if known is None and len(there.current) >= MOST_NOTES:
            raise InvalidInput(f"there are {MOST_NOTES:,} notes already: forget some first", field="text")
        await self.store.put_document(KIND, new.id, encode_note(new))
        self.known_notes.add(self.searcher.owner, new)
        await self._tidy(there, new)
        return new

    def _made(
        self,
        text: str,
        subject: str | None,
        tags: tuple[str, ...],
        expires: datetime | str | timedelta | None,
        source: Source | None,
    ) -> Note:
        now = self.store.now()
        redact = self.intake.redact
        words = redacted_words(parse_note_text(text), redact)
        named = subject_of(words) if subject is None else redacted_words(parse_subject(subject), redact)
        if isinstance(expires, timedelta):
            check_span(expires, field="expires")
            expires = now + expires
        if source is not None and not isinstance(source, Source):
            raise InvalidInput(f"source must be a Source; got {shown(source)}", field="source", value=source)
        return Note(
            id=self._ids(),
            text=words,
            subject=named,
            remembered_at=now,
            tags=tags,
            expires_at=parse_expiry(expires, now=now),
            source=source,
        )

    async def _tidy(self, there: Standing, new: Note) -> None:
        """Let go of what is over, and of replaced notes that are too many."""
        earlier = (*there.replaced, *(one for one in there.current if one.about == new.about))
        over = (*superfluous(earlier), *there.expired)
        try:
            await remove_notes(self.store, over)
        except StoreUnavailable as error:
            log.info("%d notes that are over stay for now: %s", len(over), describe(error))

    async def _standing(self) -> Standing:
        """The owner's notes; while the store is away, as they were last read."""
        owner = self.searcher.owner
        try:
            notes: Sequence[Note] = await read_notes(self.store)
        except StoreUnavailable:
            known = self.known_notes.of(owner)
            if known is None or not self.store.degraded:
                raise
            note_degraded(AS_LAST_READ)
            return standing(known, now=self.store.now())
        self.known_notes.keep(owner, notes)
        return standing(notes, now=self.store.now())

    async def _standing_or_nothing(self) -> Standing:
        """The same for who wants to add one: whether the store takes it, the store says."""
        try:
            return await self._standing()
        except StoreUnavailable as error:
            log.info("a note is made without a look at the others: %s", describe(error))
            return Standing()

    async def notes(self, *, tag: str | None = None, history: bool = False) -> list[Note]:
        """The notes that hold, oldest first; with `history` also those that were replaced, before them."""
        there = await self._standing()
        found = (*there.replaced, *there.current) if history else there.current
        return [one for one in found if tag is None or tag in one.tags]

    async def get_note(self, note_id: str) -> Note:
        """The note of this id, also a replaced one. Raises `NoteNotFound`."""
        for one in await self.notes(history=True):
            if one.id == note_id:
                return one
        raise NoteNotFound(note_id)

    async def recall(self, query: str = "", limit: int = 10, *, tag: str | None = None) -> list[Note]:
        """The notes that answer a question, best first; without one, the latest first.

        By words, and by meaning where there is an encoder.
        """
        from aforesaid.search.queries import parse_limit, parse_question

        most, question = parse_limit(limit, field="limit"), parse_question(query)
        there = await self.notes(tag=tag)
        if not question:
            found = there[::-1][:most]
        else:
            similarities = await self._similarities(question, there)
            found = [one for _, one in ranked(there, question, similarities)][:most]
        await audit_action(self.store, "search", count=len(found))
        return found

    async def _similarities(self, question: str, notes: Sequence[Note]) -> list[float] | None:
        room = self.searcher.resources
        texts = room.texts_of(self.searcher.owner)
        if texts is None:
            return None
        try:
            return await texts.similarities(question, [one.text for one in notes])
        except EncoderFailed as error:
            room.encoder_error = str(error)
            log.warning("notes are searched by words alone: %s", describe(error))
            return None

    async def forget(self, what: str) -> list[Note]:
        """Forget a note: the one of this id, those on this subject, or those with all of these words.

        With a note goes all that it replaced. The id of a replaced note forgets that one alone. Gives
        back what was forgotten; nothing where nothing is meant.
        """
        if not isinstance(what, str) or not what.strip():
            raise InvalidInput(f"what to forget must be said; got {shown(what)}", field="what", value=what)
        there = await self._standing()
        earlier = [one for one in there.replaced if one.id == what]
        if earlier:
            await remove_notes(self.store, earlier)
            self.known_notes.drop(self.searcher.owner)
            return earlier
        found = meant(there.current, what.strip())
        gone = {one.id for one in found}
        await remove_notes(self.store, [*(one for one in there.replaced if one.replaced_by in gone), *found])
        self.known_notes.drop(self.searcher.owner)
        return found

    # In a context

    async def shown(self, policy: WindowPolicy) -> tuple[NotesShown, str | None]:
        """The notes for a context, and why there are none where the store failed over them."""
        tokens = self.budget(policy)
        if not tokens:
            return NotesShown(), None
        there, trouble = await self._standing_in_time()
        return await self._fitted(there, tokens), trouble

    async def shown_from(self, documents: Sequence[Document], policy: WindowPolicy) -> NotesShown:
        """The same of documents that were read already: all of the owner's notes."""
        notes = notes_in(documents)
        self.known_notes.keep(self.searcher.owner, notes)
        if not notes:
            return NotesShown()
        return await self._fitted(standing(notes, now=self.store.now()), self.budget(policy))

    async def _fitted(self, there: Standing, budget: int) -> NotesShown:
        if not there.current:
            return NotesShown()
        counter = await self.intake.line_counter()
        return fitted(there.current, tokens=budget, count=lambda line: _tokens(counter, line))

    async def _standing_in_time(self) -> tuple[Standing, str | None]:
        """The owner's notes, or those that were read last: an agent is not kept waiting for them.

        They get a part of the time that a context has: what is left is for the log.
        """
        seconds = self.config.context_deadline / PART_OF_DEADLINE
        try:
            return await within(seconds or None, self._standing()), None
        except TimeoutError:
            why = cause = f"the store did not answer within {seconds:g} s"
        except StoreError as error:
            why, cause = str(error), describe(error)
        log.warning("notes could not be read: %s", cause)
        known = self.known_notes.of(self.searcher.owner)
        if known is None:
            return Standing(), f"notes could not be read: {why}"
        return standing(known, now=self.store.now()), f"{AS_LAST_READ}: {why}"

    def budget(self, policy: WindowPolicy) -> int:
        budget = self.config.notes_tokens if policy.notes_tokens is None else policy.notes_tokens
        return budget if policy.max_tokens is None else min(budget, policy.max_tokens // SHARE)


def redacted_words(words: str, redact: Redactor | None) -> str:
    """The words as the function leaves them that sees all messages: what it hides stays hidden."""
    if redact is None:
        return words
    left = redacted([Message(role="user", content=words, message_id="note")], redact)
    if not left or not isinstance(left[0].content, str):
        raise InvalidInput("the redact function leaves nothing of the note", field="text")
    return parse_note_text(left[0].content)


_REMEMBERED = 4_096
_costs: dict[tuple[str, str], int] = {}


def _tokens(counter: TokenCounter, line: str) -> int:
    """What a line costs. Notes are counted for every context and change seldom, so it is remembered."""
    key = (counter.name, line)
    if key not in _costs:
        while len(_costs) >= _REMEMBERED:
            _costs.pop(next(iter(_costs)), None)
        _costs[key] = counter.count_text(line)
    return _costs[key]


def _says_the_same(known: Note, new: Note) -> bool:
    return (known.text, known.subject, known.tags, known.expires_at) == (
        new.text,
        new.subject,
        new.tags,
        new.expires_at,
    )
