"""An index in this process, for stores that have none: the same numbers as theirs. Below: analysis.

One `OwnerIndex` holds one owner's messages as counts of terms. It is caught up before every question, by
the revisions of the records: what did not change costs one comparison. Nothing of it is kept on disk.
"""

import asyncio
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest

from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.loops import PerLoop
from aforesaid.contracts import ConversationStore, Entry, Match, Matches, Position
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Role
from aforesaid.search.analysis import indexed_terms
from aforesaid.search.new_entries import News, Seen, news_of
from aforesaid.search.ranking import Scorer

_WORTH_A_THREAD = 2_000
"""Messages from which on counting is taken off the event loop."""
_KNOWN = 500
"""Messages of each conversation that are looked at while the store is away."""
_MOST_DEAD = 0.25
"""The share of removed messages at which the index is made anew."""


class Indexed(Struct, frozen=True):
    """A message in the index: all but its terms."""

    conversation_id: str
    position: Position
    role: Role
    length: int


class Postings:
    """Where a term occurs: numbers of messages, rising, and how often in each."""

    __slots__ = ("counts", "numbers")

    def __init__(self) -> None:
        self.numbers = array("L")
        self.counts = array("L")


class OwnerIndex:
    """One owner's messages by their terms."""

    def __init__(self) -> None:
        self._lock = PerLoop(asyncio.Lock)
        self._clear()

    def _clear(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._messages: list[Indexed | None] = []
        self._numbers: dict[str, list[int]] = {}
        self._postings: dict[str, Postings] = {}
        self._alive = 0
        self._terms = 0

    @property
    def size(self) -> int:
        """How many messages it holds, removed ones included."""
        return len(self._messages)

    def holds(self, conversation_id: str | None) -> int:
        """How many messages of a conversation, or of all, it finds."""
        return self._alive if conversation_id is None else len(self._numbers.get(conversation_id, ()))

    async def matches(self, store: ConversationStore, terms: Sequence[str], *, limit: int) -> Matches:
        """As `Searchable.matches`, after catching up with the store."""
        async with self._lock.here():
            with noting_freshness() as seen:
                await self._catch_up(store)
            try:
                return await self.counted(terms, limit)
            finally:
                if seen.degraded:
                    self._clear()  # revisions do not tell that parts of these logs were not at hand

    async def counted(self, terms: Sequence[str], limit: int) -> Matches:
        """As `Searchable.matches`, in what it holds now."""
        if self.size < _WORTH_A_THREAD:
            return self._count(terms, limit)
        return await asyncio.to_thread(self._count, terms, limit)

    # Catching up

    async def _catch_up(self, store: ConversationStore) -> None:
        records = {record.id: record async for record in known_records(store)}
        for gone in self._seen.keys() - records.keys():
            self._remove(gone)
        if self.size > _WORTH_A_THREAD and self._alive < self.size * (1 - _MOST_DEAD):
            self._clear()
        for record in records.values():
            seen = self._seen.get(record.id)
            if seen is None or not seen.is_all_of(record):
                await self._read(store, record, seen)

    async def _read(self, store: ConversationStore, record: Conversation, seen: Seen | None) -> None:
        try:
            news = await news_of(store, record, seen)
        except ConversationNotFound:
            self._remove(record.id)
            return
        if len(news.entries) < _WORTH_A_THREAD:
            self._take(record.id, news)
        else:
            await asyncio.to_thread(self._take, record.id, news)

    def _take(self, conversation_id: str, news: News) -> None:
        if news.whole:
            self._remove(conversation_id)
        for entry in news.entries:
            self.add(entry)
        self._seen[conversation_id] = news.seen

    def add(self, entry: Entry) -> None:
        """Take in one message."""
        terms = indexed_terms(entry.message)
        if not terms:
            return
        number = len(self._messages)
        message = Indexed(entry.conversation_id, entry.position, entry.message.role, len(terms))
        self._messages.append(message)
        self._numbers.setdefault(entry.conversation_id, []).append(number)
        for term, count in Counter(terms).items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = Postings()
            postings.numbers.append(number)
            postings.counts.append(count)
        self._alive += 1
        self._terms += len(terms)

    def _remove(self, conversation_id: str) -> None:
        self._seen.pop(conversation_id, None)
        for number in self._numbers.pop(conversation_id, ()):
            message = self._messages[number]
            if message is not None:
                self._alive -= 1
                self._terms -= message.length
            self._messages[number] = None

    # Counting

    def _count(self, terms: Sequence[str], limit: int) -> Matches:
        counts: dict[int, list[int]] = {}
        frequencies = [self._count_term(term, at, len(terms), counts) for at, term in enumerate(terms)]
        known = Matches(found=(), frequencies=tuple(frequencies), messages=self._alive, terms=self._terms)
        return _with_found(known, self._best(counts, known, limit))

    def _count_term(self, term: str, at: int, size: int, counts: dict[int, list[int]]) -> int:
        """Note the term's counts, message by message; returns in how many it occurs."""
        postings = self._postings.get(term)
        if postings is None:
            return 0
        frequency = 0
        for number, count in zip(postings.numbers, postings.counts, strict=True):
            if self._messages[number] is None:
                continue
            frequency += 1
            if number not in counts:
                counts[number] = [0] * size
            counts[number][at] = count
        return frequency

    def _best(self, counts: dict[int, list[int]], known: Matches, limit: int) -> Iterable[Match]:
        found = [self._match(number, by_term) for number, by_term in counts.items()]
        if len(found) <= limit:
            return found
        return nlargest(limit, found, key=Scorer(known, len(known.frequencies)))

    def _match(self, number: int, counts: list[int]) -> Match:
        message = self._messages[number]
        assert message is not None, "removed messages are not counted"
        return Match(
            conversation_id=message.conversation_id,
            position=message.position,
            role=message.role,
            counts=tuple(counts),
            length=message.length,
        )


async def matches_in_known(store: ConversationStore, terms: Sequence[str], *, limit: int) -> Matches:
    """The same for a store that is away: in the ends of the conversations that are known meanwhile."""
    index = OwnerIndex()
    async for record in known_records(store):
        for entry in await store.recent(record.id, limit=_KNOWN):
            index.add(entry)
    return await index.counted(terms, limit)


def _with_found(known: Matches, found: Iterable[Match]) -> Matches:
    return Matches(
        found=tuple(found), frequencies=known.frequencies, messages=known.messages, terms=known.terms
    )
