"""Cached conversations of all owners, and loads in progress."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.freshness import note_degraded, noting_freshness
from aforesaid._internal.tasks import LoopWatch
from aforesaid.contracts import Appended, Change, Entry
from aforesaid.layers.base import OVERHEAD, private_copies, size_of
from aforesaid.model.conversations import Conversation, check_count, check_span, is_expired
from aforesaid.telemetry import Telemetry

T = TypeVar("T")

MAX_BYTES = 64 * 1024 * 1024
# A tail or page with this many entries or more is not cached.
MAX_ENTRIES = 1000


class Cache(CheckedFields, frozen=True, kw_only=True):
    """Options of the layer."""

    ttl: timedelta = timedelta(seconds=300)
    """The longest time that a cached answer is served."""
    max_bytes: int = MAX_BYTES
    watch: bool = True
    """Rely on change notifications, where the store sends them. Off, every read is checked against the
    record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_span(self.ttl, field="ttl")
        check_count(self.max_bytes, field="max_bytes", least=1)


class CachedConversation:
    """A record, and the parts of its log that were read under this record."""

    __slots__ = ("cached_at", "parts", "record", "size")

    def __init__(self, record: Conversation, cached_at: float) -> None:
        self.record = record
        self.cached_at = cached_at
        self.parts: dict[Hashable, list[Entry]] = {}
        self.size = OVERHEAD


class _Loaded(NamedTuple):
    """An answer, and the reasons why it is degraded."""

    answer: Any
    reasons: tuple[str, ...]


class _Load:
    """A load in progress, and the number of callers that wait for it."""

    __slots__ = ("stale", "task", "waiting")

    def __init__(self, task: "asyncio.Task[_Loaded]") -> None:
        self.task = task
        self.waiting = 0
        # A write happened after the load began: its callers get the answer, but it is not cached.
        self.stale = False


class ConversationCache:
    """Least recently used conversations of all owners, bounded by bytes. Belongs to one event loop."""

    def __init__(self, cache: Cache, *, clock: Callable[[], float], metrics: Telemetry, name: str) -> None:
        self._max_bytes = cache.max_bytes
        self._ttl = cache.ttl.total_seconds()
        self._clock = clock
        self._conversations: BoundedDict[tuple[str, str], CachedConversation] = BoundedDict(
            cache.max_bytes, size=attrgetter("size")
        )
        self._loads: dict[tuple[str, str], dict[Hashable, _Load]] = {}
        self._loop = LoopWatch()
        self._next_drop = 0.0
        self.hits = metrics.counter("aforesaid_cache_hits_total", store=name)
        self.misses = metrics.counter("aforesaid_cache_misses_total", store=name)
        metrics.gauge("aforesaid_cache_bytes", "", lambda: self.size, store=name)

    @property
    def size(self) -> int:
        """The approximate number of bytes in the cache."""
        return self._conversations.used

    # Entries

    def get(self, owner: str, conversation_id: str, *, now: datetime) -> CachedConversation | None:
        """Return the cached conversation, unless its ttl has passed or the conversation has expired."""
        cached = self._conversations.get((owner, conversation_id))
        if cached is None:
            return None
        if self._clock() - cached.cached_at >= self._ttl or is_expired(cached.record, now=now):
            self._remove((owner, conversation_id))
            return None
        self._conversations.use((owner, conversation_id))
        return cached

    def put_record(self, owner: str, record: Conversation) -> None:
        """Cache the record. If it differs from the cached one, drop the parts that were read under that
        one."""
        key = owner, record.id
        cached = self._conversations.get(key)
        if cached is None or cached.record != record:
            self._remove(key)
            self._put(key, CachedConversation(record, self._clock()))

    def put_part(self, owner: str, cached: CachedConversation, part: Hashable, entries: list[Entry]) -> None:
        """Cache a part of the log, unless the conversation was invalidated meanwhile."""
        key = owner, cached.record.id
        if self._conversations.get(key) is not cached or len(entries) >= MAX_ENTRIES:
            return
        size = size_of(entry.message for entry in entries) + OVERHEAD
        cached.parts[part] = entries
        cached.size += size
        self._put(key, cached)

    def append(self, owner: str, conversation_id: str, appended: Appended) -> None:
        """Invalidate the conversation. If nothing else has changed it meanwhile, cache it again with the new
        entries: the next context of a conversation in progress then reads only the record.
        """
        cached = self._conversations.get((owner, conversation_id))
        self.invalidate(owner, conversation_id)
        if cached is None or not _continues(cached.record, appended):
            return
        extended = CachedConversation(appended.conversation, self._clock())
        self._put((owner, conversation_id), extended)
        for part, entries in cached.parts.items():
            longer = _with_new(part, entries, appended.new)
            if longer is not None:
                self.put_part(owner, extended, part, longer)

    def invalidate(self, owner: str, conversation_id: str) -> int:
        """Drop the conversation and mark its loads as stale; return the number of dropped answers."""
        key = owner, conversation_id
        for load in self._loads.pop(key, {}).values():
            load.stale = True
        return self._remove(key)

    def apply_change(self, owner: str, change: Change) -> None:
        """Invalidate the changed conversation, unless the cached record is at least as new as the change."""
        cached = self._conversations.get((owner, change.conversation_id))
        if cached is None or change.revision is None or cached.record.revision < change.revision:
            self.invalidate(owner, change.conversation_id)

    def invalidate_owner(self, owner: str) -> int:
        """Invalidate every conversation of the owner; return the number of dropped answers."""
        keys = {key for key in (*self._conversations, *self._loads) if key[0] == owner}
        return sum(self.invalidate(*key) for key in keys)

    def clear(self) -> None:
        """Invalidate everything."""
        for key in {*self._conversations, *self._loads}:
            self.invalidate(*key)

    def _remove(self, key: tuple[str, str]) -> int:
        cached = self._conversations.pop(key, None)
        return 0 if cached is None else 1 + len(cached.parts)

    def _put(self, key: tuple[str, str], cached: CachedConversation) -> None:
        self._drop_outdated()
        self._conversations[key] = cached
        if cached.size > self._max_bytes:  # it does not fit alone
            self._remove(key)

    def _drop_outdated(self) -> None:
        """Drop conversations whose ttl has passed, also those that no caller reads again."""
        now = self._clock()
        if now < self._next_drop:
            return
        self._next_drop = now + self._ttl
        for key, cached in list(self._conversations.items()):
            if now - cached.cached_at >= self._ttl:
                self._remove(key)

    # Loads

    async def load(
        self,
        owner: str,
        conversation_id: str,
        part: Hashable,
        read: Callable[[], Awaitable[T]],
        store: Callable[[T], None],
    ) -> T:
        """Read a part, sharing the load with concurrent callers of the same part; `store` caches the answer.

        A cancelled caller does not cancel the load while others wait for it.
        """
        if self._loop.has_changed():
            self._loads.clear()  # their tasks belong to an event loop that has ended
        key = owner, conversation_id
        loads = self._loads.setdefault(key, {})
        load = loads.get(part)
        if load is None:
            self.misses.add()
            load = loads[part] = _Load(asyncio.create_task(_read_with_freshness(read)))
            load.task.add_done_callback(lambda _: self._finish(key, part, load, store))
        load.waiting += 1
        try:
            loaded = await asyncio.shield(load.task)
        finally:
            load.waiting -= 1
            if not load.waiting and not load.task.done():
                load.task.cancel()
                # The task ends only later. A new caller must not join a load that is being cancelled.
                self._discard(key, part, load)
        for reason in loaded.reasons:
            note_degraded(reason)
        return cast(T, loaded.answer)

    def _finish(
        self, key: tuple[str, str], part: Hashable, load: _Load, store: Callable[[Any], None]
    ) -> None:
        self._discard(key, part, load)
        task = load.task
        if task.cancelled() or task.exception() is not None or load.stale:
            return
        if not task.result().reasons:
            store(task.result().answer)

    def _discard(self, key: tuple[str, str], part: Hashable, load: _Load) -> None:
        loads = self._loads.get(key, {})
        if loads.get(part) is load:
            del loads[part]
            if not loads:
                del self._loads[key]


def _continues(record: Conversation, appended: Appended) -> bool:
    """Whether the append was the only change since this record, and its entries are the last of the log."""
    after = appended.conversation
    if appended.known or after.created_at != record.created_at or after.revision != record.revision + 1:
        return False
    if after.message_count != record.message_count + len(appended.new):
        return False
    last = record.last_message_at
    times = (entry.message.timestamp for entry in appended.new)
    return all(time is not None and (last is None or last <= time) for time in times)


def _with_new(part: Hashable, entries: list[Entry], new: Sequence[Entry]) -> list[Entry] | None:
    """Return the part after an append of these entries; None if they may belong in it somewhere."""
    match part:
        case "tail", int(limit), None:
            return sorted([*entries, *private_copies(new)], key=attrgetter("position"))[-limit:]
        case "tail", _, _:
            return entries  # ends before an older entry
        case "page", int(limit), _ if len(entries) == limit:
            return entries
        case _:
            return None


async def _read_with_freshness(read: Callable[[], Awaitable[Any]]) -> _Loaded:
    with noting_freshness() as freshness:
        answer = await read()
    return _Loaded(answer, tuple(freshness.reasons))
