"""Read ranked entries from the log, apply the filters and quote the entries as passages.

Filters are applied as cheaply as possible: role and time are part of a position and cost nothing; a record
costs little. Message tags exist only in the log. When too few results pass, the logs are read once for tags,
so that tagged messages are found at any rank.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from aforesaid.contracts import ConversationStore, Entry, Position
from aforesaid.contracts.listing import known_records
from aforesaid.dialects.tombstones import TAG
from aforesaid.errors import ConversationNotFound
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, Query
from aforesaid.search.analysis import searchable_text
from aforesaid.search.memory_index import all_entries
from aforesaid.search.passages import Passage, passage_of
from aforesaid.search.queries import Filters
from aforesaid.search.ranking import Key, Ranked, Ranking
from aforesaid.search.relevance import CosineScale, Relevance
from aforesaid.search.statements import is_acknowledgement, only_asks

# How long after a message its reply may follow.
REPLY_WITHIN = timedelta(minutes=10)

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
        """Return whether the message passes. System messages never do, and redacted ones say nothing."""
        role = entry.message.role
        return (
            role != "system"
            and TAG not in entry.message.tags
            and self.filters.matches_position(role, entry.position)
            and self.filters.matches_record(record)
            and self.filters.matches_tags(record, entry.message)
        )


# Factor for a message that asks the same and states nothing: a statement about it is the better result.
ONLY_ASKS = 0.5


class PassageView(Struct, frozen=True, kw_only=True):
    """How passages are shown: the time zone, the current time, the least relevance, and whether scores are
    explained.
    """

    zone: tzinfo
    now: datetime
    min_relevance: float
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

    async def passages(
        self, ranking: Ranking, scale: CosineScale, results: int, *, most: int | None = None
    ) -> list[Passage]:
        """Return the best passages that exist, pass the filters and are relevant, among the first `most`."""
        places = self._candidates(ranking)
        relevance = Relevance(ranking, places, scale)
        places = places[:most]
        found: list[Passage] = []
        read = 0
        while read < len(places):
            # A passage that only asks has lost relevance: later candidates may overtake it.
            at_most = relevance.at_most(places[read].score)
            missing = results - sum(one.relevance >= at_most for one in found)
            if missing <= 0 or at_most < self._view.min_relevance:
                break
            # Read only as many as are still missing: most candidates become passages.
            batch = places[read : read + missing]
            read += len(batch)
            shown = frozenset(one.key for one in places[:read])
            passages = await asyncio.gather(*(self._passage(ranking, relevance, one, shown) for one in batch))
            found += [passage for passage in passages if passage is not None]
        found.sort(key=lambda passage: -passage.relevance)
        return [one for one in found[:results] if one.relevance >= self._view.min_relevance]

    def _candidates(self, ranking: Ranking) -> list[Ranked]:
        """Return the candidates that may pass the filters."""
        if not self.message_filter.filters:
            return ranking.ordered
        return [one for one in ranking.ordered if self.message_filter.may_pass(one)]

    async def _passage(
        self, ranking: Ranking, relevance: Relevance, one: Ranked, shown: frozenset[Key]
    ) -> Passage | None:
        record = await self._record(one.conversation_id)
        if record is None or not self.message_filter.filters.matches_record(record):
            return None
        before, entry, after = await self._around(one)
        if entry is None or entry.unreadable or not self.message_filter.passes(record, entry):
            return None
        text = searchable_text(entry.message)
        if is_acknowledgement(text, ranking.question.terms):
            return None
        factor = ONLY_ASKS if only_asks(text, ranking.question.terms) else 1.0
        return passage_of(
            entry,
            record,
            terms=ranking.question.terms,
            zone=self._view.zone,
            now=self._view.now,
            relevance=relevance(one) * factor,
            score=one.score * factor,
            parts=ranking.parts(one, factor=factor) if self._view.explain else None,
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
        and TAG not in entry.message.tags
        and entry.message.role in ("user", "assistant")
        and (entry.conversation_id, entry.sequence) not in shown
    )


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
