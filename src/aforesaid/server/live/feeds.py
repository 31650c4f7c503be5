"""Feeds: changes of watched conversations.

Each watched conversation has one feed, shared by its watchers. The feed buffers the latest encoded entries. A
watcher that reads too slowly reads from the store instead, so nothing is queued per watcher.

A feed refreshes when this process stores a turn, when the store reports a change (`Watchable`), and when
polled.
"""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from aforesaid._internal.tasks import ended, start_background
from aforesaid.contracts import Appended, ConversationStore, Entry, Watchable, capability
from aforesaid.errors import AforesaidError, ConversationNotFound
from aforesaid.model.conversations import Conversation
from aforesaid.protocol.documents import write_entry
from aforesaid.protocol.live import Place
from aforesaid.server.limits import LiveLimits
from aforesaid.server.live.diff import Difference, difference, known_to, place_of, same_metadata
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server.live")

# Maximum entries in the buffer of a feed.
BUFFER_ENTRIES = 256
# Maximum bytes in the buffer of a feed.
BUFFER_BYTES = 1024 * 1024
# Approximate bytes of an encoded entry besides its text.
ENTRY_OVERHEAD = 256
FIRST_READ = 16
# Maximum entries to read for finding changes.
MAX_READ = 512
# Retries after a write between reading a record and its log.
READ_RETRIES = 3
# Maximum polls of the store by all feeds together.
POLLS_PER_SECOND = 400
# Seconds between attempts to restart a watch.
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0

Wake = Callable[[], None]


class EncodedEntry:
    """An entry that is encoded once, on first use, for all watchers."""

    __slots__ = ("_body", "_entry", "message_id", "revision", "sequence", "size")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._body: msgspec.Raw | None = None
        self.sequence = entry.sequence
        self.revision = entry.revision
        self.message_id = entry.message.message_id or ""
        content = entry.message.content
        # Encoding only to learn the size would cost every entry, watched or not; plain text is measured by
        # length.
        self.size = ENTRY_OVERHEAD + (len(content) if type(content) is str else len(bytes(self.body)))

    @property
    def body(self) -> msgspec.Raw:
        if self._body is None:
            self._body = msgspec.Raw(write_entry(self._entry))
        return self._body


class Snapshot(NamedTuple):
    """The record of a conversation and the end of its log."""

    record: Conversation
    entries: list[Entry]
    whole: bool
    """Whether the entries are the whole log."""
    outdated: bool
    """Whether a write happened between the reads, so the log has newer entries than the record."""

    def latest(self, history: int) -> list[msgspec.Raw]:
        """Return the latest entries, encoded."""
        return [msgspec.Raw(write_entry(e)) for e in self.entries[-history:]] if history else []


async def snapshot(store: ConversationStore, conversation_id: str, *, limit: int) -> Snapshot:
    """Return the record and its last entries. Raises `ConversationNotFound`."""
    record = await store.get(conversation_id)
    if record is None:
        raise ConversationNotFound(conversation_id)
    found = await store.tail(conversation_id, limit=limit) if limit and record.message_count else []
    known = known_to(record, found)
    # A turn stored between the two reads pushes older entries out of the tail. Only entries up to the
    # record's revision count.
    whole = len(found) < limit or len(known) >= record.message_count
    return Snapshot(record, known, whole=whole, outdated=len(known) < len(found))


async def since(
    store: ConversationStore,
    conversation_id: str,
    place: Place,
    *,
    before: Conversation | None = None,
    limit: int = FIRST_READ,
) -> tuple[Snapshot, Difference]:
    """Return the difference since a place. Reads further back as far as needed, within a bound."""
    attempts = READ_RETRIES
    while True:
        found = await snapshot(store, conversation_id, limit=limit)
        change = difference(place, found.record, found.entries, whole=found.whole, before=before)
        if change.verdict == "reset" and found.outdated and attempts:
            attempts -= 1
            continue
        if change.verdict != "read more":
            return found, change
        missing = found.record.message_count - place.messages
        if limit >= max(MAX_READ, missing + MAX_READ):
            return found, change._replace(verdict="reset")
        limit = max(limit * 4, missing + FIRST_READ)


class Feed:
    """The feed of one conversation."""

    def __init__(self, store: ConversationStore, conversation_id: str) -> None:
        self.store = store
        self.conversation_id = conversation_id
        self._record: Conversation | Appended | None = None
        self.place = Place(revision=0, sequence=0, messages=0)
        self.gone = False
        # Number of times the log was cleared or rewritten.
        self.resets = 0
        # Number of changes of the metadata.
        self.record_changes = 0
        # Changed entries, numbered by `changed`.
        self.changes: deque[tuple[int, EncodedEntry]] = deque(maxlen=BUFFER_ENTRIES)
        self.changed = 0
        self._buffer: deque[EncodedEntry] = deque()
        self._buffer_bytes = 0
        # When `place` was last known to be current.
        self.checked_at = -math.inf
        self._wakes: set[Wake] = set()
        self._refresh_lock = asyncio.Lock()

    @property
    def record(self) -> Conversation | None:
        """The record at the place. Computed on demand after a turn of this process."""
        if isinstance(self._record, Appended):
            self._record = self._record.conversation
        return self._record

    # Watchers

    def join(self, wake: Wake) -> None:
        self._wakes.add(wake)

    def leave(self, wake: Wake) -> None:
        self._wakes.discard(wake)

    @property
    def is_watched(self) -> bool:
        return bool(self._wakes)

    def buffered_since(self, sequence: int) -> list[EncodedEntry] | None:
        """Return the buffered entries after a sequence; None if some are no longer buffered."""
        if sequence >= self.place.sequence:
            return []
        if not self._buffer or self._buffer[0].sequence > sequence + 1:
            return None
        behind = list(takewhile(lambda entry: entry.sequence > sequence, reversed(self._buffer)))
        behind.reverse()
        return behind

    # Changes

    async def start(self) -> None:
        """Read the current state. Raises `ConversationNotFound`."""
        async with self._refresh_lock:
            if self._record is None:
                found = await snapshot(self.store, self.conversation_id, limit=FIRST_READ)
                self._record, self.place = found.record, place_of(found.record, found.entries)
                self.checked_at = time.monotonic()

    async def refresh(self) -> None:
        """Read changes from the store, if there are any."""
        async with self._refresh_lock:
            if self._record is None or self.gone or not await self._has_changed():
                return
            try:
                found, change = await since(self.store, self.conversation_id, self.place, before=self.record)
            except ConversationNotFound:
                self.gone = True
            except BaseException:
                self.checked_at = -math.inf  # the change is not read yet: poll at once
                raise
            else:
                self._apply(found, change)
        self._wake()

    def mark_gone(self) -> None:
        """Mark the conversation as deleted and wake all watchers."""
        self.gone = True
        self._wake()

    async def current(self, *, limit: int) -> Snapshot:
        """Return the current state and move the feed to it. Raises `ConversationNotFound`.

        A watcher must not be ahead of the feed: the feed would report later changes of those entries as new.
        """
        async with self._refresh_lock:
            reading = since(self.store, self.conversation_id, self.place, before=self.record, limit=limit)
            try:
                found, change = await reading
            except ConversationNotFound:
                self.mark_gone()
                raise
            self._apply(found, change)
            self.checked_at = time.monotonic()
        self._wake()
        return found

    async def _has_changed(self) -> bool:
        record = await self.store.get(self.conversation_id)
        self.checked_at = time.monotonic()
        return record is None or record.revision != self.place.revision

    def stored(self, appended: Appended, entries: Sequence[EncodedEntry]) -> bool:
        """Add a turn of this process. Return False if it does not follow the place directly."""
        if self._record is None or self._refresh_lock.locked() or not entries:
            return False
        first, last = entries[0], entries[-1]
        # Only a turn that directly follows the place can be added without reading the store.
        if first.revision != self.place.revision + 1 or first.sequence <= self.place.sequence:
            return False
        self._add_to_buffer(entries)
        self._record = appended
        self.place = Place(
            revision=last.revision, sequence=last.sequence, messages=self.place.messages + len(entries)
        )
        self.checked_at = time.monotonic()
        self._wake()
        return True

    def _apply(self, found: Snapshot, change: Difference) -> None:
        assert self.record is not None
        if change.verdict == "reset":
            self._clear_buffer()
            self.resets += 1
            self.place = place_of(found.record, found.entries)
        else:
            self._add_to_buffer([EncodedEntry(entry) for entry in change.new])
            self._replace([EncodedEntry(entry) for entry in change.changed])
            self.record_changes += not same_metadata(self.record, found.record, new=len(change.new))
            self.place = place_of(found.record, change.new, sequence=self.place.sequence)
        self._record = found.record

    def _add_to_buffer(self, entries: Iterable[EncodedEntry]) -> None:
        for entry in entries:
            self._buffer.append(entry)
            self._buffer_bytes += entry.size
        while len(self._buffer) > BUFFER_ENTRIES or (
            self._buffer_bytes > BUFFER_BYTES and len(self._buffer) > 1
        ):
            self._buffer_bytes -= self._buffer.popleft().size

    def _replace(self, entries: Sequence[EncodedEntry]) -> None:
        """Record changed entries and replace them in the buffer, so that redacted text is gone."""
        for entry in entries:
            self.changed += 1
            self.changes.append((self.changed, entry))
        now = {entry.sequence: entry for entry in entries}
        if not now.keys().isdisjoint(entry.sequence for entry in self._buffer):
            self._buffer = deque(now.get(entry.sequence, entry) for entry in self._buffer)
            self._buffer_bytes = sum(entry.size for entry in self._buffer)

    def _clear_buffer(self) -> None:
        self._buffer.clear()
        self._buffer_bytes = 0

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


class FeedScope(NamedTuple):
    """Whose view of a conversation a feed has: the owner's, or that of one participant."""

    owner: str
    participant: str | None = None


class Feeds:
    """All feeds of this process and their background tasks."""

    def __init__(self, limits: LiveLimits) -> None:
        self._limits = limits
        self._feeds: dict[tuple[FeedScope, str], Feed] = {}
        # Number of feeds by owner and scope.
        self._scopes: dict[str, Counter[FeedScope]] = {}
        self._watching: dict[FeedScope, asyncio.Task[None]] = {}
        # Scopes whose store currently reports changes.
        self._reported: set[FeedScope] = set()
        self._polling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._feeds)

    async def join(
        self, scope: FeedScope, store: ConversationStore, conversation_id: str, wake: Wake
    ) -> Feed:
        """Join the feed of a conversation, which calls `wake` on changes. Raises `NotFound`."""
        feed = self._feeds.get((scope, conversation_id))
        if feed is None or feed.gone:
            self._scopes.setdefault(scope.owner, Counter())[scope] += feed is None
            # A conversation that was deleted and created again under its id gets a new feed.
            feed = self._feeds[scope, conversation_id] = Feed(store, conversation_id)
        feed.join(wake)
        self._listen(scope, store)
        try:
            await feed.start()
        except BaseException:
            self.leave(scope, feed, wake)
            raise
        return feed

    def leave(self, scope: FeedScope, feed: Feed, wake: Wake) -> None:
        feed.leave(wake)
        if feed.is_watched or self._feeds.get((scope, feed.conversation_id)) is not feed:
            return
        del self._feeds[scope, feed.conversation_id]
        scopes = self._scopes[scope.owner]
        scopes[scope] -= 1
        if not scopes[scope]:
            del scopes[scope]
            self._reported.discard(scope)
            if scope in self._watching:
                self._watching.pop(scope).cancel()
        if not scopes:
            del self._scopes[scope.owner]

    async def stored(
        self, owner: str, conversation_id: str, appended: Appended, entries: Sequence[EncodedEntry]
    ) -> None:
        """Publish a turn that this process stored."""
        # A participant may not see the turn: their feeds read it from the store.
        behind = [
            feed
            for scope, feed in self._feeds_of(owner, conversation_id)
            if scope.participant is not None or not feed.stored(appended, entries)
        ]
        if behind:
            await _refresh_all(behind)

    async def refresh(self, owner: str, conversation_id: str) -> None:
        """Refresh the feeds of a conversation."""
        await _refresh_all([feed for _, feed in self._feeds_of(owner, conversation_id)])

    def _feeds_of(self, owner: str, conversation_id: str) -> list[tuple[FeedScope, Feed]]:
        scopes = self._scopes.get(owner, ())
        found = [(scope, self._feeds.get((scope, conversation_id))) for scope in scopes]
        return [(scope, feed) for scope, feed in found if feed is not None]

    async def close(self) -> None:
        tasks = [*self._watching.values(), *([self._polling] if self._polling else [])]
        self._watching, self._polling = {}, None
        self._feeds.clear()
        self._scopes.clear()
        await ended(*tasks)

    # Background tasks

    def _listen(self, scope: FeedScope, store: ConversationStore) -> None:
        watchable = capability(store, Watchable)
        if watchable is not None and scope not in self._watching:
            watching = self._watch(scope, watchable)
            self._watching[scope] = start_background(watching, name="aforesaid-live-watch")
        if self._polling is None:
            self._polling = start_background(self._poll(), name="aforesaid-live-poll")

    def _of(self, scope: FeedScope) -> list[Feed]:
        return [feed for (each, _), feed in self._feeds.items() if each == scope]

    async def _watch(self, scope: FeedScope, store: Watchable) -> None:
        """Refresh feeds that the store reports as changed. Polling covers failures."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with store.watch() as changes:
                    self._reported.add(scope)
                    pause = FIRST_PAUSE
                    await _refresh_all(self._of(scope))  # changes before the watch started
                    async for change in changes:
                        feed = self._feeds.get((scope, change.conversation_id))
                        await _refresh_all([] if feed is None else [feed])
            except AforesaidError as error:
                log.warning("a watch failed; retrying in %.1f s: %s", pause, describe(error))
            except Exception:  # without this task, the owner's feeds would be polled rarely
                log.exception("a watch failed; retrying in %.1f s", pause)
            self._reported.discard(scope)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)

    async def _poll(self) -> None:
        """Poll all feeds at a bounded rate."""
        while True:
            now = time.monotonic()
            due = [feed for (scope, _), feed in self._feeds.items() if self._is_due(scope, feed, now)]
            for start in range(0, len(due), _POLL_BATCH):
                await _refresh_all(due[start : start + _POLL_BATCH])
                await asyncio.sleep(_POLL_BATCH / POLLS_PER_SECOND)
            await asyncio.sleep(self._limits.poll_seconds)

    def _is_due(self, scope: FeedScope, feed: Feed, now: float) -> bool:
        """Return whether a feed must be polled. A turn stored by this process counts as a poll."""
        is_reported = scope in self._reported
        fresh = self._limits.watched_poll_seconds if is_reported else self._limits.poll_seconds / 2
        return now - feed.checked_at >= fresh


_POLL_BATCH = 16


async def _refresh_all(feeds: Sequence[Feed]) -> None:
    """Look at several. One that cannot be read now is looked at again later.

    An error of one feed ends neither the polling of the others nor the turn that was just stored.
    """
    for outcome in await asyncio.gather(*(feed.refresh() for feed in feeds), return_exceptions=True):
        if isinstance(outcome, AforesaidError):
            log.warning("a watched conversation cannot be read: %s", outcome)
        elif isinstance(outcome, BaseException):
            log.error("a watched conversation cannot be read", exc_info=outcome)
