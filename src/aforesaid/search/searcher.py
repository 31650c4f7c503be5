"""The search of one owner: a question in, passages out. Below: everything else in `search`.

Candidates come from the store's own index, or from the portable one, and from the vectors; `ranking` puts
them in order; the best are read from the log and become passages.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import (
    ConversationStore,
    Entry,
    Matches,
    Position,
    Searchable,
    VectorMatch,
    VectorSearchable,
)
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound, EncoderFailed, StoreUnavailable
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, Query
from aforesaid.search.encoders import encoded, readable
from aforesaid.search.filters import Admission
from aforesaid.search.memory_index import matches_in_known
from aforesaid.search.passages import BESIDE, SOON, Passage, beside, excerpt, passage_of
from aforesaid.search.queries import Filters, asked_of, day_asked_for, local_zone, looked_up
from aforesaid.search.ranking import (
    WEIGHTS,
    Asked,
    Key,
    Neighbour,
    Ranked,
    Ranking,
    Similarities,
    Weights,
    rank,
)
from aforesaid.search.shared import SearchResources
from aforesaid.search.vectors import NEAREST
from aforesaid.telemetry import describe, telemetry
from aforesaid.telemetry.timing import timed

log = logging.getLogger("aforesaid.search")

BY_WORDS = 300
"""Candidates that the index is asked for."""
BY_WORDS_FILTERED = 10_000
"""The same when filters will drop many of them. If too few are left, everything that may pass is ranked."""
EVERYTHING = 10_000_000
"""More than anybody has said."""
WORTH_A_THREAD = 2_000
"""Candidates from which on ranking is taken off the event loop."""
SERVED = 100_000
"""Messages from which on a store that compares vectors itself is asked to."""
TYPICAL = 20
"""Terms of a message of which the length is not known."""
MOST_READ = 400
"""Messages that are read from the log before it is found out which conversations pass the filters at all."""
WORTHY = 0.05
"""The share of the best score under which nothing is shown."""
BROWSED_AT_ONCE = 50
"""Conversations that are looked into together when there is nothing to look for but a time."""

WITHOUT_VECTORS = "searched by words alone: pip install 'aforesaid[semantic]' adds search by meaning"
IN_WHAT_IS_KNOWN = "searched in what is known while the store is away"
NO_VECTORS_YET = "searched by words alone: nothing has vectors yet"

Count = Callable[[str], int]

_candidates, _reading, _browsing = (
    telemetry.histogram("aforesaid_search_stage_seconds", stage=stage)
    for stage in ("candidates", "reading", "browsing")
)


class Findings(Struct, frozen=True, kw_only=True):
    """What was found, best first."""

    passages: tuple[Passage, ...] = ()
    by_meaning: bool = False
    """Whether vectors took part."""
    note: str | None = None
    """What the reader should know about how it was searched."""
    degraded: bool = False
    """Whether the store was away, so that only what is known meanwhile was searched."""

    def render(self) -> list[str]:
        """The passages as text that a model can cite."""
        return [passage.render() for passage in self.passages]


class Budget(Struct, frozen=True, kw_only=True):
    """How much may be found."""

    results: int = 5
    tokens: int | None = None
    count: Count = len


class Searcher:
    """One owner's search. Costs nothing to make; what is worth keeping is in the room."""

    def __init__(
        self, store: ConversationStore, resources: SearchResources, owner: str, *, weights: Weights = WEIGHTS
    ) -> None:
        self.store = store
        self.resources = resources
        self.owner = owner
        self.weights = weights

    def noted(self, conversation_id: str) -> None:
        """Something was said in the conversation."""
        self.resources.note(self.owner, self.store, conversation_id)

    def forget(self, conversation_id: str) -> None:
        """The conversation is gone, or was emptied."""
        self.resources.forget(self.owner, conversation_id)

    async def search(
        self,
        question: str,
        *,
        filters: Filters = Filters(),  # noqa: B008  a frozen value
        budget: Budget = Budget(),  # noqa: B008
        explain: bool = False,
        zone: tzinfo | None = None,
    ) -> Findings:
        """The passages that answer the question; the latest when it asks for nothing but a time."""
        with noting_freshness() as seen:
            findings = await self._search(question, filters, budget, explain=explain, zone=zone)
        if not seen.degraded:
            return findings
        note = "; ".join([IN_WHAT_IS_KNOWN, *seen.reasons])
        return replace(findings, degraded=True, note=note)

    async def _search(
        self, question: str, filters: Filters, budget: Budget, *, explain: bool, zone: tzinfo | None
    ) -> Findings:
        zone, now = local_zone(zone), self.store.now()
        asked = asked_of(question, now=now, zone=zone)
        period = day_asked_for(question, now=now, zone=zone)
        if period is not None:
            filters = filters.within(period, now=now, zone=zone)
        if period is not None or not asked.terms:
            with timed("search.browsing", _browsing):
                entries = await self._browse(Admission(self.store, filters), budget.results)
            passages = [passage_of(e, r, terms=(), zone=zone, now=now) for r, e in entries]
            return Findings(passages=tuple(_within(passages, budget, ())))
        ranking = await self.ranking(question, asked, filtered=bool(filters))
        reading = _Reading(self, Admission(self.store, filters), zone=zone, now=now, explain=explain)
        with timed("search.reading", _reading):
            passages = await reading.passages(ranking, budget.results, most=max(MOST_READ, budget.results))
        if filters and len(passages) < budget.results:
            among = await reading.admission.conversations()
            ranking = await self.ranking(question, asked, among=among)
            with timed("search.reading", _reading):
                passages = await reading.passages(ranking, budget.results)
        return Findings(
            passages=tuple(_within(passages, budget, asked.terms)),
            by_meaning=ranking.by_meaning,
            note=self._note(by_meaning=ranking.by_meaning),
        )

    def _note(self, *, by_meaning: bool) -> str | None:
        if by_meaning:
            return None
        if self.resources.encoder_trouble is not None:
            return f"searched by words alone: {self.resources.encoder_trouble}"
        return WITHOUT_VECTORS if self.resources.embedder is None else NO_VECTORS_YET

    async def ranking(
        self, question: str, asked: Asked, *, filtered: bool = False, among: Container[str] | None = None
    ) -> Ranking:
        """The messages that come into question, in order; with `among`, all in these conversations."""
        with timed("search.candidates", _candidates):
            return await self._ranking(question, asked, filtered=filtered, among=among)

    async def _ranking(
        self, question: str, asked: Asked, *, filtered: bool, among: Container[str] | None
    ) -> Ranking:
        limit = BY_WORDS_FILTERED if filtered else BY_WORDS if among is None else EVERYTHING
        if self.resources.embedder is not None and isinstance(self.store, VectorSearchable):
            matches = await self.matches(looked_up(asked), limit=limit)
            similar = await self._served(question) if matches.messages > SERVED else None
            similar = similar or await self.similarities(question)
        else:
            # The question is encoded first: two threads of Python would only take the interpreter from each
            # other. While vectors are compared, which needs no interpreter, words are looked up.
            encoded = asyncio.Event()
            matches, similar = await asyncio.gather(
                self._matches_after(encoded, looked_up(asked), limit=limit),
                self.similarities(question, encoded),
            )
        ranked = partial(rank, asked, matches, similar, weights=self.weights, among=among)
        many = among is not None or len(matches.found) > WORTH_A_THREAD
        return await asyncio.to_thread(ranked) if many else ranked()

    async def _matches_after(self, encoded: asyncio.Event, terms: Sequence[str], *, limit: int) -> Matches:
        await encoded.wait()
        return await self.matches(terms, limit=limit)

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """From the store's own index, or from the portable one; in what is known while the store is away."""
        try:
            if isinstance(self.store, Searchable):
                return await self.store.matches(terms, limit=limit)
            if not self.store.degraded:
                return await self.resources.index_of(self.owner).matches(self.store, terms, limit=limit)
        except StoreUnavailable:
            if not self.store.degraded:
                raise
        return await matches_in_known(self.store, terms, limit=limit)

    async def similarities(self, question: str, encoded: asyncio.Event | None = None) -> Similarities | None:
        """By the vectors; None where there are none, and while the store is away that has them.

        `encoded` is set when the question is, or will not be.
        """
        encoded = encoded or asyncio.Event()
        try:
            return await self._similarities(question, encoded)
        finally:
            encoded.set()

    async def _similarities(self, question: str, encoded: asyncio.Event) -> Similarities | None:
        if self.resources.embedder is None or self.store.degraded:
            return None
        vectors = self.resources.vectors_of(self.owner)
        with self._words_will_do():
            near = await vectors.near(self.store, readable(question), encoded)
            if vectors.looked_at_all:
                self.resources.looked_at(self.owner)
            for conversation_id in vectors.take_incomplete():
                self.noted(conversation_id)
            return near
        return None

    async def _served(self, question: str) -> Similarities | None:
        """By the store, where the vectors lie; None where it cannot compare them."""
        embedder, store = self.resources.embedder, self.store
        assert embedder is not None, "asked for with an encoder only"
        assert isinstance(store, VectorSearchable), "asked for of such a store only"
        self.resources.note(self.owner, store)
        with self._words_will_do():
            row = await encoded(embedder, readable(question))
            found = await store.nearest(embedder.name, row.tolist(), limit=BY_WORDS)
            return Served(found) if found else None
        return None

    @contextmanager
    def _words_will_do(self) -> Iterator[None]:
        """Ends the block early when vectors cannot be had now: the encoder failed, or the store is away."""
        self.resources.encoder_trouble = None
        try:
            yield
        except EncoderFailed as error:
            log.warning("searched by words alone: %s", describe(error))
            self.resources.encoder_trouble = str(error)
        except StoreUnavailable:
            if not self.store.degraded:
                raise

    # Browsing

    async def _browse(self, admission: Admission, results: int) -> list[tuple[Conversation, Entry]]:
        """The latest messages that pass the filters, looked for as far back as it takes."""
        query = Query(channel=admission.filters.channel, date_from=admission.filters.date_from)
        found: list[tuple[Conversation, Entry]] = []
        async for records in _in_groups(known_records(self.store, query), BROWSED_AT_ONCE):
            tails = await asyncio.gather(*(self._latest(record, admission, results) for record in records))
            found += [(record, entry) for record, tail in zip(records, tails, strict=True) for entry in tail]
            found = sorted(found, key=lambda one: one[1].position, reverse=True)[:results]
            if len(found) == results and records[-1].last_activity < from_micros(
                found[-1][1].position.micros
            ):
                break
        return found

    async def _latest(self, record: Conversation, admission: Admission, results: int) -> list[Entry]:
        filters = admission.filters
        before = None if filters.date_to is None else _behind(filters.date_to)
        found: list[Entry] = []
        try:
            while len(found) < results:
                tail = await self.store.tail(record.id, limit=max(20, results), before=before)
                found += [entry for entry in tail if admission.passes(record, entry)]
                if not tail or filters.is_past(tail[0].position):
                    break
                before = tail[0].position
        except ConversationNotFound:
            return []
        return sorted(found, key=lambda entry: entry.position)[-results:]


class Served:
    """What a store that compares vectors itself says: the nearest; all others are as far as the last."""

    def __init__(self, found: Sequence[VectorMatch]) -> None:
        self.lowest = min(one.similarity for one in found)
        self.highest = max(one.similarity for one in found)
        self._known = {(one.conversation_id, one.position.sequence): one.similarity for one in found}
        # Who speaks and how much is not said: the entry is looked at before it is shown.
        self.nearest = [
            Neighbour(one.conversation_id, one.position, None, TYPICAL, one.similarity)
            for one in found[:NEAREST]
        ]

    def of(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return [self._known.get(key, self.lowest) for key in messages]

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        return [one for one in self.nearest if one.conversation_id in conversations]


class _Reading:
    """From places in a ranking to passages: reads until there are enough."""

    def __init__(
        self,
        searcher: Searcher,
        admission: Admission,
        *,
        zone: tzinfo,
        now: datetime,
        explain: bool,
    ) -> None:
        self._searcher = searcher
        self._store = searcher.store
        self.admission = admission
        self._zone = zone
        self._now = now
        self._explain = explain
        self._records: dict[str, Conversation | None] = {}

    async def passages(self, ranking: Ranking, results: int, *, most: int | None = None) -> list[Passage]:
        """The best that are there and pass the filters, among the first `most` that may."""
        places = self._worthy(ranking)[:most]
        found: list[Passage] = []
        read = 0
        while len(found) < results and read < len(places):
            batch = places[read : read + results - len(found)]
            read += len(batch)
            shown = frozenset(one.key for one in places[:read])
            passages = await asyncio.gather(*(self._passage(ranking, one, shown) for one in batch))
            found += [passage for passage in passages if passage is not None]
        return found

    def _worthy(self, ranking: Ranking) -> list[Ranked]:
        """Those that may pass the filters and are not far behind the best of them."""
        places = ranking.ordered
        if self.admission.filters:
            places = [one for one in places if self.admission.may_pass(one)]
        least = WORTHY * places[0].score if places else 0.0
        return [one for one in places if one.score > least]

    async def _passage(self, ranking: Ranking, one: Ranked, shown: frozenset[Key]) -> Passage | None:
        record = await self._record(one.conversation_id)
        if record is None or not self.admission.filters.by_record(record):
            return None
        before, entry, after = await self._around(one)
        if entry is None or entry.unreadable or not self.admission.passes(record, entry):
            return None
        return passage_of(
            entry,
            record,
            terms=ranking.asked.terms,
            zone=self._zone,
            now=self._now,
            score=one.score,
            parts=ranking.parts(one) if self._explain else None,
            before=before if entry.message.role != "user" and _is_news(before, shown) else None,
            after=after if entry.message.role == "user" and _is_news(after, shown) else None,
        )

    async def _record(self, conversation_id: str) -> Conversation | None:
        if conversation_id not in self._records:
            self._records[conversation_id] = await self._store.get(conversation_id)
            if self._records[conversation_id] is None:
                self._searcher.forget(conversation_id)
        return self._records[conversation_id]

    async def _around(self, one: Ranked) -> tuple[Entry | None, Entry | None, Entry | None]:
        """The entry, the one before, and the one after: a reply follows soon, or is none."""
        try:
            if one.role in ("user", None):
                for read in (self._in_its_place, self._until_soon):
                    around = beside(await read(one), one.position)
                    if around[1] is not None:
                        return around
            end = Position(one.position.micros, one.position.sequence + 1)
            return beside(await self._store.tail(one.conversation_id, limit=2, before=end), one.position)
        except ConversationNotFound:
            return None, None, None

    async def _in_its_place(self, one: Ranked) -> Sequence[Entry]:
        """What stands where a log has the message that nothing came before late, and nothing left."""
        first = one.position.sequence - 2
        if first > _COUNTED:
            return ()
        entries = await self._store.page(one.conversation_id, limit=4, offset=max(0, first))
        soon = _later(one.position, SOON)
        return [entry for entry in entries if entry.position < soon]

    async def _until_soon(self, one: Ranked) -> Sequence[Entry]:
        soon = _later(one.position, SOON)
        return await self._store.tail(one.conversation_id, limit=_WITHIN, before=soon)


_COUNTED = 1_000
"""Entries that a store may have to pass to get to a message in its place: cheaper than to read again."""
_WITHIN = 8
"""Entries that are read to find the one after otherwise."""


def _later(position: Position, span: timedelta) -> Position:
    try:
        return Position(to_micros(from_micros(position.micros) + span), 0)
    except OverflowError:
        return Position(position.micros, position.sequence + 1)


def _is_news(entry: Entry | None, shown: frozenset[Key]) -> bool:
    """Whether it is not among the results by itself, and not the instructions of a system message."""
    return (
        entry is not None
        and entry.unreadable is None
        and entry.message.role in ("user", "assistant")
        and (entry.conversation_id, entry.sequence) not in shown
    )


async def _in_groups(
    records: AsyncIterator[Conversation], size: int
) -> AsyncIterator[Sequence[Conversation]]:
    group: list[Conversation] = []
    async for record in records:
        group.append(record)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _within(passages: Iterable[Passage], budget: Budget, terms: Sequence[str]) -> list[Passage]:
    """As many passages as the budget of tokens allows; one that is too long is cut."""
    kept: list[Passage] = []
    left = budget.tokens
    for passage in passages:
        fitted = passage if left is None else _fitted(passage, left, budget.count, terms)
        if fitted is None:
            break
        kept.append(fitted)
        left = None if left is None else left - budget.count(fitted.render())
    return kept


def _fitted(passage: Passage, tokens: int, count: Count, terms: Sequence[str]) -> Passage | None:
    """The passage whole, or without its neighbours, or the best part of it; None when not even that fits."""
    alone = replace(passage, before=None, after=None)
    shorter = [
        replace(alone, text=excerpt(alone.text, terms, size=size))
        for size in (BESIDE * 2, BESIDE, BESIDE // 2)
    ]
    return next((one for one in (passage, alone, *shorter) if count(one.render()) <= tokens), None)


def _behind(moment: datetime) -> Position | None:
    """Return the first position after this moment; None after the last moment that there is."""
    micros = to_micros(moment)
    return None if micros >= to_micros(datetime.max.replace(tzinfo=UTC)) else Position(micros + 1, 0)
