"""One owner's cached store."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self, TypeVar

from aforesaid.contracts import (
    Appended,
    Change,
    ConversationStore,
    Entry,
    Position,
    Sealable,
    Tally,
    Watchable,
)
from aforesaid.layers._sizes import private_copies
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.cached.listener import ChangeListener
from aforesaid.layers.cached.memory import ConversationCache
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message

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
        self._listener = listener
        """None where every read is checked against the record."""
        self._reads_cache = True

    async def authoritative(self) -> Self:
        view = await super().authoritative()
        view._reads_cache = False
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
            if isinstance(conversation_id, str):
                self._cache.invalidate(self._owner, _canonical(conversation_id))

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
        return await self._write(
            conversation_id,
            self.inner.append(conversation_id, messages, expected_revision=expected_revision),
        )

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

    async def restore(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        await self._write(conversation.id, self.inner.restore(conversation, entries))

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
