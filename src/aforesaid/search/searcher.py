"""The search of one owner, from question to passages.

Candidates come from the store's index or the one in memory, and from the vectors. `ranking` orders them. The
best are read from the log and become passages.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import (
    ConversationStore,
    Entry,
    Labelled,
    Matches,
    Position,
    Searchable,
    VectorMatch,
    VectorSearchable,
    capability,
    label_of,
)
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound, EncoderFailed, StoreUnavailable
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, Query
from aforesaid.search.memory_index import matches_while_degraded
from aforesaid.search.passages import NEIGHBOUR_CHARACTERS, Passage, excerpt, passage_of
from aforesaid.search.queries import Filters, analyze_question, local_zone, lookup_terms, sole_period
from aforesaid.search.ranking import (
    AnalyzedQuestion,
    Key,
    Neighbour,
    Ranking,
    Similarities,
    Weights,
    rank,
)
from aforesaid.search.reading import MessageFilter, PassageReader, PassageView
from aforesaid.search.relevance import MIN_RELEVANCE
from aforesaid.search.resources import SearchResources
from aforesaid.search.vectors import NEAREST, encodable_text, encode_text
from aforesaid.telemetry import describe, telemetry
from aforesaid.telemetry.events import timed

log = logging.getLogger("aforesaid.search")

# Candidates requested from the index.
BY_WORDS = 300
# Candidates requested when filters are set. If too few pass, every message that may pass is ranked.
BY_WORDS_FILTERED = 10_000
# A limit above any owner's number of messages.
EVERYTHING = 10_000_000
# Candidates above which ranking runs on a thread.
WORTH_A_THREAD = 2_000
# Messages above which a store that can compare vectors does so itself.
SERVED = 100_000
# Assumed number of terms of a message with unknown length.
TYPICAL = 20
# Messages read from the log before the conversations that pass the filters are determined.
MOST_READ = 400
# Conversations read together when the question contains nothing but a period.
BROWSED_AT_ONCE = 50

WITHOUT_VECTORS = "searched by words alone: pip install 'aforesaid[semantic]' adds search by meaning"
WHILE_DEGRADED = "the store is unavailable: searched the last known messages"
NO_VECTORS_YET = "searched by words alone: no message has vectors yet"

Count = Callable[[str], int]

_candidates, _reading, _browsing = (
    telemetry.histogram("aforesaid_search_stage_seconds", stage=stage)
    for stage in ("candidates", "reading", "browsing")
)


class Findings(Struct, frozen=True, kw_only=True):
    """Search results, best first."""

    passages: tuple[Passage, ...] = ()
    by_meaning: bool = False
    """Whether vectors were used."""
    note: str | None = None
    """A remark for the reader about limitations of this search."""
    degraded: bool = False
    """Whether the store was unavailable, so that only the last known messages were searched."""
    left_out: int = 0
    """The number of passages that did not fit into `max_tokens`."""

    def render(self) -> list[str]:
        """Return the passages as text that a model can cite."""
        return [passage.render() for passage in self.passages]

    def to_text(self, *, asked: bool = True) -> str:
        """Return the answer of a tool: the passages, or that there are none, and what limits the search."""
        return "\n\n".join([*self.render(), *filter(None, [self.remark(asked=asked)])])

    def remark(self, *, asked: bool = True) -> str | None:
        """Return what a model must know besides the passages: that there are none, and the search's limits.

        `asked` is False for a listing without a query.
        """
        nothing = [] if self.passages else [NOTHING_ABOUT_IT if asked else NOTHING_STORED]
        return "\n\n".join([*nothing, *self._limits(asked=asked)]) or None

    def _limits(self, *, asked: bool) -> list[str]:
        limits = [STORE_UNAVAILABLE] if self.degraded else []
        limits += [WORDS_ONLY] if asked and not self.by_meaning else []
        limits += [f"({self.left_out} more did not fit. Search more narrowly.)"] if self.left_out else []
        return limits


# For models: what to tell the user, and what may be missing.
NOTHING_ABOUT_IT = (
    "Nothing about this was said in the earlier conversations. Tell the user that you found nothing about it."
)
NOTHING_STORED = "There are no earlier messages that match these filters."
WORDS_ONLY = "(Searched by words only: messages in other words may be missing.)"
STORE_UNAVAILABLE = "(The memory is unavailable at the moment: only recent messages were searched.)"


class Budget(Struct, frozen=True, kw_only=True):
    """Limits on the size of the result."""

    results: int = 5
    tokens: int | None = None
    count: Count = len


class Searcher:
    """One owner's search. Cheap to create; shared state lives in `SearchResources`."""

    def __init__(
        self,
        store: ConversationStore,
        resources: SearchResources,
        owner: str,
        *,
        weights: Weights | None = None,
    ) -> None:
        self.store = store
        self.resources = resources
        self.owner = owner
        self.weights = weights
        self._index = capability(store, Searchable)
        self._vectors = capability(store, VectorSearchable)
        self._labels = capability(store, Labelled)

    @property
    def index_store(self) -> ConversationStore:
        """The store from which the index and the vectors are built: the owner's, complete."""
        return self.store

    async def label_matches(self, question: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return the share of the question in the label of each conversation; None without an index of
        labels."""
        if self.store.degraded or (self._labels is None and self._index is not None):
            return None
        try:
            if self._labels is None:
                index = self.resources.index_of(self.owner)
                return await index.label_matches(self.store, question, terms)
            labels = self.resources.labels_of(self.owner)
            await labels.update(self._labels)
        except StoreUnavailable:  # the records of the last known state can still be read
            return None
        return labels.matches(question, terms)

    def correct_labels(self, records: Iterable[Conversation]) -> bool:
        """Correct the index of labels by the records; return whether a label was outdated."""
        if self._labels is None:
            return False  # the index has read the records themselves
        return self.resources.labels_of(self.owner).correct(map(label_of, records))

    def enqueue_indexing(self, conversation_id: str) -> None:
        """Enqueue a conversation with new messages for indexing."""
        self.resources.enqueue(self.owner, self.store, conversation_id)

    def forget(self, conversation_id: str) -> None:
        """Drop cached data of a conversation that was removed or cleared."""
        self.resources.forget(self.owner, conversation_id)

    async def search(
        self,
        question: str,
        *,
        filters: Filters = Filters(),  # noqa: B008  a frozen value
        budget: Budget = Budget(),  # noqa: B008
        min_relevance: float | None = None,
        explain: bool = False,
        zone: tzinfo | None = None,
    ) -> Findings:
        """Return passages that answer the question; the latest ones if it contains only a period."""
        view = PassageView(
            zone=local_zone(zone),
            now=self.store.now(),
            min_relevance=MIN_RELEVANCE if min_relevance is None else min_relevance,
            explain=explain,
        )
        with noting_freshness() as freshness:
            analyzed = analyze_question(question, now=view.now, zone=view.zone)
            period = sole_period(question, now=view.now, zone=view.zone)
            if period is not None:
                filters = filters.restricted_to(period, now=view.now, zone=view.zone)
            if period is not None or not analyzed.terms:
                findings = await self._latest_passages(filters, budget, view)
            else:
                findings = await self._best_passages(question, analyzed, filters, budget, view)
        if not freshness.degraded:
            return findings
        note = "; ".join([WHILE_DEGRADED, *freshness.reasons])
        return replace(findings, degraded=True, note=note)

    async def _latest_passages(self, filters: Filters, budget: Budget, view: PassageView) -> Findings:
        with timed("search.browsing", _browsing):
            entries = await self._browse(MessageFilter(self.store, filters), budget.results)
        passages = [passage_of(e, r, terms=(), zone=view.zone, now=view.now) for r, e in entries]
        fitting = _fit_budget(passages, budget, ())
        return Findings(passages=tuple(fitting), left_out=len(passages) - len(fitting))

    async def _best_passages(
        self, question: str, analyzed: AnalyzedQuestion, filters: Filters, budget: Budget, view: PassageView
    ) -> Findings:
        ranking = await self.ranking(question, analyzed, filtered=bool(filters))
        scale = await self.resources.cosine_scale()
        reader = PassageReader(self.store, MessageFilter(self.store, filters), view, forget=self.forget)
        with timed("search.reading", _reading):
            most = max(MOST_READ, budget.results)
            passages = await reader.passages(ranking, scale, budget.results, most=most)
        if filters and len(passages) < budget.results:
            # The best candidates of all messages rarely pass the filters: rank only those that can.
            among = await reader.message_filter.conversations()
            ranking = await self.ranking(question, analyzed, among=among)
            with timed("search.reading", _reading):
                passages = await reader.passages(ranking, scale, budget.results)
        fitting = _fit_budget(passages, budget, analyzed.terms)
        return Findings(
            passages=tuple(fitting),
            left_out=len(passages) - len(fitting),
            by_meaning=ranking.by_meaning,
            note=self._note(by_meaning=ranking.by_meaning),
        )

    def _note(self, *, by_meaning: bool) -> str | None:
        if by_meaning:
            return None
        if self.resources.encoder_error is not None:
            return f"searched by words alone: {self.resources.encoder_error}"
        return WITHOUT_VECTORS if self.resources.embedder is None else NO_VECTORS_YET

    async def ranking(
        self,
        question: str,
        analyzed: AnalyzedQuestion,
        *,
        filtered: bool = False,
        among: Container[str] | None = None,
    ) -> Ranking:
        """Rank the candidates; with `among`, every matching message of these conversations."""
        limit = BY_WORDS_FILTERED if filtered else BY_WORDS if among is None else EVERYTHING
        with timed("search.candidates", _candidates):
            if self.resources.embedder is not None and self._vectors is not None:
                matches = await self.matches(lookup_terms(analyzed), limit=limit)
                similar = await self._similarities_from_store(question) if matches.messages > SERVED else None
                similar = similar or await self.similarities(question)
            else:
                # Encode the question first: two Python threads would compete for the interpreter lock.
                # Comparing vectors releases the lock, so the index lookup runs during the comparison.
                encoded = asyncio.Event()
                matches, similar = await asyncio.gather(
                    self._matches_after(encoded, lookup_terms(analyzed), limit=limit),
                    self.similarities(question, encoded),
                )
            ranked = partial(rank, analyzed, matches, similar, weights=self.weights, among=among)
            many = among is not None or len(matches.found) > WORTH_A_THREAD
            return await asyncio.to_thread(ranked) if many else ranked()

    async def _matches_after(self, encoded: asyncio.Event, terms: Sequence[str], *, limit: int) -> Matches:
        await encoded.wait()
        return await self.matches(terms, limit=limit)

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """Return matches from the store's index or the one in memory, or from the last known state."""
        try:
            if self._index is not None:
                return await self._index.matches(terms, limit=limit)
            if not self.store.degraded:
                return await self.resources.index_of(self.owner).matches(self.store, terms, limit=limit)
        except StoreUnavailable:
            if not self.store.degraded:
                raise
        return await matches_while_degraded(self.store, terms, limit=limit)

    async def similarities(self, question: str, encoded: asyncio.Event | None = None) -> Similarities | None:
        """Return similarities by vectors; None without vectors and while the store is unavailable.

        `encoded` is set when the question has been encoded or will not be.
        """
        encoded = encoded or asyncio.Event()
        near: Similarities | None = None
        try:
            if self.resources.embedder is None or self.store.degraded:
                return None
            vectors = self.resources.vectors_of(self.owner)
            with self._fall_back_to_words():
                near = await vectors.similarities(self.store, encodable_text(question), encoded)
                if vectors.fully_scanned:
                    self.resources.mark_scanned(self.owner)
                for conversation_id in vectors.take_incomplete():
                    self.enqueue_indexing(conversation_id)
        finally:
            encoded.set()  # the index lookup waits for it, also when the encoder fails
        return near

    async def _similarities_from_store(self, question: str) -> Similarities | None:
        """Let the store compare vectors; return None if it cannot."""
        embedder, store = self.resources.embedder, self.store
        assert embedder is not None, "the caller checks for an encoder"
        assert self._vectors is not None, "the caller checks the capability"
        # A store that compares vectors never loads them here, so nothing else would notice missing ones.
        self.resources.enqueue(self.owner, store)
        with self._fall_back_to_words():
            row = await encode_text(embedder, encodable_text(question))
            found = await self._vectors.nearest(embedder.name, row.tolist(), limit=BY_WORDS)
            return StoreSimilarities(found) if found else None
        return None

    @contextmanager
    def _fall_back_to_words(self) -> Iterator[None]:
        """End the block early if vectors are unavailable: the encoder failed or the store is degraded."""
        self.resources.encoder_error = None
        try:
            yield
        except EncoderFailed as error:
            log.warning("searched by words alone: %s", describe(error))
            self.resources.encoder_error = str(error)
        except StoreUnavailable:
            if not self.store.degraded:
                raise

    # Browsing

    async def _browse(self, message_filter: MessageFilter, results: int) -> list[tuple[Conversation, Entry]]:
        """Return the latest messages that pass the filters."""
        query = Query(channel=message_filter.filters.channel, date_from=message_filter.filters.date_from)
        found: list[tuple[Conversation, Entry]] = []
        async for records in _in_groups(known_records(self.store, query), BROWSED_AT_ONCE):
            tails = await asyncio.gather(
                *(self._latest_of(record, message_filter, results) for record in records)
            )
            found += [(record, entry) for record, tail in zip(records, tails, strict=True) for entry in tail]
            found = sorted(found, key=lambda one: one[1].position, reverse=True)[:results]
            # Records are sorted by activity: no later one contains a message that is newer than the oldest
            # result.
            if len(found) == results and records[-1].last_activity < from_micros(
                found[-1][1].position.micros
            ):
                break
        return found

    async def _latest_of(
        self, record: Conversation, message_filter: MessageFilter, results: int
    ) -> list[Entry]:
        filters = message_filter.filters
        before = None if filters.date_to is None else _position_after(filters.date_to)
        found: list[Entry] = []
        try:
            while len(found) < results:
                tail = await self.store.tail(record.id, limit=max(20, results), before=before)
                found += [entry for entry in tail if message_filter.passes(record, entry)]
                if not tail or filters.is_before_range(tail[0].position):
                    break
                before = tail[0].position
        # Removed between listing and reading.
        except ConversationNotFound:
            return []
        return sorted(found, key=lambda entry: entry.position)[-results:]


class StoreSimilarities:
    """Similarities from a store that compares vectors. Messages outside its result count as its last one."""

    def __init__(self, found: Sequence[VectorMatch]) -> None:
        self.lowest = min(one.similarity for one in found)
        self.highest = max(one.similarity for one in found)
        self._similarity = {(one.conversation_id, one.position.sequence): one.similarity for one in found}
        # The store returns neither role nor length; the filters check the entry when it is read.
        self.nearest = [
            Neighbour(one.conversation_id, one.position, None, TYPICAL, one.similarity)
            for one in found[:NEAREST]
        ]

    def of(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return [self._similarity.get(key, self.lowest) for key in messages]

    def cosines(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return self.of(messages)

    def likeness(self, best: Sequence[Key], messages: Sequence[Key]) -> Sequence[float | None]:
        return [None] * len(messages)

    def flags(self, messages: Sequence[Key]) -> Sequence[int]:
        return [0] * len(messages)

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        return [one for one in self.nearest if one.conversation_id in conversations]


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


def _fit_budget(passages: Iterable[Passage], budget: Budget, terms: Sequence[str]) -> list[Passage]:
    """Return as many passages as the token budget allows, shortening one that is too long."""
    selected: list[Passage] = []
    left = budget.tokens
    for passage in passages:
        shortened = passage if left is None else _shorten_to_fit(passage, left, budget.count, terms)
        if shortened is None:
            break
        selected.append(shortened)
        left = None if left is None else left - budget.count(shortened.render())
    return selected


def _shorten_to_fit(passage: Passage, tokens: int, count: Count, terms: Sequence[str]) -> Passage | None:
    """Return the passage whole, without neighbours, or shortened; None if no version fits."""
    alone = replace(passage, before=None, after=None)
    shorter = [
        replace(alone, text=excerpt(alone.text, terms, size=size))
        for size in (NEIGHBOUR_CHARACTERS * 2, NEIGHBOUR_CHARACTERS, NEIGHBOUR_CHARACTERS // 2)
    ]
    return next((one for one in (passage, alone, *shorter) if count(one.render()) <= tokens), None)


def _position_after(moment: datetime) -> Position | None:
    """Return the first position after this moment; None for the last representable moment."""
    micros = to_micros(moment)
    return None if micros >= to_micros(datetime.max.replace(tzinfo=UTC)) else Position(micros + 1, 0)
