"""An inverted index in this process, for stores without their own. It returns the same counts as theirs.

One `OwnerIndex` contains one owner's messages as counts of terms, and the labels of the conversations.
Every question first updates it: by the records that changed where the store reports them (`ChangeTracking`),
by comparing the revisions of all records elsewhere. The index is never written to disk.
"""

import asyncio
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import heappop, heappush, nlargest
from typing import TypeVar

from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import (
    ChangeTracking,
    ConversationStore,
    Entry,
    Match,
    Matches,
    Position,
    RecordChanges,
    capability,
    label_of,
)
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Role
from aforesaid.search.analysis import indexed_terms
from aforesaid.search.bm25 import Scorer
from aforesaid.search.labels import OwnerLabels

T = TypeVar("T")

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
    expires_at: datetime | None = None

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
        expires_at=record.expires_at,
    )
    return NewEntries(entries=entries, whole=whole, state=state)


# Messages above which counting runs on a thread.
_WORTH_A_THREAD = 2_000
# Messages per conversation that are searched while the store is unavailable.
_DEGRADED_LIMIT = 500
# Changed conversations that are read one by one; beyond that, all records are listed.
MOST_CHANGED = 500
# Conversations that are read at once: fewer than a pool has connections.
_READ_AT_ONCE = 8
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
        self._mark: str | None = None
        self._expiries: list[tuple[datetime, str]] = []
        self.labels = OwnerLabels()

    @property
    def size(self) -> int:
        """The number of messages, including removed ones, and of labels."""
        return len(self._messages) + self.labels.size

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

    async def label_matches(
        self, store: ConversationStore, question: str, terms: Sequence[str]
    ) -> dict[str, float] | None:
        """Return `OwnerLabels.matches` after updating from the store; None while it is unavailable."""
        async with self._lock.here():
            with noting_freshness() as freshness:
                await self._update(store)
            if freshness.degraded:
                self._clear()
                return None
            return self.labels.matches(question, terms)

    async def count_matches(self, terms: Sequence[str], limit: int) -> Matches:
        """Implement `Searchable.matches` over the current contents."""
        if len(self._messages) < _WORTH_A_THREAD:
            return self._count(terms, limit)
        return await asyncio.to_thread(self._count, terms, limit)

    # Updating

    async def _update(self, store: ConversationStore) -> None:
        changes = await _changes_since(store, self._mark)
        if changes.changed is None or len(changes.changed) > MOST_CHANGED:
            await self._read_all(store)
        else:
            await self._read_changed(store, changes.changed)
        self._remove_expired(store.now())
        if self._is_mostly_removed():
            self._clear()
            await self._read_all(store)
        self._mark = changes.mark

    def _is_mostly_removed(self) -> bool:
        held = len(self._messages)
        return held > _WORTH_A_THREAD and self._alive < held * (1 - _MAX_REMOVED_SHARE)

    async def _read_all(self, store: ConversationStore) -> None:
        records = {record.id: record async for record in known_records(store)}
        # Deleted or expired since the last search.
        for gone in self._read_states.keys() - records.keys():
            self._remove(gone)
        await self._read_records(store, list(records.values()))

    async def _read_changed(self, store: ConversationStore, conversation_ids: Sequence[str]) -> None:
        for ids in _batches(conversation_ids):
            records = await asyncio.gather(*map(store.get, ids))
            for one, record in zip(ids, records, strict=True):
                if record is None:
                    self._remove(one)
            await self._read_records(store, [record for record in records if record is not None])

    async def _read_records(self, store: ConversationStore, records: Sequence[Conversation]) -> None:
        """Read the new entries of these conversations, several logs at once."""
        self.labels.correct(map(label_of, records))
        changed = [record for record in records if not self._is_current(record)]
        for batch in _batches(changed):
            states = [self._read_states.get(record.id) for record in batch]
            reading = (_read_if_there(store, *one) for one in zip(batch, states, strict=True))
            for record, new in zip(batch, await asyncio.gather(*reading), strict=True):
                await self._update_conversation(record, new)

    def _is_current(self, record: Conversation) -> bool:
        state = self._read_states.get(record.id)
        return state is not None and state.is_current_for(record)

    def _note_expiry(self, expires_at: datetime, conversation_id: str) -> None:
        heappush(self._expiries, (expires_at, conversation_id))
        # Every turn postpones the end of a conversation: drop earlier ends before they outnumber the others.
        if len(self._expiries) > 2 * len(self._read_states) + _WORTH_A_THREAD:
            ends = [(state.expires_at, one) for one, state in self._read_states.items()]
            self._expiries = sorted((at, one) for at, one in ends if at is not None)

    def _remove_expired(self, now: datetime) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            expired_at, conversation_id = heappop(self._expiries)
            state = self._read_states.get(conversation_id)
            if state is not None and state.expires_at == expired_at:
                self._remove(conversation_id)

    async def _update_conversation(self, record: Conversation, new: NewEntries | None) -> None:
        if new is None:
            self._remove(record.id)
            return
        if len(new.entries) < _WORTH_A_THREAD:
            self._apply(record.id, new)
        else:
            await asyncio.to_thread(self._apply, record.id, new)
        if record.expires_at is not None:
            self._note_expiry(record.expires_at, record.id)

    def _apply(self, conversation_id: str, new: NewEntries) -> None:
        if new.whole:
            self._remove_messages(conversation_id)
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
        self.labels.remove(conversation_id)
        self._remove_messages(conversation_id)

    def _remove_messages(self, conversation_id: str) -> None:
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


def _batches(found: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(found), _READ_AT_ONCE):
        yield found[first : first + _READ_AT_ONCE]


async def _read_if_there(
    store: ConversationStore, record: Conversation, state: ReadState | None
) -> NewEntries | None:
    try:
        return await read_new_entries(store, record, state)
    except ConversationNotFound:
        return None


async def _changes_since(store: ConversationStore, mark: str | None) -> RecordChanges:
    tracking = capability(store, ChangeTracking)
    return RecordChanges("", None) if tracking is None else await tracking.changes_since(mark)


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
