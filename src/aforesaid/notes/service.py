"""An owner's notes: remember, recall, forget, and select the notes for a context."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.freshness import note_degraded
from aforesaid._internal.tasks import within
from aforesaid.contracts import ConversationStore, Document, TokenCounter, audit_action
from aforesaid.errors import (
    EncoderFailed,
    InvalidInput,
    NoteNotFound,
    StoreError,
    StoreUnavailable,
    shown,
)
from aforesaid.intake.messages import Intake, Redactor, redacted
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import IdSource, conversation_key
from aforesaid.model.messages import Message, parse_tags
from aforesaid.notes.records import (
    KIND,
    MOST_NOTES,
    Note,
    NotesCache,
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
from aforesaid.tokens import is_slow_to_load, quick_counter
from aforesaid.windows import WindowPolicy

if TYPE_CHECKING:
    from aforesaid.analytics.usage import UsageLog
    from aforesaid.search.searcher import Searcher

log = logging.getLogger("aforesaid.notes")

AS_LAST_READ = "notes come from the last known state"
PART_OF_DEADLINE = 4
# The largest share of a request's budget that notes may take, as a divisor.
SHARE = 4


class Notes:
    """One owner's notes."""

    def __init__(
        self,
        store: ConversationStore,
        searcher: "Searcher",
        intake: Intake,
        config: ConversationConfig,
        notes_cache: NotesCache,
        usage: "UsageLog",
        ids: IdSource,
    ) -> None:
        self.store = store
        self.searcher = searcher
        self.intake = intake
        self.config = config
        self.notes_cache = notes_cache
        self._usage = usage
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
        """Store a fact or preference that outlives this conversation.

        - `subject`: by default taken from the text. A note on the same subject is replaced;
          `aforesaid.notes.records` defines when subjects are the same.
        - `expires`: a time, or a duration from now.
        - `source`: the message that it was made from.

        Repeating a note returns the existing one. While the store is unavailable, a note is spooled like a
        turn.
        """
        new = self._new_note(text, subject, parse_tags(tags), expires, source)
        standing_notes = await self._standing_or_nothing()
        new = replace(
            new, remembered_at=after((*standing_notes.current, *standing_notes.expired), new.remembered_at)
        )
        known = next((one for one in standing_notes.current if one.about == new.about), None)
        if known is not None and _is_same(known, new):
            return known
        # Replacing a note is always possible: it does not increase their number.
        if known is None and len(standing_notes.current) >= MOST_NOTES:
            raise InvalidInput(f"there are {MOST_NOTES:,} notes already: forget some first", field="text")
        await self.store.put_document(KIND, new.id, encode_note(new))
        # An outage right after this write must not hide the new note.
        self.notes_cache.add(self.searcher.owner, new)
        source_id = None if new.source is None else new.source.conversation_id
        self._usage.counted(self.store, "notes_made", conversation_id=source_id)
        await self._tidy(standing_notes, new)
        return new

    def _with_id(self, source: Source | None) -> Source | None:
        """Return the source with the id of a conversation that it names."""
        if source is None or source.conversation_id is None:
            return source
        key = conversation_key(source.conversation_id, owner=self.store.owner)
        return Source(conversation_id=key.id, message_id=source.message_id)

    def _new_note(
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
            source=self._with_id(source),
        )

    async def _tidy(self, standing_notes: Standing, new: Note) -> None:
        """Remove expired notes and superfluous replaced ones."""
        earlier = (
            *standing_notes.replaced,
            *(one for one in standing_notes.current if one.about == new.about),
        )
        obsolete = (*superfluous(earlier), *standing_notes.expired)
        try:
            await remove_notes(self.store, obsolete)
        except StoreUnavailable as error:
            log.info("%d expired or replaced notes are not removed yet: %s", len(obsolete), describe(error))

    async def _standing(self) -> Standing:
        """Return the owner's notes; while the store is unavailable, the cached ones."""
        owner = self.searcher.owner
        try:
            notes: Sequence[Note] = await read_notes(self.store)
        except StoreUnavailable:
            known = self.notes_cache.of(owner)
            if known is None or not self.store.degraded:
                raise
            note_degraded(AS_LAST_READ)
            return standing(known, now=self.store.now())
        self.notes_cache.keep(owner, notes)
        return standing(notes, now=self.store.now())

    async def _standing_or_nothing(self) -> Standing:
        """Return the owner's notes, or none while the store is unavailable: it decides whether to accept a
        new one.
        """
        try:
            return await self._standing()
        except StoreUnavailable as error:
            log.info("a note is stored without reading the others: %s", describe(error))
            return Standing()

    async def notes(self, *, tag: str | None = None, history: bool = False) -> list[Note]:
        """Return the valid notes, oldest first; with `history` preceded by replaced ones."""
        standing_notes = await self._standing()
        found = (*standing_notes.replaced, *standing_notes.current) if history else standing_notes.current
        return [one for one in found if tag is None or tag in one.tags]

    async def get_note(self, note_id: str) -> Note:
        """Return the note of this id, also a replaced one. Raise `NoteNotFound`."""
        for one in await self.notes(history=True):
            if one.id == note_id:
                return one
        raise NoteNotFound(note_id)

    async def recall(self, query: str = "", limit: int = 10, *, tag: str | None = None) -> list[Note]:
        """Return the notes that match a query, best first; without a query the latest first.

        The search is lexical, and semantic where there is an encoder.
        """
        from aforesaid.search.queries import parse_limit, parse_question

        most, question = parse_limit(limit, field="limit"), parse_question(query)
        standing_notes = await self.notes(tag=tag)
        if not question:
            found = standing_notes[::-1][:most]
        else:
            similarities = await self._similarities(question, standing_notes)
            found = [one for _, one in ranked(standing_notes, question, similarities)][:most]
            self._usage.counted(self.store, "notes_used", len(found))
        await audit_action(self.store, "search", count=len(found))
        return found

    async def _similarities(self, question: str, notes: Sequence[Note]) -> list[float] | None:
        resources = self.searcher.resources
        texts = resources.texts_of(self.searcher.owner)
        if texts is None:
            return None
        try:
            return await texts.similarities(question, [one.text for one in notes])
        except EncoderFailed as error:
            resources.encoder_error = str(error)
            log.warning("notes are searched lexically only: %s", describe(error))
            return None

    async def forget(self, what: str, *, keep_replaced: bool = False) -> list[Note]:
        """Remove notes: the one of this id, those on this subject, or those with all of these words.

        Notes that they replaced are removed too. With `keep_replaced` they stay, and the latest of them is
        valid again: this undoes a note. The id of a replaced note removes only that one. Return the removed
        notes.
        """
        if not isinstance(what, str) or not what.strip():
            raise InvalidInput(
                f"what must be an id, a subject or words; got {shown(what)}", field="what", value=what
            )
        standing_notes = await self._standing()
        earlier = [one for one in standing_notes.replaced if one.id == what]
        if earlier:
            await remove_notes(self.store, earlier)
            self.notes_cache.drop(self.searcher.owner)
            return earlier
        found = meant(standing_notes.current, what.strip())
        gone = set[str | None]() if keep_replaced else {one.id for one in found}
        await remove_notes(
            self.store, [*(one for one in standing_notes.replaced if one.replaced_by in gone), *found]
        )
        self.notes_cache.drop(self.searcher.owner)
        return found

    # In a context

    async def shown(self, policy: WindowPolicy) -> tuple[NotesShown, str | None]:
        """Return the notes for a context, and the reason where they could not be read."""
        tokens = self.budget(policy)
        if not tokens:
            return NotesShown(), None
        standing_notes, trouble = await self._standing_in_time()
        return await self._fitted(standing_notes, tokens), trouble

    async def shown_from(self, documents: Sequence[Document], policy: WindowPolicy) -> NotesShown:
        """Return the notes for a context from documents that contain all of the owner's notes."""
        notes = notes_in(documents)
        self.notes_cache.keep(self.searcher.owner, notes)
        if not notes:
            return NotesShown()
        return await self._fitted(standing(notes, now=self.store.now()), self.budget(policy))

    async def _fitted(self, standing_notes: Standing, budget: int) -> NotesShown:
        if not standing_notes.current:
            return NotesShown()
        if is_slow_to_load(self.intake.counter):
            quick = _fitted_by(quick_counter(), standing_notes, budget)
            if not quick.left_out:  # an exact count gives the same notes
                return quick
        return _fitted_by(await self.intake.line_counter(), standing_notes, budget)

    async def _standing_in_time(self) -> tuple[Standing, str | None]:
        """Return the owner's notes, or the cached ones when the store is slow or fails.

        Reading them gets a part of the context's deadline; the rest is for the log.
        """
        seconds = self.config.context_deadline / PART_OF_DEADLINE
        try:
            return await within(seconds or None, self._standing()), None
        except TimeoutError:
            why = cause = f"the store did not answer within {seconds:g} s"
        except StoreError as error:
            why, cause = str(error), describe(error)
        log.warning("notes could not be read: %s", cause)
        known = self.notes_cache.of(self.searcher.owner)
        if known is None:
            return Standing(), f"notes could not be read: {why}"
        return standing(known, now=self.store.now()), f"{AS_LAST_READ}: {why}"

    def budget(self, policy: WindowPolicy) -> int:
        budget = self.config.notes_tokens if policy.notes_tokens is None else policy.notes_tokens
        return budget if policy.max_tokens is None else min(budget, policy.max_tokens // SHARE)


def redacted_words(words: str, redact: Redactor | None) -> str:
    """Apply the redact function of messages to a note's text."""
    if redact is None:
        return words
    left = redacted([Message(role="user", content=words, message_id="note")], redact)
    if not left or not isinstance(left[0].content, str):
        raise InvalidInput("the redact function leaves nothing of the note", field="text")
    return parse_note_text(left[0].content)


_token_counts: BoundedDict[tuple[str, str], int] = BoundedDict(4_096)


def _fitted_by(counter: TokenCounter, standing_notes: Standing, budget: int) -> NotesShown:
    return fitted(standing_notes.current, tokens=budget, count=lambda line: _tokens(counter, line))


def _tokens(counter: TokenCounter, line: str) -> int:
    """Return the tokens of a line. They are cached, because every context counts the same notes."""
    key = (counter.name, line)
    tokens = _token_counts.use(key)
    if tokens is None:
        tokens = _token_counts[key] = counter.count_text(line)
    return tokens


def _is_same(known: Note, new: Note) -> bool:
    return (known.text, known.subject, known.tags, known.expires_at) == (
        new.text,
        new.subject,
        new.tags,
        new.expires_at,
    )
