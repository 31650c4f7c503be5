"""The cached layer: what was read a moment ago is not read again. Below: the store contract.

What is kept: records, and the tails and pages of their logs, in memory, within a bound of bytes.
What was changed in this process is never served from before the change. What another process has
changed is served no longer than this:

- Where the store can be watched and `watch` is on, until the store tells of the change, which takes
  as long as the message does; and never longer than `ttl`, should that message be lost. When the
  watch breaks, the owner's entries are checked as below.
- Otherwise not at all: before anything is served the record is read, and it has to be the same, with
  the same revision. `ttl` bounds even that.

Callers who miss the same thing at the same time load it once. What is degraded is not kept, nor
what is read of a log that is still being restored.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar, cast

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.deadlines import ended
from aforesaid._internal.freshness import note_degraded, noting_freshness
from aforesaid._internal.loops import LoopWatch
from aforesaid.contracts import (
    Appended,
    Backend,
    Change,
    ConversationStore,
    CopyHolder,
    Document,
    Entry,
    Migratable,
    Position,
    Reindexable,
    Scrubbable,
    Searchable,
    Tally,
    VectorSearchable,
    Watchable,
)
from aforesaid.errors import StoreError
from aforesaid.layers._capabilities import around, with_capabilities_of
from aforesaid.layers._sizes import OVERHEAD, own, size_of
from aforesaid.model.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    check_count,
    check_span,
    is_expired,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.telemetry import Telemetry, describe, telemetry

log = logging.getLogger("aforesaid.cached")

T = TypeVar("T")

MOST_BYTES = 64 * 1024 * 1024
MOST_WATCHED = 64
"""Owners that are watched at once: on some stores each costs a connection. Others are checked."""
LARGEST_KEPT = 1000
"""Entries in a tail or page from which on it is not kept."""


class Cache(CheckedFields, frozen=True, kw_only=True):
    """How the layer behaves."""

    ttl: timedelta = timedelta(seconds=300)
    """How long an entry may be served at most."""
    max_bytes: int = MOST_BYTES
    watch: bool = True
    """Trust the store to tell of changes, where it can. Off, every read is checked against the record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_span(self.ttl, field="ttl")
        check_count(self.max_bytes, field="max_bytes", least=1)


class _Slot:
    """One conversation: its record, and what was read of its log while it had that record."""

    __slots__ = ("kept_at", "parts", "record", "size")

    def __init__(self, record: Conversation, kept_at: float) -> None:
        self.record = record
        self.kept_at = kept_at
        self.parts: dict[Hashable, list[Entry]] = {}
        self.size = OVERHEAD


class _Loaded(NamedTuple):
    """An answer, and why it is degraded, if it is."""

    answer: Any
    reasons: tuple[str, ...]


class _Flight:
    """A load that is under way, and how many wait for it."""

    __slots__ = ("stale", "task", "waiting")

    def __init__(self, task: "asyncio.Task[_Loaded]") -> None:
        self.task = task
        self.waiting = 0
        self.stale = False
        """Something was written since it took off: its answer is for those who wait, and not for keeping."""


class Shelves:
    """What is kept, for all owners, and what is being loaded. One event loop."""

    def __init__(self, cache: Cache, *, clock: Callable[[], float], metrics: Telemetry, name: str) -> None:
        self._cache = cache
        self._ttl = cache.ttl.total_seconds()
        self._clock = clock
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._flights: dict[tuple[str, str], dict[Hashable, _Flight]] = {}
        self._loop = LoopWatch()
        self.size = 0
        self.hits = metrics.counter("aforesaid_cache_hits_total", store=name)
        self.misses = metrics.counter("aforesaid_cache_misses_total", store=name)
        metrics.gauge("aforesaid_cache_bytes", "", lambda: self.size, store=name)

    # Keeping

    def slot(self, owner: str, conversation_id: str, *, now: datetime) -> _Slot | None:
        """What is kept of a conversation, if it may still be served."""
        slot = self._slots.get((owner, conversation_id))
        if slot is None:
            return None
        if self._clock() - slot.kept_at >= self._ttl or is_expired(slot.record, now=now):
            self._drop((owner, conversation_id))
            return None
        self._slots.move_to_end((owner, conversation_id))
        return slot

    def keep_record(self, owner: str, record: Conversation) -> _Slot:
        """Keep the record; what was read under another one goes."""
        key = owner, record.id
        slot = self._slots.get(key)
        if slot is None or slot.record != record:
            self._drop(key)
            slot = self._slots[key] = _Slot(record, self._clock())
            self.size += slot.size
            self._evict()
        return slot

    def keep_part(self, owner: str, slot: _Slot, part: Hashable, entries: list[Entry]) -> None:
        key = owner, slot.record.id
        if self._slots.get(key) is not slot or len(entries) >= LARGEST_KEPT:
            return
        size = size_of(entry.message for entry in entries) + OVERHEAD
        slot.parts[part] = entries
        slot.size += size
        self.size += size
        self._evict()

    def invalidate(self, owner: str, conversation_id: str) -> int:
        """Something changed: nothing from before is served, nor kept when it arrives later.

        Returns how many answers were kept.
        """
        key = owner, conversation_id
        for flight in self._flights.pop(key, {}).values():
            flight.stale = True
        return self._drop(key)

    def heard(self, owner: str, change: Change) -> None:
        """The store tells of a change; what is as new as that stays."""
        slot = self._slots.get((owner, change.conversation_id))
        if slot is None or change.revision is None or slot.record.revision < change.revision:
            self.invalidate(owner, change.conversation_id)

    def invalidate_owner(self, owner: str) -> int:
        keys = {key for key in (*self._slots, *self._flights) if key[0] == owner}
        return sum(self.invalidate(*key) for key in keys)

    def clear(self) -> None:
        for key in {*self._slots, *self._flights}:
            self.invalidate(*key)

    def _drop(self, key: tuple[str, str]) -> int:
        slot = self._slots.pop(key, None)
        if slot is None:
            return 0
        self.size -= slot.size
        return 1 + len(slot.parts)

    def _evict(self) -> None:
        while self.size > self._cache.max_bytes and self._slots:
            _, slot = self._slots.popitem(last=False)
            self.size -= slot.size

    # Loading

    async def load(
        self,
        owner: str,
        conversation_id: str,
        part: Hashable,
        ask: Callable[[], Awaitable[T]],
        keep: Callable[[T], None],
    ) -> T:
        """Load, together with everybody who wants the same now. Who gives up leaves the others theirs."""
        if self._loop.has_changed():
            self._flights.clear()  # an earlier loop has left them behind
        key = owner, conversation_id
        flights = self._flights.setdefault(key, {})
        flight = flights.get(part)
        if flight is None:
            self.misses.add()
            flight = flights[part] = _Flight(asyncio.create_task(_asked(ask)))
            flight.task.add_done_callback(lambda _: self._landed(key, part, flight, keep))
        flight.waiting += 1
        try:
            loaded = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                self._unlist(key, part, flight)  # it ends a moment later: nobody may join it until then
        for reason in loaded.reasons:
            note_degraded(reason)
        return cast(T, loaded.answer)

    def _landed(
        self, key: tuple[str, str], part: Hashable, flight: _Flight, keep: Callable[[Any], None]
    ) -> None:
        self._unlist(key, part, flight)
        task = flight.task
        if task.cancelled() or task.exception() is not None or flight.stale:
            return
        if not task.result().reasons:
            keep(task.result().answer)

    def _unlist(self, key: tuple[str, str], part: Hashable, flight: _Flight) -> None:
        """Whoever wants the same from now on loads it anew."""
        flights = self._flights.get(key, {})
        if flights.get(part) is flight:
            del flights[part]
            if not flights:
                del self._flights[key]


async def _asked(ask: Callable[[], Awaitable[Any]]) -> _Loaded:
    with noting_freshness() as seen:
        answer = await ask()
    return _Loaded(answer, tuple(seen.reasons))


class Watching:
    """Listens for the changes of owners who are read often, each in a task of its own."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._tasks: OrderedDict[str, asyncio.Task[None]] = OrderedDict()
        self._live: set[str] = set()
        self._loop = LoopWatch()

    def covers(self, owner: str, store: ConversationStore) -> bool:
        """Whether every change of this owner is heard of now; begins to listen if not."""
        if self._loop.has_changed():
            self._forget_loop()
        if owner not in self._tasks:
            self._begin(owner, cast(Watchable, store))
        self._tasks.move_to_end(owner)
        return owner in self._live

    def _forget_loop(self) -> None:
        """The listening tasks ended with their event loop: what was read since may have changed."""
        for owner in self._tasks:
            self._shelves.invalidate_owner(owner)
        self._tasks.clear()
        self._live.clear()

    def _begin(self, owner: str, store: Watchable) -> None:
        if len(self._tasks) >= MOST_WATCHED:
            _, oldest = self._tasks.popitem(last=False)
            oldest.cancel()
        task = asyncio.create_task(self._listen(owner, store), name="aforesaid-cache-watch")
        self._tasks[owner] = task
        task.add_done_callback(lambda _: self._ended(owner, task))

    async def _listen(self, owner: str, store: Watchable) -> None:
        try:
            async with store.watch() as changes:
                # What was read before may have changed before: nobody would tell.
                self._shelves.invalidate_owner(owner)
                self._live.add(owner)
                async for change in changes:
                    self._shelves.heard(owner, change)
        except StoreError as error:
            log.info("changes are not heard of, reads are checked instead: %s", describe(error))

    def _ended(self, owner: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(owner) is task:
            del self._tasks[owner]
        self._live.discard(owner)
        self._shelves.invalidate_owner(owner)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the watch of the cache stumbled", exc_info=error)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await ended(*tasks)


class CachedBackend(Backend):
    """A backend whose reads are remembered."""

    def __init__(
        self,
        inner: Backend,
        cache: Cache | None = None,
        *,
        name: str = "store",
        clock: Callable[[], float] = time.monotonic,
        metrics: Telemetry = telemetry,
    ) -> None:
        self._inner = inner
        self.cache = cache or Cache()
        self.shelves = Shelves(self.cache, clock=clock, metrics=metrics, name=name)
        self.watching = Watching(self.shelves)

    async def open(self) -> None:
        self.shelves.clear()
        await self._inner.open()

    async def close(self) -> None:
        try:
            await self.watching.close()
        finally:
            self.shelves.clear()
            await self._inner.close()

    def of(self, owner: str) -> "CachedStore":
        name = parse_name(owner, field="owner")
        inner = self._inner.of(name)
        kind = _WatchableStore if isinstance(inner, Watchable) else CachedStore
        return with_capabilities_of(inner, kind(self, name, inner), [Searchable, VectorSearchable])

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self._inner.owners(ignored_kinds=ignored_kinds)

    async def purge_expired(self, now: datetime | None = None) -> int:
        try:
            return await self._inner.purge_expired(now)
        finally:
            self.shelves.clear()

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remember nothing of this conversation, or of this owner, any more. See `contracts.Holds`."""
        shelves = self.shelves
        copies = (
            shelves.invalidate_owner(owner)
            if conversation_id is None
            else shelves.invalidate(owner, conversation_id)
        )
        counts = Counter(cached_copies=copies)
        inner = self._inner
        if isinstance(inner, CopyHolder):
            counts.update(await inner.remove_copies(owner, conversation_id, until=until))
        return dict(counts)


def cached(inner: Backend, cache: Cache | None = None, **options: Any) -> CachedBackend:
    """The layer around a backend, with the powers of that backend."""
    return with_capabilities_of(
        inner, CachedBackend(inner, cache, **options), [Migratable, Scrubbable, Reindexable]
    )


class CachedStore(ConversationStore):
    """One owner's store, reads remembered."""

    def __init__(self, backend: CachedBackend, owner: str, inner: ConversationStore) -> None:
        self._backend = backend
        self._shelves = backend.shelves
        self._owner = owner
        self._inner = inner
        self._watches = backend.cache.watch and isinstance(inner, Watchable)
        self._remembers = True
        """Whether reads may be answered from the cache."""

    def now(self) -> datetime:
        return self._inner.now()

    @property
    def degraded(self) -> bool:
        return self._inner.degraded

    async def authoritative(self) -> "CachedStore":
        whole = around(self, await self._inner.authoritative())
        whole._remembers = False
        return whole

    # Reading

    async def get(self, conversation_id: str) -> Conversation | None:
        if not self._remembers:
            return await self._inner.get(conversation_id)
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if self._watches and self._backend.watching.covers(self._owner, self._inner):
            slot = self._shelves.slot(self._owner, conversation_id, now=self.now())
            if slot is not None:
                self._shelves.hits.add()
                return slot.record
        return await self._loaded_record(conversation_id)

    async def _loaded_record(self, conversation_id: str) -> Conversation | None:
        def keep(record: Conversation | None) -> None:
            if record is not None:
                self._shelves.keep_record(self._owner, record)

        return await self._shelves.load(
            self._owner, conversation_id, "record", lambda: self._inner.get(conversation_id), keep
        )

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._read(
            conversation_id,
            ("tail", limit, before),
            lambda: self._inner.tail(conversation_id, limit=limit, before=before),
        )

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self._read(
            conversation_id,
            ("tail", limit, before),
            lambda: self._inner.recent(conversation_id, limit=limit, before=before),
            apart="recent",
        )

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return await self._read(
            conversation_id,
            ("page", limit, offset),
            lambda: self._inner.page(conversation_id, limit=limit, offset=offset),
        )

    async def _read(
        self,
        conversation_id: str,
        part: tuple[Any, ...],
        ask: Callable[[], Awaitable[list[Entry]]],
        *,
        apart: str = "",
    ) -> list[Entry]:
        """The part from the cache or the store. Only callers with the same `apart` share one load."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if not self._remembers:
            return await ask()
        if not all(isinstance(value, int | str | tuple | None) for value in part):
            return await ask()  # the store says what is wrong with it
        # The record comes first: what is read after it is as new, or newer, and the next check sees that.
        record = await self.get(conversation_id)
        slot = self._shelves.slot(self._owner, conversation_id, now=self.now())
        if record is None or slot is None or slot.record != record:
            return await ask()
        if part in slot.parts:
            self._shelves.hits.add()
            return own(slot.parts[part])

        def keep(entries: list[Entry]) -> None:
            if _is_whole(part, entries, record):
                self._shelves.keep_part(self._owner, slot, part, entries)

        loading = self._shelves.load(self._owner, conversation_id, (apart, *part, record.revision), ask, keep)
        return own(await loading)

    async def find(self, query: Query) -> Page:
        return await self._inner.find(query)

    async def session(self, session_id: str) -> Conversation | None:
        return await self._inner.session(session_id)

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self._inner.sessions(conversation_id)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return await self._inner.entry(conversation_id, message_id)

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self._inner.expired(by=by, limit=limit)

    # Documents are not kept: they are read once by whoever needs them

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        return await self._inner.put_document(
            kind, key, data, conversation_id=conversation_id, expected_version=expected_version
        )

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        return await self._inner.get_document(kind, key, conversation_id=conversation_id)

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self._inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self._inner.document_kinds(conversation_id=conversation_id)

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        return await self._inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        await self._inner.restore_documents(documents)

    # Writing: whatever changes a conversation, nothing from before it is served after it

    async def _written(self, conversation_id: object, write: Awaitable[T]) -> T:
        try:
            return await write
        finally:
            if isinstance(conversation_id, str):
                self._shelves.invalidate(self._owner, _canonical(conversation_id))

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._written(conversation.id, self._inner.create(conversation))

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return await self._written(
            conversation_id,
            self._inner.update(conversation_id, changes, expected_revision=expected_revision),
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self._written(
            conversation_id, self._inner.delete(conversation_id, expected_revision=expected_revision)
        )

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return await self._written(fresh.id, self._inner.resume(session_id, fresh, active_since=active_since))

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self._inner.bind(session_id, conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self._inner.unbind(session_id)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._written(
            conversation_id,
            self._inner.append(conversation_id, messages, expected_revision=expected_revision),
        )

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._written(
            conversation_id,
            self._inner.rewrite(conversation_id, messages, expected_revision=expected_revision),
        )

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        return await self._written(
            conversation_id,
            self._inner.replace(conversation_id, message, expected_revision=expected_revision),
        )

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        await self._written(conversation.id, self._inner.restore(conversation, entries))

    async def purge_expired(self) -> int:
        return await self._for_all(self._inner.purge_expired())

    async def clear(self) -> Tally:
        return await self._for_all(self._inner.clear())

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return await self._inner.tally(conversation_id)

    async def _for_all(self, write: Awaitable[T]) -> T:
        try:
            return await write
        finally:
            self._shelves.invalidate_owner(self._owner)


class _WatchableStore(CachedStore):
    """A cached store whose store can be watched."""

    @asynccontextmanager
    async def watch(self, conversation_id: str | None = None) -> AsyncIterator[AsyncIterator[Change]]:
        """Pass on the changes, each after dropping older entries.

        The cache listens on a watch of its own, which may hear of a change later than this one. A caller that
        reads on hearing of a change must not get what was kept before it.
        """
        assert isinstance(self._inner, Watchable)
        async with self._inner.watch(conversation_id) as changes:
            self._shelves.invalidate_owner(self._owner)
            yield self._heard(changes)

    async def _heard(self, changes: AsyncIterator[Change]) -> AsyncIterator[Change]:
        async for change in changes:
            self._shelves.heard(self._owner, change)
            yield change


def _is_whole(part: tuple[Any, ...], entries: Sequence[Entry], record: Conversation) -> bool:
    """Whether the log has given what its record promises.

    It has not while a conversation is restored in parts: the record comes with the first of them, and is
    the same after the last, so that no check and no watch would tell that the log has grown.
    """
    how, limit, where = part
    if how == "page":
        promised: int = min(limit, max(record.message_count - where, 0))
        return len(entries) == promised
    if where is not None:
        return True  # parts come in the order of the log: before what is there nothing is missing
    return len(entries) == min(limit, record.message_count) and _reaches_the_end(entries, record)


def _reaches_the_end(entries: Sequence[Entry], record: Conversation) -> bool:
    """Whether the newest message is among these. Where several share its moment, the sequences tell: the
    largest is no less than the number of messages."""
    if not entries:
        return True
    largest = max(entry.sequence for entry in entries)
    return entries[-1].message.timestamp == record.last_message_at and largest >= record.message_count


def _canonical(conversation_id: str) -> str:
    try:
        return parse_uuid(conversation_id, field="conversation_id")
    except ValueError:
        return conversation_id
