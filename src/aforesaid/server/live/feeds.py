"""Feeds: what happens in the conversations that somebody watches here. Below: places, stores.

There is one feed for each watched conversation, however many watch it. It knows where the conversation
stands, and keeps its latest entries, encoded, for watchers to take from; one that reads too slowly
finds them gone and reads from the store. Nothing is ever queued for a watcher.

A feed looks at the store when there is a reason: this process stored a turn, the store told of a change
(`Watchable`), or some time has passed.
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

from aforesaid._internal.deadlines import ended
from aforesaid.contracts import Appended, ConversationStore, Entry, Watchable
from aforesaid.errors import AforesaidError, ConversationNotFound
from aforesaid.model.conversations import Conversation
from aforesaid.protocol.live import Place, write_entry
from aforesaid.server.live.diff import Difference, difference, place_of, same_metadata
from aforesaid.server.live.limits import LiveLimits
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.server.live")

KEPT = 256
"""Entries that a feed keeps for its watchers."""
KEPT_BYTES = 1024 * 1024
"""And at most so much of them."""
AROUND = 256
"""What stands around a message's words in an entry, about."""
FIRST_LOOK = 16
FURTHEST_LOOK = 512
"""Entries at the end of a log that are looked through for what has changed."""
READ_AGAIN = 3
"""How often a record and its log are read again because a write came between the two reads."""
LOOKS_PER_SECOND = 400
"""Looks at the store for all feeds together, where it cannot tell of changes."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts to watch a store again."""

Wake = Callable[[], None]


class Piece:
    """An entry as it is sent: encoded when somebody is told of it first, and for everybody who is."""

    __slots__ = ("_body", "_entry", "message_id", "revision", "sequence", "size")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._body: msgspec.Raw | None = None
        self.sequence = entry.sequence
        self.revision = entry.revision
        self.message_id = entry.message.message_id or ""
        content = entry.message.content
        self.size = AROUND + (len(content) if type(content) is str else len(bytes(self.body)))

    @property
    def body(self) -> msgspec.Raw:
        if self._body is None:
            self._body = msgspec.Raw(write_entry(self._entry))
        return self._body


class Snapshot(NamedTuple):
    """A conversation as it is now: its record and the end of its log."""

    record: Conversation
    entries: list[Entry]
    whole: bool
    """Whether the entries are the whole log."""
    outdated: bool
    """Whether a write came between the reads: the log has entries that the record does not know of."""

    def shown(self, history: int) -> list[msgspec.Raw]:
        """The last entries, as they are sent."""
        return [msgspec.Raw(write_entry(e)) for e in self.entries[-history:]] if history else []


async def snapshot(store: ConversationStore, conversation_id: str, *, limit: int) -> Snapshot:
    """The record, and the last entries that it knows of. Raises `ConversationNotFound`."""
    record = await store.get(conversation_id)
    if record is None:
        raise ConversationNotFound(conversation_id)
    found = await store.tail(conversation_id, limit=limit) if limit and record.message_count else []
    known = [entry for entry in found if entry.revision <= record.revision]
    # A turn that another task stores between the two reads pushes older entries out of the tail. Only entries
    # that the record knows of count: enough of them, and none is missing.
    whole = len(found) < limit or len(known) >= record.message_count
    return Snapshot(record, known, whole=whole, outdated=len(known) < len(found))


async def since(
    store: ConversationStore,
    conversation_id: str,
    place: Place,
    *,
    before: Conversation | None = None,
    limit: int = FIRST_LOOK,
) -> tuple[Snapshot, Difference]:
    """What happened since a place. Looks so far back at first, then as far as it has to, within a bound."""
    attempts = READ_AGAIN
    while True:
        seen = await snapshot(store, conversation_id, limit=limit)
        describe = difference(place, seen.record, seen.entries, whole=seen.whole, before=before)
        if describe.doubt == "start over" and seen.outdated and attempts:
            attempts -= 1
            continue
        if describe.doubt != "look further back":
            return seen, describe
        missing = seen.record.message_count - place.messages
        if limit >= max(FURTHEST_LOOK, missing + FURTHEST_LOOK):
            return seen, describe._replace(doubt="start over")
        limit = max(limit * 4, missing + FIRST_LOOK)


class Feed:
    """One watched conversation."""

    def __init__(self, store: ConversationStore, conversation_id: str) -> None:
        self.store = store
        self.conversation_id = conversation_id
        self._record: Conversation | Appended | None = None
        self.place = Place(revision=0, sequence=0, messages=0)
        self.gone = False
        self.starts_over = 0
        """How often the log has become another one."""
        self.recorded = 0
        """How often the record alone has changed."""
        self.changes: deque[tuple[int, Piece]] = deque(maxlen=KEPT)
        """Entries that were changed in their places, numbered."""
        self.changed = 0
        self._kept: deque[Piece] = deque()
        self._kept_bytes = 0
        self.seen_at = -math.inf
        """When it was last known that this is where the conversation stands."""
        self._wakes: set[Wake] = set()
        self._looking = asyncio.Lock()

    @property
    def record(self) -> Conversation | None:
        """The record as it was at the place. After a turn that was stored here, made when it is asked for."""
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

    def kept_since(self, sequence: int) -> list[Piece] | None:
        """The entries behind a sequence; None where some of them are kept no more."""
        if sequence >= self.place.sequence:
            return []
        if not self._kept or self._kept[0].sequence > sequence + 1:
            return None
        behind = list(takewhile(lambda piece: piece.sequence > sequence, reversed(self._kept)))
        behind.reverse()
        return behind

    # What is new

    async def start(self) -> None:
        """Find out where the conversation stands. Raises `ConversationNotFound`."""
        async with self._looking:
            if self._record is None:
                seen = await snapshot(self.store, self.conversation_id, limit=FIRST_LOOK)
                self._record, self.place = seen.record, place_of(seen.record, seen.entries)
                self.seen_at = time.monotonic()

    async def look(self) -> None:
        """See whether something happened."""
        async with self._looking:
            if self._record is None or self.gone or not await self._has_moved():
                return
            try:
                seen, describe = await since(self.store, self.conversation_id, self.place, before=self.record)
            except ConversationNotFound:
                self.gone = True
            except BaseException:
                self.seen_at = -math.inf  # it has moved, and polling must not wait to find out where
                raise
            else:
                self._move(seen, describe)
        self._wake()

    def vanish(self) -> None:
        """Tell all watchers that the conversation is gone."""
        self.gone = True
        self._wake()

    async def shown(self, *, limit: int) -> Snapshot:
        """The conversation as it is now, with the feed at the same place. Raises `ConversationNotFound`.

        Whoever is shown more than the feed has seen would not be told when it changes: to the feed it is new.
        """
        async with self._looking:
            found = since(self.store, self.conversation_id, self.place, before=self.record, limit=limit)
            try:
                seen, describe = await found
            except ConversationNotFound:
                self.vanish()
                raise
            self._move(seen, describe)
            self.seen_at = time.monotonic()
        self._wake()
        return seen

    async def _has_moved(self) -> bool:
        record = await self.store.get(self.conversation_id)
        self.seen_at = time.monotonic()
        return record is None or record.revision != self.place.revision

    def stored(self, appended: Appended, pieces: Sequence[Piece]) -> bool:
        """This process stored a turn: where it follows on what is known, nobody has to look."""
        if self._record is None or self._looking.locked() or not pieces:
            return False
        first, last = pieces[0], pieces[-1]
        if first.revision != self.place.revision + 1 or first.sequence <= self.place.sequence:
            return False
        self._keep(pieces)
        self._record = appended
        self.place = Place(
            revision=last.revision, sequence=last.sequence, messages=self.place.messages + len(pieces)
        )
        self.seen_at = time.monotonic()
        self._wake()
        return True

    def _move(self, seen: Snapshot, describe: Difference) -> None:
        assert self.record is not None
        if describe.doubt == "start over":
            self._drop()
            self.starts_over += 1
            self.place = place_of(seen.record, seen.entries)
        else:
            self._keep([Piece(entry) for entry in describe.new])
            self._exchange([Piece(entry) for entry in describe.changed])
            self.recorded += not same_metadata(self.record, seen.record, new=len(describe.new))
            self.place = place_of(seen.record, describe.new, sequence=self.place.sequence)
        self._record = seen.record

    def _keep(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._kept.append(piece)
            self._kept_bytes += piece.size
        while len(self._kept) > KEPT or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= self._kept.popleft().size

    def _exchange(self, pieces: Sequence[Piece]) -> None:
        """Note what says something else now, also among what is kept: words that were taken out stay out."""
        for piece in pieces:
            self.changed += 1
            self.changes.append((self.changed, piece))
        now = {piece.sequence: piece for piece in pieces}
        if not now.keys().isdisjoint(piece.sequence for piece in self._kept):
            self._kept = deque(now.get(piece.sequence, piece) for piece in self._kept)
            self._kept_bytes = sum(piece.size for piece in self._kept)

    def _drop(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


class Feeds:
    """All feeds of this process, and what makes them look."""

    def __init__(self, limits: LiveLimits) -> None:
        self._limits = limits
        self._feeds: dict[tuple[str, str], Feed] = {}
        self._owners: Counter[str] = Counter()
        """How many feeds each owner has."""
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()
        """Owners whose store tells of changes right now."""
        self._polling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._feeds)

    async def join(self, owner: str, store: ConversationStore, conversation_id: str, wake: Wake) -> Feed:
        """The conversation's feed, which calls `wake` when something happened. Raises `NotFound`."""
        feed = self._feeds.get((owner, conversation_id))
        if feed is None or feed.gone:
            self._owners[owner] += feed is None
            feed = self._feeds[owner, conversation_id] = Feed(store, conversation_id)
        feed.join(wake)
        self._listen(owner, store)
        try:
            await feed.start()
        except BaseException:
            self.leave(owner, feed, wake)
            raise
        return feed

    def leave(self, owner: str, feed: Feed, wake: Wake) -> None:
        feed.leave(wake)
        if feed.is_watched or self._feeds.get((owner, feed.conversation_id)) is not feed:
            return
        del self._feeds[owner, feed.conversation_id]
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
            self._told.discard(owner)
            if owner in self._watching:
                self._watching.pop(owner).cancel()

    async def stored(
        self, owner: str, conversation_id: str, appended: Appended, pieces: Sequence[Piece]
    ) -> None:
        """A turn was stored here; the pieces are its new entries."""
        feed = self._feeds.get((owner, conversation_id))
        if feed is not None and not feed.stored(appended, pieces):
            await _look([feed])

    async def look(self, owner: str, conversation_id: str) -> None:
        """Something may have happened in this conversation."""
        feed = self._feeds.get((owner, conversation_id))
        if feed is not None:
            await _look([feed])

    async def close(self) -> None:
        tasks = [*self._watching.values(), *([self._polling] if self._polling else [])]
        self._watching, self._polling = {}, None
        self._feeds.clear()
        self._owners.clear()
        await ended(*tasks)

    # Reasons to look

    def _listen(self, owner: str, store: ConversationStore) -> None:
        if isinstance(store, Watchable) and owner not in self._watching:
            watching = self._watch(owner, store)
            self._watching[owner] = asyncio.create_task(watching, name="aforesaid-live-watch")
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="aforesaid-live-poll")

    def _of(self, owner: str) -> list[Feed]:
        return [feed for (each, _), feed in self._feeds.items() if each == owner]

    async def _watch(self, owner: str, store: Watchable) -> None:
        """Look where the store says that something changed; while it cannot say, polling goes on."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with store.watch() as changes:
                    self._told.add(owner)
                    pause = FIRST_PAUSE
                    await _look(self._of(owner))  # what changed before this began
                    async for change in changes:
                        await self.look(owner, change.conversation_id)
            except AforesaidError as error:
                log.warning("a watch broke and is taken up again in %.1f s: %s", pause, describe(error))
            except Exception:  # the supervisor: without this task the owner's feeds would be polled rarely
                log.exception("a watch failed and is taken up again in %.1f s", pause)
            self._told.discard(owner)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _poll(self) -> None:
        """Look at every feed now and then, at a bounded rate."""
        while True:
            now = time.monotonic()
            due = [feed for (owner, _), feed in self._feeds.items() if self._is_due(owner, feed, now)]
            for start in range(0, len(due), _AT_ONCE):
                await _look(due[start : start + _AT_ONCE])
                await asyncio.sleep(_AT_ONCE / LOOKS_PER_SECOND)
            await asyncio.sleep(self._limits.poll_seconds)

    def _is_due(self, owner: str, feed: Feed, now: float) -> bool:
        """A turn that was stored here is as good as a look: where turns come fast, nobody has to look."""
        is_told = owner in self._told
        fresh = self._limits.told_poll_seconds if is_told else self._limits.poll_seconds / 2
        return now - feed.seen_at >= fresh


_AT_ONCE = 16


async def _look(feeds: Sequence[Feed]) -> None:
    """Look at several. One that cannot be read now is looked at again later.

    An error of one feed ends neither the polling of the others nor the turn that was just stored.
    """
    for outcome in await asyncio.gather(*(feed.look() for feed in feeds), return_exceptions=True):
        if isinstance(outcome, AforesaidError):
            log.warning("a watched conversation cannot be looked at: %s", outcome)
        elif isinstance(outcome, BaseException):
            log.error("a watched conversation cannot be looked at", exc_info=outcome)
