"""An inverted index in this process, for stores without their own. It returns the same counts as theirs.

One `OwnerIndex` contains one owner's messages as counts of terms. Every question first updates it by
comparing record revisions, so an unchanged conversation costs one comparison. The index is never written to
disk.
"""

import asyncio
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from heapq import nlargest

from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import ConversationStore, Entry, Match, Matches, Position
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Role
from aforesaid.search.analysis import indexed_terms
from aforesaid.search.bm25 import Scorer

# Read only the new entries of a conversation.
#
# A record's revision tells whether anything changed. If message count and entry revisions show that only
# turns were added, only those are read. After any other change (a replaced message, an import into the
# middle) the whole conversation is read again.


_PAGE = 500


class ReadState(Struct, frozen=True, kw_only=True):
    """How far a conversation has been read."""

    created_at: datetime
    """Distinguishes a conversation from a later one with the same id."""
    revision: int
    messages: int
    """The record's message count at that time."""
    last: int
    """The largest sequence."""

    def is_current_for(self, record: Conversation) -> bool:
        """Return whether nothing has changed since."""
        return self.revision == record.revision and self.created_at == record.created_at


class NewEntries(Struct, frozen=True, kw_only=True):
    """The result of one read."""

    entries: list[Entry]
    whole: bool
    """Whether `entries` is the whole log, so that earlier reads are void."""
    state: ReadState


async def read_new_entries(
    store: ConversationStore, record: Conversation, state: ReadState | None
) -> NewEntries:
    """Return the entries added since `state`, or all entries. May raise `ConversationNotFound`."""
    if state is not None and state.created_at == record.created_at:
        added = await _added(store, record, state)
        if added is not None:
            return _new_entries(record, added, whole=False, last=state.last)
    entries = [entry async for entry in all_entries(store, record.id)]
    return _new_entries(record, entries, whole=True, last=0)


async def all_entries(store: ConversationStore, conversation_id: str) -> AsyncIterator[Entry]:
    """Yield the whole log, oldest first."""
    offset = 0
    while entries := await store.page(conversation_id, limit=_PAGE, offset=offset):
        for entry in entries:
            yield entry
        offset += len(entries)
        if len(entries) < _PAGE:
            return


async def _added(store: ConversationStore, record: Conversation, state: ReadState) -> list[Entry] | None:
    """Return the new entries at the end of the log, or None if there are other changes."""
    wanted = record.message_count - state.messages
    if wanted < 0:
        return None
    # Read one entry more: if it is new too, the log was rewritten or a turn is being written.
    latest = await store.tail(record.id, limit=wanted + 1)
    added = [entry for entry in latest if entry.sequence > state.last]
    turns = {entry.revision for entry in added}
    return added if len(added) == wanted and len(turns) == record.revision - state.revision else None


def _new_entries(record: Conversation, entries: list[Entry], *, whole: bool, last: int) -> NewEntries:
    state = ReadState(
        created_at=record.created_at,
        revision=record.revision,
        messages=record.message_count,
        last=max((entry.sequence for entry in entries), default=last),
    )
    return NewEntries(entries=entries, whole=whole, state=state)


# Messages above which counting runs on a thread.
_WORTH_A_THREAD = 2_000
# Messages per conversation that are searched while the store is unavailable.
_DEGRADED_LIMIT = 500
# Share of removed messages above which the index is rebuilt.
_MAX_REMOVED_SHARE = 0.25


class IndexedMessage(Struct, frozen=True):
    """A message in the index, without its terms."""

    conversation_id: str
    position: Position
    role: Role
    length: int


class Postings:
    """The messages that contain a term: their numbers in ascending order, and the count in each."""

    __slots__ = ("counts", "numbers")

    def __init__(self) -> None:
        # Arrays take a fraction of the memory of lists of integers.
        self.numbers = array("L")
        self.counts = array("L")


class OwnerIndex:
    """One owner's messages by their terms."""

    def __init__(self) -> None:
        self._lock = PerLoop(asyncio.Lock)
        self._clear()

    def _clear(self) -> None:
        self._read_states: dict[str, ReadState] = {}
        self._messages: list[IndexedMessage | None] = []
        self._numbers: dict[str, list[int]] = {}
        self._postings: dict[str, Postings] = {}
        self._alive = 0
        self._terms = 0

    @property
    def size(self) -> int:
        """The number of messages, including removed ones."""
        return len(self._messages)

    def message_count(self, conversation_id: str | None) -> int:
        """Return the number of searchable messages of a conversation, or of all."""
        return self._alive if conversation_id is None else len(self._numbers.get(conversation_id, ()))

    async def matches(self, store: ConversationStore, terms: Sequence[str], *, limit: int) -> Matches:
        """Implement `Searchable.matches`, after updating from the store."""
        async with self._lock.here():
            with noting_freshness() as freshness:
                await self._update(store)
            try:
                return await self.count_matches(terms, limit)
            finally:
                if freshness.degraded:
                    self._clear()  # revisions do not reveal that the logs read here were incomplete

    async def count_matches(self, terms: Sequence[str], limit: int) -> Matches:
        """Implement `Searchable.matches` over the current contents."""
        if self.size < _WORTH_A_THREAD:
            return self._count(terms, limit)
        return await asyncio.to_thread(self._count, terms, limit)

    # Updating

    async def _update(self, store: ConversationStore) -> None:
        records = {record.id: record async for record in known_records(store)}
        # Deleted or expired since the last search.
        for gone in self._read_states.keys() - records.keys():
            self._remove(gone)
        if self.size > _WORTH_A_THREAD and self._alive < self.size * (1 - _MAX_REMOVED_SHARE):
            self._clear()
        for record in records.values():
            state = self._read_states.get(record.id)
            if state is None or not state.is_current_for(record):
                await self._update_conversation(store, record, state)

    async def _update_conversation(
        self, store: ConversationStore, record: Conversation, state: ReadState | None
    ) -> None:
        try:
            new = await read_new_entries(store, record, state)
        except ConversationNotFound:
            self._remove(record.id)
            return
        if len(new.entries) < _WORTH_A_THREAD:
            self._apply(record.id, new)
        else:
            await asyncio.to_thread(self._apply, record.id, new)

    def _apply(self, conversation_id: str, new: NewEntries) -> None:
        if new.whole:
            self._remove(conversation_id)
        for entry in new.entries:
            self.add(entry)
        self._read_states[conversation_id] = new.state

    def add(self, entry: Entry) -> None:
        """Add one message."""
        terms = indexed_terms(entry.message)
        if not terms:
            return
        number = len(self._messages)
        message = IndexedMessage(entry.conversation_id, entry.position, entry.message.role, len(terms))
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
        self._read_states.pop(conversation_id, None)
        for number in self._numbers.pop(conversation_id, ()):
            message = self._messages[number]
            if message is not None:
                self._alive -= 1
                self._terms -= message.length
            # Numbers in postings stay valid; counting skips the hole, and a rebuild removes it.
            self._messages[number] = None

    # Counting

    def _count(self, terms: Sequence[str], limit: int) -> Matches:
        counts: dict[int, list[int]] = {}
        frequencies = [self._count_term(term, at, len(terms), counts) for at, term in enumerate(terms)]
        totals = Matches(found=(), frequencies=tuple(frequencies), messages=self._alive, terms=self._terms)
        return _with_matches(totals, self._best(counts, totals, limit))

    def _count_term(self, term: str, at: int, size: int, counts: dict[int, list[int]]) -> int:
        """Add the term's count for each message; return the number of messages that contain it."""
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

    def _best(self, counts: dict[int, list[int]], totals: Matches, limit: int) -> Iterable[Match]:
        found = [self._match(number, by_term) for number, by_term in counts.items()]
        if len(found) <= limit:
            return found
        # By the BM25 of the ranking, so that the limit keeps the messages that it would prefer.
        return nlargest(limit, found, key=Scorer(totals, len(totals.frequencies)))

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


async def matches_while_degraded(store: ConversationStore, terms: Sequence[str], *, limit: int) -> Matches:
    """Search the last known ends of the conversations while the store is unavailable."""
    index = OwnerIndex()
    async for record in known_records(store):
        for entry in await store.recent(record.id, limit=_DEGRADED_LIMIT):
            index.add(entry)
    return await index.count_matches(terms, limit)


def _with_matches(totals: Matches, found: Iterable[Match]) -> Matches:
    return Matches(
        found=tuple(found), frequencies=totals.frequencies, messages=totals.messages, terms=totals.terms
    )
