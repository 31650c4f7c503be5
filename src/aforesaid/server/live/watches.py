"""A watch: the position of one connection in one feed.

The connection takes the next frame only when it can send it, so unread entries stay in the feed or the store.
The place of the watch advances with the frames it returns.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Self

from msgspec import Raw

from aforesaid.contracts import Entry
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation
from aforesaid.protocol.documents import conversation_document
from aforesaid.protocol.live import Changed, Gone, Lagging, Messages, Place, Reset, Updated
from aforesaid.protocol.live_base import Outgoing
from aforesaid.server.live.diff import place_of
from aforesaid.server.live.feeds import FIRST_READ, MAX_READ, EncodedEntry, Feed, since

IsHeld = Callable[[EncodedEntry], bool]
"""Whether an entry and all later ones must not be sent yet."""

# Maximum entries in one frame.
PAGE = 50
# Approximate maximum bytes of entries in one frame.
PAGE_BYTES = 256 * 1024


class Watch:
    """The position of one connection in one conversation."""

    def __init__(self, feed: Feed, place: Place, *, history: int) -> None:
        self.feed = feed
        self.place = place
        self.is_over = False
        self._history = history
        self._catch_up: _CatchUp | None = None
        self._missed_changes: list[Raw] = []
        self._resets = feed.resets
        self._record_changes = feed.record_changes
        self._changed = feed.changed

    @classmethod
    async def resumed(cls, feed: Feed, place: Place, *, history: int) -> tuple[Self, Conversation]:
        """Return a watch that continues at a place, and the current record."""
        watch = cls(feed, place, history=history)
        if place.sequence > feed.place.sequence:
            await feed.refresh()  # else the feed would miss changes of entries that only the watch has
        record = await feed.store.get(feed.conversation_id)
        if record is None:
            raise ConversationNotFound(feed.conversation_id)
        if not 0 <= record.message_count - place.messages <= MAX_READ:
            watch._catch_up = _CatchUp(place.revision)
            return watch, record
        snapshot, difference = await since(feed.store, feed.conversation_id, place)
        watch._catch_up = _CatchUp(None)
        watch._missed_changes = [entry.body for entry in _encode(difference.changed)]
        if difference.verdict == "reset":
            watch._resets -= 1
        return watch, snapshot.record

    @property
    def conversation_id(self) -> str:
        return self.feed.conversation_id

    @property
    def is_up_to_date(self) -> bool:
        """Whether the watch has delivered everything in the feed."""
        feed = self.feed
        return (
            self.place is feed.place
            and self._changed == feed.changed
            and self._record_changes == feed.record_changes
            and self._resets == feed.resets
            and self._catch_up is None
            and not self._missed_changes
            and not feed.gone
        )

    async def next(self, is_held: IsHeld = lambda _: False) -> Outgoing | None:
        """Return the next frame; None if there is none. Raises `StoreError`.

        `is_held` selects entries that another frame will contain: `answer.done` of a turn in progress.
        """
        if self.is_over or self.is_up_to_date:
            return None
        if self.feed.gone:
            return self._gone()
        if self.feed.resets != self._resets:
            return await self._reset()
        return await self._next_change() or await self.messages(is_held) or await self._next_record()

    async def messages(self, is_held: IsHeld) -> Outgoing | None:
        """Return the next new entries up to the first that is held."""
        if self.place.sequence >= self.feed.place.sequence:
            return None
        buffered = self.feed.buffered_since(self.place.sequence)
        if buffered is None:
            return self._lagging() or await self._from_store(is_held)
        return self._messages_frame(buffered, is_held)

    async def earlier_messages(self, entries: Sequence[EncodedEntry]) -> Outgoing | None:
        """Return the messages to send before these entries can be claimed; None if there are none.

        Entries that the feed no longer buffers are returned as messages themselves.
        """
        due = self._undelivered(entries)
        if not due or self._next_in_line(due) is not None:
            return None
        first, last = due[0].sequence, due[-1].sequence
        return await self.messages(lambda entry: entry.sequence >= first) or await self.messages(
            lambda entry: entry.sequence > last
        )

    def claim(self, entries: Sequence[EncodedEntry]) -> list[EncodedEntry]:
        """Return the undelivered ones of these entries for another frame, and advance the place.

        Returns the feed's version of the entries, because they may have been redacted since they were stored.
        Returns nothing if other entries come first or the feed does not have these; they follow as messages.
        """
        claimed = self._next_in_line(self._undelivered(entries)) or []
        if claimed:
            self._advance(claimed)
        return claimed

    def _undelivered(self, entries: Sequence[EncodedEntry]) -> list[EncodedEntry]:
        return [entry for entry in entries if entry.sequence > self.place.sequence]

    def _next_in_line(self, entries: Sequence[EncodedEntry]) -> list[EncodedEntry] | None:
        """Return the feed's version of these entries; None unless they are exactly the next ones."""
        buffered = (self.feed.buffered_since(self.place.sequence) or [])[: len(entries)]
        wanted = [entry.sequence for entry in entries]
        return buffered if [entry.sequence for entry in buffered] == wanted else None

    # From the feed

    async def _next_change(self) -> Outgoing | None:
        """Return changed entries. They come first and do not move the place: repeating them is harmless."""
        if self._changed == self.feed.changed and not self._missed_changes:
            return None
        if self._changed < self.feed.changed - len(self.feed.changes):
            return await self._reset()
        bodies, self._missed_changes = self._missed_changes, []
        bodies += [
            entry.body
            for number, entry in self.feed.changes
            if number > self._changed and entry.sequence <= self.place.sequence
        ]
        self._changed = self.feed.changed
        if not bodies:
            return None
        return Changed(conversation_id=self.conversation_id, entries=bodies, place=self.place)

    async def _next_record(self) -> Outgoing | None:
        feed, caught_up = self.feed, self._catch_up
        if self.place.sequence < feed.place.sequence:
            return None  # held entries are left
        self._catch_up = None
        if caught_up is not None and caught_up.has_gaps(feed.place.revision):
            return await self._reset()
        if feed.place.revision < self.place.revision or feed.place.sequence < self.place.sequence:
            return None  # the watch is ahead of the feed, which will refresh soon
        self.place = feed.place
        if self._record_changes == feed.record_changes or feed.record is None:
            return None
        self._record_changes = feed.record_changes
        return Updated(conversation=conversation_document(feed.record), place=self.place)

    def _messages_frame(self, entries: Sequence[EncodedEntry], is_held: IsHeld) -> Outgoing | None:
        page = list(_page(takewhile(lambda entry: not is_held(entry), entries)))
        if not page:
            return None
        self._advance(page)
        return Messages(
            conversation_id=self.conversation_id, entries=[entry.body for entry in page], place=self.place
        )

    def _advance(self, entries: Sequence[EncodedEntry]) -> None:
        last = entries[-1]
        if self._catch_up is not None:
            self._catch_up.add(entries)
        place = Place(
            revision=self._revision_after(entries),
            sequence=last.sequence,
            messages=self.place.messages + len(entries),
        )
        self.place = self.feed.place if place == self.feed.place else place

    def _revision_after(self, entries: Sequence[EncodedEntry]) -> int:
        """Return the revision up to which everything was delivered, including changes."""
        here, there = self.place.revision, max(entry.revision for entry in entries)
        is_delivered = self._changed == self.feed.changed and not self._missed_changes
        if is_delivered and (there <= self.feed.place.revision or there == here + 1):
            return max(here, there)
        return here

    # From the store

    def _lagging(self) -> Outgoing | None:
        if self._catch_up is not None:
            return None
        self._catch_up = _CatchUp(None)
        behind = max(0, self.feed.place.messages - self.place.messages)
        return Lagging(conversation_id=self.conversation_id, behind=behind)

    async def _from_store(self, is_held: IsHeld) -> Outgoing | None:
        store = self.feed.store
        # The feed may advance during the reads below. It would not report a change of an entry that is new to
        # it if the change happened after our read, so skip entries that the feed does not have yet.
        known = self.feed.place.sequence
        if self.feed.place.messages - self.place.messages > MAX_READ:
            # In a log without reordering, the next entries are at the offset of the message count.
            entries = await store.page(self.conversation_id, limit=PAGE, offset=self.place.messages)
            in_order = self._is_in_order(entries) and self._messages_frame(
                _encode(entries, up_to=known), is_held
            )
            return in_order or await self._reset()
        try:
            _, difference = await since(store, self.conversation_id, self.place)
        except ConversationNotFound:
            self.feed.mark_gone()
            return self._gone()
        if difference.verdict == "reset":
            return await self._reset()
        return self._messages_frame(_encode(difference.new, up_to=known), is_held)

    def _is_in_order(self, entries: Sequence[Entry]) -> bool:
        after = self.place.sequence
        for entry in entries:
            if entry.sequence <= after or entry.revision < self.place.revision:
                return False
            after = entry.sequence
        return True

    async def _reset(self) -> Outgoing:
        feed = self.feed
        try:
            snapshot = await feed.current(limit=max(self._history, FIRST_READ))
        except ConversationNotFound:
            return self._gone()
        self._resets, self._record_changes, self._changed = feed.resets, feed.record_changes, feed.changed
        self._catch_up, self._missed_changes = None, []
        self.place = place_of(snapshot.record, snapshot.entries)
        return Reset(
            conversation=conversation_document(snapshot.record),
            entries=snapshot.latest(self._history),
            place=self.place,
        )

    def _gone(self) -> Gone:
        self.is_over = True
        return Gone(conversation_id=self.conversation_id)


class _CatchUp:
    """The revisions that a watch delivers while it catches up, to detect missed changes."""

    def __init__(self, revision: int | None) -> None:
        # The revision at the start, if the entries must explain all steps since; else None.
        self._revision = revision
        self._seen: set[int] = set()

    def add(self, entries: Iterable[EncodedEntry]) -> None:
        if self._revision is not None:
            self._seen.update(entry.revision for entry in entries)

    def has_gaps(self, revision: int) -> bool:
        return self._revision is not None and revision - self._revision > len(self._seen - {self._revision})


def _encode(entries: Sequence[Entry], *, up_to: float = math.inf) -> list[EncodedEntry]:
    return [EncodedEntry(entry) for entry in entries if entry.sequence <= up_to]


def _page(entries: Iterable[EncodedEntry]) -> Iterator[EncodedEntry]:
    size = 0
    for count, entry in enumerate(entries):
        size += entry.size
        if count and (count >= PAGE or size > PAGE_BYTES):
            return
        yield entry
