"""The cached layer: one owner's store, the listener that invalidates it, and the backend."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self, TypeVar, cast

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.tasks import LoopWatch, ended, start_background
from aforesaid.contracts import (
    Appended,
    Backend,
    Change,
    ChangeTracking,
    ConversationStore,
    CopyHolder,
    Entry,
    Position,
    RecordChanges,
    Sealable,
    Tally,
    Watchable,
    capability,
)
from aforesaid.errors import StoreError
from aforesaid.layers.base import BackendWrapper, StoreWrapper, private_copies
from aforesaid.layers.cached.memory import Cache, ConversationCache
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import Message
from aforesaid.telemetry import Telemetry, describe, telemetry

# Watch the changes of recently read owners, and invalidate what they change.


log = logging.getLogger("aforesaid.cached")

# Owners that are watched at once: on some stores each watch costs a connection. Other reads are checked.
MAX_WATCHED = 64


def _cancel(_: str, task: "asyncio.Task[None]") -> None:
    task.cancel()


class ChangeListener:
    """One background task per watched owner."""

    def __init__(self, cache: ConversationCache) -> None:
        self._cache = cache
        self._tasks: BoundedDict[str, asyncio.Task[None]] = BoundedDict(MAX_WATCHED, on_evict=_cancel)
        self._active: set[str] = set()
        self._loop = LoopWatch()

    def covers(self, owner: str, store: ConversationStore) -> bool:
        """Return whether the owner's changes arrive now; start a watch if there is none."""
        if self._loop.has_changed():
            self._forget_tasks()
        if owner not in self._tasks:
            self._start(owner, cast(Watchable, store))
        self._tasks.use(owner)
        return owner in self._active

    def _forget_tasks(self) -> None:
        """Drop tasks that ended with their event loop, and everything that may have changed since."""
        for owner in self._tasks:
            self._cache.invalidate_owner(owner)
        self._tasks.clear()
        self._active.clear()

    def _start(self, owner: str, store: Watchable) -> None:
        task = start_background(self._watch(owner, store), name="aforesaid-cache-watch")
        self._tasks[owner] = task
        task.add_done_callback(lambda _: self._finish(owner, task))

    async def _watch(self, owner: str, store: Watchable) -> None:
        try:
            async with store.watch() as changes:
                # Data that were read before the watch began may have changed before it, without notification.
                self._cache.invalidate_owner(owner)
                self._active.add(owner)
                async for change in changes:
                    self._cache.apply_change(owner, change)
        except StoreError as error:
            log.info("cannot watch for changes, reads are checked instead: %s", describe(error))

    def _finish(self, owner: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(owner) is task:
            del self._tasks[owner]
        self._active.discard(owner)
        self._cache.invalidate_owner(owner)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the cache's watch failed", exc_info=error)

    async def close(self) -> None:
        """Cancel every watch and wait for its end."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await ended(*tasks)


# One owner's cached store.


T = TypeVar("T")


class CachedStore(StoreWrapper):
    """A store that caches records and log reads. Documents are not cached: callers read them once."""

    # A resealed entry would stay in the cache. Snapshots bypass it: a store that reads them in one step
    # caches them itself and never returns a stale one, and three reads through this cache cost twice as much.
    hides = (Sealable,)

    def __init__(
        self,
        inner: ConversationStore,
        owner: str,
        cache: ConversationCache,
        listener: ChangeListener | None,
    ) -> None:
        super().__init__(inner)
        self._owner = owner
        self._cache = cache
        # None where every read is checked against the record.
        self._listener = listener
        self._reads_cache = True

    async def authoritative(self) -> Self:
        view = await super().authoritative()
        view._reads_cache = False
        return view

    def including_expired(self) -> Self:
        view = super().including_expired()
        view._reads_cache = False  # the cache hides expired conversations
        return view

    # Reads

    async def get(self, conversation_id: str) -> Conversation | None:
        if not self._reads_cache:
            return await self.inner.get(conversation_id)
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if self._listener is not None and self._listener.covers(self._owner, self.inner):
            cached = self._cache.get(self._owner, conversation_id, now=self.now())
            if cached is not None:
                self._cache.hits.add()
                return cached.record
        return await self._load_record(conversation_id)

    async def _load_record(self, conversation_id: str) -> Conversation | None:
        def store(record: Conversation | None) -> None:
            if record is not None:
                self._cache.put_record(self._owner, record)

        return await self._cache.load(
            self._owner, conversation_id, "record", lambda: self.inner.get(conversation_id), store
        )

    async def changes_since(self, mark: str | None) -> RecordChanges:
        found = await self.inner_capability(ChangeTracking).changes_since(mark)
        for conversation_id in found.changed or ():
            # Its watch may not have reported the change yet, and the caller reads the record next.
            self._cache.invalidate(self._owner, conversation_id)
        return found

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self._read(
            conversation_id,
            ("tail", limit, before),
            lambda: self.inner.tail(conversation_id, limit=limit, before=before),
        )

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        # A cached tail serves both, but `recent` must not join a load of `tail`, which may raise in an
        # outage.
        return await self._read(
            conversation_id,
            ("tail", limit, before),
            lambda: self.inner.recent(conversation_id, limit=limit, before=before),
            load_group="recent",
        )

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return await self._read(
            conversation_id,
            ("page", limit, offset),
            lambda: self.inner.page(conversation_id, limit=limit, offset=offset),
        )

    async def _read(
        self,
        conversation_id: str,
        part: tuple[Any, ...],
        read: Callable[[], Awaitable[list[Entry]]],
        *,
        load_group: str = "",
    ) -> list[Entry]:
        """Return the part from the cache or the store. Only callers of the same `load_group` share a load."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        if not self._reads_cache:
            return await read()
        if not all(isinstance(value, int | str | tuple | None) for value in part):
            return await read()  # invalid arguments: the store raises the error
        # Read the record first. Entries that are read later are at least as new, so the next check of the
        # record detects every change that they lack.
        record = await self.get(conversation_id)
        cached = self._cache.get(self._owner, conversation_id, now=self.now())
        if record is None or cached is None or cached.record != record:
            return await read()
        if part in cached.parts:
            self._cache.hits.add()
            return private_copies(cached.parts[part])

        def store(entries: list[Entry]) -> None:
            if _is_complete(part, entries, record):
                self._cache.put_part(self._owner, cached, part, entries)

        key = load_group, *part, record.revision
        entries = await self._cache.load(self._owner, conversation_id, key, read, store)
        return private_copies(entries)

    # Writes: every write invalidates, also a failed one, because its effect is unknown

    async def _write(self, conversation_id: object, write: Awaitable[T]) -> T:
        try:
            return await write
        finally:
            self._invalidate(conversation_id)

    def _invalidate(self, conversation_id: object, appended: Appended | None = None) -> None:
        if not isinstance(conversation_id, str):
            return
        if appended is None:
            self._cache.invalidate(self._owner, _canonical(conversation_id))
        else:
            self._cache.append(self._owner, _canonical(conversation_id), appended)

    async def _write_all(self, write: Awaitable[T]) -> T:
        try:
            return await write
        finally:
            self._cache.invalidate_owner(self._owner)

    async def create(self, conversation: Conversation) -> Conversation:
        return await self._write(conversation.id, self.inner.create(conversation))

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return await self._write(
            conversation_id,
            self.inner.update(conversation_id, changes, expected_revision=expected_revision),
        )

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self._write(
            conversation_id, self.inner.delete(conversation_id, expected_revision=expected_revision)
        )

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return await self._write(fresh.id, self.inner.resume(session_id, fresh, active_since=active_since))

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        write = self.inner.append(conversation_id, messages, expected_revision=expected_revision)
        appended: Appended | None = None
        try:
            with noting_freshness() as freshness:
                appended = await write
        finally:
            # In an outage the record is an assumption until the turn is in the store.
            known = None if freshness.degraded else appended
            self._invalidate(conversation_id, known)
        return appended

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._write(
            conversation_id,
            self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision),
        )

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        return await self._write(
            conversation_id,
            self.inner.replace(conversation_id, message, expected_revision=expected_revision),
        )

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        restoring = self.inner.restore(conversation, entries, expected_revision=expected_revision)
        await self._write(conversation.id, restoring)

    async def purge_expired(self) -> int:
        return await self._write_all(self.inner.purge_expired())

    async def clear(self) -> Tally:
        return await self._write_all(self.inner.clear())

    # Capabilities

    @asynccontextmanager
    async def watch(self, conversation_id: str | None = None) -> AsyncIterator[AsyncIterator[Change]]:
        """Forward the changes; invalidate older entries before each one.

        The cache's own watch may receive a change later than this one. A caller that reads after a change
        must not get entries from before it.
        """
        async with self.inner_capability(Watchable).watch(conversation_id) as changes:
            self._cache.invalidate_owner(self._owner)
            yield self._invalidating(changes)

    async def _invalidating(self, changes: AsyncIterator[Change]) -> AsyncIterator[Change]:
        async for change in changes:
            self._cache.apply_change(self._owner, change)
            yield change


def _is_complete(part: tuple[Any, ...], entries: Sequence[Entry], record: Conversation) -> bool:
    """Whether the log returned as many entries as its record counts.

    It returns fewer while a conversation is restored in parts: the first part sets the final record, so
    neither a check of the record nor a watch detects the later parts.
    """
    kind, limit, where = part
    if kind == "page":
        expected: int = min(limit, max(record.message_count - where, 0))
        return len(entries) == expected
    if where is not None:
        return True  # parts are restored in the order of the log: nothing is missing before an existing entry
    return len(entries) == min(limit, record.message_count) and _includes_last(entries, record)


def _includes_last(entries: Sequence[Entry], record: Conversation) -> bool:
    """Whether the newest message is among the entries.

    Several messages may share its time. The largest sequence number is at least the number of messages.
    """
    if not entries:
        return True
    largest = max(entry.sequence for entry in entries)
    return entries[-1].message.timestamp == record.last_message_at and largest >= record.message_count


def _canonical(conversation_id: str) -> str:
    try:
        return parse_uuid(conversation_id, field="conversation_id")
    except ValueError:
        return conversation_id


# The cached backend.


class CachedBackend(BackendWrapper):
    """A backend whose stores cache their reads."""

    adds = (CopyHolder,)

    def __init__(
        self,
        inner: Backend,
        cache: Cache | None = None,
        *,
        name: str = "store",
        clock: Callable[[], float] = time.monotonic,
        metrics: Telemetry = telemetry,
    ) -> None:
        super().__init__(inner)
        self.options = cache or Cache()
        self.cache = ConversationCache(self.options, clock=clock, metrics=metrics, name=name)
        self.listener = ChangeListener(self.cache)

    async def open(self) -> None:
        self.cache.clear()
        await self.inner.open()

    async def close(self) -> None:
        try:
            await self.listener.close()
        finally:
            self.cache.clear()
            await self.inner.close()

    def of(self, owner: str) -> CachedStore:
        name = parse_name(owner, field="owner")
        inner = self.inner.of(name)
        is_watched = self.options.watch and capability(inner, Watchable) is not None
        return CachedStore(inner, name, self.cache, self.listener if is_watched else None)

    async def purge_expired(self, now: datetime | None = None) -> int:
        try:
            return await self.inner.purge_expired(now)
        finally:
            self.cache.clear()

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Drop cached copies of the conversation, or of the owner's data; see `contracts.CopyHolder`."""
        copies = (
            self.cache.invalidate_owner(owner)
            if conversation_id is None
            else self.cache.invalidate(owner, conversation_id)
        )
        counts = Counter(cached_copies=copies)
        inner = capability(self.inner, CopyHolder)
        if inner is not None:
            counts.update(await inner.remove_copies(owner, conversation_id, until=until))
        return dict(counts)


def cached_store(inner: ConversationStore, cache: Cache, *, name: str) -> CachedStore:
    """Wrap one owner's store, which has no backend, in a cached layer that checks every read."""
    conversations = ConversationCache(cache, clock=time.monotonic, metrics=telemetry, name=name)
    # The owner of a client may change with its login. The check makes that harmless: it reads the record as
    # the owner of that moment.
    return CachedStore(inner, "", conversations, None)


def cached(inner: Backend, cache: Cache | None = None, **options: Any) -> CachedBackend:
    """Wrap a backend in the cached layer."""
    return CachedBackend(inner, cache, **options)
