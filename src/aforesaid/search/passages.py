"""Read ranked entries from the log and quote them as passages that a model can cite."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from aforesaid.contracts import ConversationStore, Entry, Position
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.messages import Message, Role, carries_tool_results
from aforesaid.search.analysis import named_speaker, searchable_text, terms_of
from aforesaid.search.memory_index import all_entries
from aforesaid.search.queries import Filters
from aforesaid.search.ranking import Key, Parts, Ranked, Ranking

# Quote log entries as passages that a model can cite: speaker, time, conversation and verbatim text.


# Characters quoted of a message: all of most messages, the best matching part of a long one.
PASSAGE = 700
# Characters quoted of the message before or after.
NEIGHBOUR_CHARACTERS = 240
_MARGIN = 80


class Line(Struct, frozen=True, kw_only=True):
    """A quotation with its speaker."""

    speaker: str
    text: str


class Passage(Struct, frozen=True, kw_only=True):
    """A search result: a quotation and its place."""

    conversation_id: str
    sequence: int
    role: Role
    speaker: str
    said_at: datetime
    """In the caller's time zone."""
    ago: str
    subject: str | None
    client_name: str | None
    text: str
    before: Line | None = None
    after: Line | None = None
    score: float = 0.0
    parts: Parts | None = None

    def render(self) -> str:
        """Return the passage as text that a model can cite."""
        lines = [self._heading()]
        lines += [f"  … {self.before.speaker}: {self.before.text}"] if self.before else []
        lines += [f"{self.speaker}: {self.text}"]
        lines += [f"  … {self.after.speaker}: {self.after.text}"] if self.after else []
        lines += [f"({explain_score(self.score, self.parts)})"] if self.parts else []
        return "\n".join(lines)

    def _heading(self) -> str:
        when = f"{self.said_at:%A} {self.said_at.day} {self.said_at:%B %Y, %H:%M}"
        about = [f"“{self.subject}”"] if self.subject else []
        about += [f"client {self.client_name}"] if self.client_name else []
        return " · ".join([f"[{when} ({self.ago})", *about, f"conversation {self.conversation_id}]"])


def passage_of(
    entry: Entry,
    record: Conversation,
    *,
    terms: Sequence[str],
    zone: tzinfo,
    now: datetime,
    score: float = 0.0,
    parts: Parts | None = None,
    before: Entry | None = None,
    after: Entry | None = None,
) -> Passage:
    """Return the passage of an entry, with its neighbouring lines."""
    message = entry.message
    assert message.timestamp is not None, "a stored message has a time"
    return Passage(
        conversation_id=record.id,
        sequence=entry.sequence,
        role=message.role,
        speaker=speaker_of(message),
        said_at=message.timestamp.astimezone(zone),
        ago=ago(message.timestamp.astimezone(zone), now=now.astimezone(zone)),
        subject=record.subject,
        client_name=record.client_name,
        text=excerpt(searchable_text(message), terms, size=PASSAGE),
        before=None if before is None else _line(before, terms),
        after=None if after is None else _line(after, terms),
        score=score,
        parts=parts,
    )


def _line(entry: Entry, terms: Sequence[str]) -> Line | None:
    text = excerpt(searchable_text(entry.message), terms, size=NEIGHBOUR_CHARACTERS)
    return Line(speaker=speaker_of(entry.message), text=text) if text else None


def speaker_of(message: Message) -> str:
    """Return the speaker's name, or the role. The client is not necessarily the speaker."""
    if name := named_speaker(message):
        return name
    if carries_tool_results(message):
        return "Tool"
    return message.role.capitalize()


def ago(moment: datetime, *, now: datetime) -> str:
    """Return the time since a moment in words. Days are calendar days."""
    seconds = (now - moment).total_seconds()
    days = (now.date() - moment.date()).days
    if seconds < -60 or days < 0:
        return "in the future"
    if days == 0 or seconds < 6 * 3600:
        return _ago_within_a_day(seconds)
    if days == 1:
        return "yesterday"
    for size, unit in ((365, "year"), (30, "month"), (7, "week")):
        if days >= size * 2 or (unit == "year" and days >= size):
            return _many(days // size, unit)
    return _many(days, "day")


def _ago_within_a_day(seconds: float) -> str:
    if seconds < 60:
        return "just now"
    return _many(int(seconds // 60), "minute") if seconds < 3600 else _many(int(seconds // 3600), "hour")


def _many(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'} ago"


# Excerpts

_WORD = re.compile(r"\w+(?:['’]\w+)*")


class Span(Struct, frozen=True):
    """A word of a text that matches a term."""

    start: int
    end: int
    term: str


def spans_of(text: str, terms: Sequence[str]) -> Iterator[Span]:
    """Yield the places where the terms occur in the text."""
    wanted = set(terms)
    matching: dict[str, str | None] = {}
    for match in _WORD.finditer(text):
        word = match[0]
        # Words repeat, and analysing a word costs more than a lookup.
        if word not in matching:
            matching[word] = next(filter(wanted.__contains__, terms_of(word)), None)
        if term := matching[word]:
            yield Span(match.start(), match.end(), term)


def excerpt(text: str, terms: Sequence[str], *, size: int) -> str:
    """Return the text, or the part with the most terms; "…" marks omissions."""
    text = text.strip()
    if len(text) <= size:
        return text
    start = _best_start(list(spans_of(text, terms)), size)
    start = _at_word(text, max(0, start - _MARGIN)) if start else 0
    end = start + size
    # End at a word, unless the last space is in the first half. `rfind` returns -1 without a space, which the
    # modulo turns into an end beyond the text.
    end = end if end >= len(text) else text.rfind(" ", start + size // 2, end) % (len(text) + 1)
    end = start + size if end <= start or end > start + size else end
    return ("… " if start else "") + text[start:end].strip() + (" …" if end < len(text) else "")


def _best_start(spans: Sequence[Span], size: int) -> int:
    """Return the start of the window of this size that contains the most different terms."""
    best, found = 0, 0
    for at, span in enumerate(spans):
        # Two hundred matches fill any excerpt; without the limit a long text takes quadratic time.
        within = {other.term for other in spans[at : at + 200] if other.end <= span.start + size - _MARGIN}
        if len(within) > found:
            best, found = span.start, len(within)
    return best


def _at_word(text: str, at: int) -> int:
    space = text.find(" ", at, at + _MARGIN)
    return at if space < 0 or at == 0 else space + 1


def mark_matches(text: str, terms: Sequence[str], *, opening: str, closing: str) -> str:
    """Return the text with its matches between `opening` and `closing`."""
    pieces, end = [], 0
    for span in spans_of(text, terms):
        pieces += [text[end : span.start], opening, text[span.start : span.end], closing]
        end = span.end
    return "".join([*pieces, text[end:]])


def explain_score(score: float, parts: Parts) -> str:
    """Return the parts of a score in one line."""
    named = ("words", "meaning", "speaker", "date", "conversation", "previous")
    values = ((name, getattr(parts, name)) for name in named)
    sums = " + ".join(f"{name} {value:.2f}" for name, value in values if abs(value) >= 0.005)
    matched = ", ".join(parts.matched)
    return f"score {score:.2f} = {sums or '0'}" + (f"; matched {matched}" if matched else "")


def with_neighbours(
    entries: Sequence[Entry], position: Position
) -> tuple[Entry | None, Entry | None, Entry | None]:
    """Return the entry at a position with the entries before and after it; None for each that is absent."""
    for at, entry in enumerate(entries):
        if entry.position == position:
            before = entries[at - 1] if at else None
            after = entries[at + 1] if at + 1 < len(entries) else None
            return before, entry, after
    return None, None, None


# How long after a message its reply may follow.
REPLY_WITHIN = timedelta(minutes=10)


# Read ranked entries from the log, apply the filters and quote the entries as passages.
#
# Filters are applied as cheaply as possible: role and time are part of a position and cost nothing; a
# record costs little. Message tags exist only in the log. When too few results pass, the logs are read once
# for tags, so that tagged messages are found at any rank.


_AT_ONCE = 16


class MessageFilter:
    """The filters of one search over one store."""

    def __init__(self, store: ConversationStore, filters: Filters) -> None:
        self.filters = filters
        self._store = store
        # Conversation without the tag → sequences of its tagged messages, where known.
        self._tagged: dict[str, frozenset[int]] = {}

    async def conversations(self) -> frozenset[str]:
        """Return every conversation that may contain a passing message."""
        query = Query(channel=self.filters.channel, date_from=self.filters.date_from)
        records = [record async for record in known_records(self._store, query)]
        passing = {record.id for record in records if self.filters.tag in (None, *record.tags)}
        others = [record.id for record in records if record.id not in passing]
        for at in range(0, len(others), _AT_ONCE):
            chunk = others[at : at + _AT_ONCE]
            found = await asyncio.gather(*(self._with_tag(conversation_id) for conversation_id in chunk))
            self._tagged.update(zip(chunk, found, strict=True))
        return frozenset(passing.union(key for key, tagged in self._tagged.items() if tagged))

    async def _with_tag(self, conversation_id: str) -> frozenset[int]:
        """Return the sequences of the messages in a conversation that carry the tag themselves."""
        try:
            return frozenset(
                [
                    entry.sequence
                    async for entry in all_entries(self._store, conversation_id)
                    if self.filters.tag in entry.message.tags
                ]
            )
        except ConversationNotFound:
            return frozenset()

    def may_pass(self, one: Ranked) -> bool:
        """Return False if the message cannot pass, judging without reading it."""
        tagged = self._tagged.get(one.conversation_id)
        return (tagged is None or one.position.sequence in tagged) and self.filters.matches_position(
            one.role, one.position
        )

    def passes(self, record: Conversation, entry: Entry) -> bool:
        """Return whether the message passes. System messages never do."""
        role = entry.message.role
        return (
            role != "system"
            and self.filters.matches_position(role, entry.position)
            and self.filters.matches_record(record)
            and self.filters.matches_tags(record, entry.message)
        )


# Share of the best score below which results are dropped.
RELEVANT_SHARE = 0.05


class PassageView(Struct, frozen=True, kw_only=True):
    """How passages are shown: the time zone, the current time, and whether scores are explained."""

    zone: tzinfo
    now: datetime
    explain: bool


class PassageReader:
    """Reads ranked entries from the log until there are enough passages."""

    def __init__(
        self,
        store: ConversationStore,
        message_filter: MessageFilter,
        view: PassageView,
        *,
        forget: Callable[[str], None],
    ) -> None:
        self._store = store
        self._forget = forget
        self.message_filter = message_filter
        self._view = view
        self._records: dict[str, Conversation | None] = {}

    async def passages(self, ranking: Ranking, results: int, *, most: int | None = None) -> list[Passage]:
        """Return the best passages that exist and pass the filters, among the first `most` candidates."""
        places = self._relevant(ranking)[:most]
        found: list[Passage] = []
        read = 0
        while len(found) < results and read < len(places):
            # Read only as many as are still missing: most candidates become passages.
            batch = places[read : read + results - len(found)]
            read += len(batch)
            shown = frozenset(one.key for one in places[:read])
            passages = await asyncio.gather(*(self._passage(ranking, one, shown) for one in batch))
            found += [passage for passage in passages if passage is not None]
        return found

    def _relevant(self, ranking: Ranking) -> list[Ranked]:
        """Return the candidates that may pass the filters and score close enough to the best."""
        places = ranking.ordered
        if self.message_filter.filters:
            places = [one for one in places if self.message_filter.may_pass(one)]
        least = RELEVANT_SHARE * places[0].score if places else 0.0
        return [one for one in places if one.score > least]

    async def _passage(self, ranking: Ranking, one: Ranked, shown: frozenset[Key]) -> Passage | None:
        record = await self._record(one.conversation_id)
        if record is None or not self.message_filter.filters.matches_record(record):
            return None
        before, entry, after = await self._around(one)
        if entry is None or entry.unreadable or not self.message_filter.passes(record, entry):
            return None
        return passage_of(
            entry,
            record,
            terms=ranking.question.terms,
            zone=self._view.zone,
            now=self._view.now,
            score=one.score,
            parts=ranking.parts(one) if self._view.explain else None,
            before=before if entry.message.role != "user" and _is_new_neighbour(before, shown) else None,
            after=after if entry.message.role == "user" and _is_new_neighbour(after, shown) else None,
        )

    async def _record(self, conversation_id: str) -> Conversation | None:
        if conversation_id not in self._records:
            self._records[conversation_id] = await self._store.get(conversation_id)
            if self._records[conversation_id] is None:
                self._forget(conversation_id)
        return self._records[conversation_id]

    async def _around(self, one: Ranked) -> tuple[Entry | None, Entry | None, Entry | None]:
        """Return the entry with its neighbours. Only an entry that follows soon counts as a reply."""
        try:
            if one.role in ("user", None):
                for read in (self._read_by_offset, self._read_until_reply):
                    around = with_neighbours(await read(one), one.position)
                    if around[1] is not None:
                        return around
            end = Position(one.position.micros, one.position.sequence + 1)
            return with_neighbours(
                await self._store.tail(one.conversation_id, limit=2, before=end), one.position
            )
        except ConversationNotFound:
            return None, None, None

    async def _read_by_offset(self, one: Ranked) -> Sequence[Entry]:
        """Read around the offset that equals the sequence. It is right unless entries arrived late or were
        removed.
        """
        first = one.position.sequence - 2
        if first > _MAX_OFFSET:
            return ()
        entries = await self._store.page(one.conversation_id, limit=4, offset=max(0, first))
        soon = _later(one.position, REPLY_WITHIN)
        return [entry for entry in entries if entry.position < soon]

    async def _read_until_reply(self, one: Ranked) -> Sequence[Entry]:
        soon = _later(one.position, REPLY_WITHIN)
        return await self._store.tail(one.conversation_id, limit=_REPLY_ENTRIES, before=soon)


# Largest offset to try: stores skip entries to reach an offset.
_MAX_OFFSET = 1_000
# Entries read to find the reply otherwise.
_REPLY_ENTRIES = 8


def _later(position: Position, span: timedelta) -> Position:
    try:
        return Position(to_micros(from_micros(position.micros) + span), 0)
    except OverflowError:
        return Position(position.micros, position.sequence + 1)


def _is_new_neighbour(entry: Entry | None, shown: frozenset[Key]) -> bool:
    """Return whether the entry is readable, spoken, and not among the results itself."""
    return (
        entry is not None
        and entry.unreadable is None
        and entry.message.role in ("user", "assistant")
        and (entry.conversation_id, entry.sequence) not in shown
    )
