"""A watch: one connection's reading of one feed. Below: feeds, places. Above: the connection.

A watch is asked for its next frame when the connection has room to send one, and never before: what a
slow reader has not taken stays in the feed, or in the store. Its place moves with what it hands out.
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
from aforesaid.protocol.live import Changed, Gone, Lagging, Messages, Outgoing, Place, Reset, Updated
from aforesaid.server.live.diff import place_of
from aforesaid.server.live.feeds import FIRST_LOOK, FURTHEST_LOOK, Feed, Piece, since

Held = Callable[[Piece], bool]
"""Whether an entry, and with it all that follow, must not be sent yet."""

PAGE = 50
"""Entries in one frame at most."""
PAGE_BYTES = 256 * 1024
"""And about so much of them."""


class Watch:
    """Where one connection stands in one conversation."""

    def __init__(self, feed: Feed, place: Place, *, history: int) -> None:
        self.feed = feed
        self.place = place
        self.is_over = False
        self._history = history
        self._catching_up: _CatchingUp | None = None
        self._missed_changes: list[Raw] = []
        self._starts_over = feed.starts_over
        self._recorded = feed.recorded
        self._changed = feed.changed

    @classmethod
    async def resumed(cls, feed: Feed, place: Place, *, history: int) -> tuple[Self, Conversation]:
        """A watch that goes on where somebody stood, and the record as it is now."""
        watch = cls(feed, place, history=history)
        if place.sequence > feed.place.sequence:
            await feed.look()  # a change of what the watch has and the feed does not would be nobody's
        record = await feed.store.get(feed.conversation_id)
        if record is None:
            raise ConversationNotFound(feed.conversation_id)
        if not 0 <= record.message_count - place.messages <= FURTHEST_LOOK:
            watch._catching_up = _CatchingUp(place.revision)
            return watch, record
        seen, describe = await since(feed.store, feed.conversation_id, place)
        watch._catching_up = _CatchingUp(None)
        watch._missed_changes = [piece.body for piece in _pieces(describe.changed)]
        if describe.doubt == "start over":
            watch._starts_over -= 1
        return watch, seen.record

    @property
    def conversation_id(self) -> str:
        return self.feed.conversation_id

    @property
    def is_level(self) -> bool:
        """Whether all is told: the watch stands where the feed does, and nothing else has happened."""
        feed = self.feed
        return (
            self.place is feed.place
            and self._changed == feed.changed
            and self._recorded == feed.recorded
            and self._starts_over == feed.starts_over
            and self._catching_up is None
            and not self._missed_changes
            and not feed.gone
        )

    async def next(self, held: Held = lambda _: False) -> Outgoing | None:
        """What to tell next; None when all is told. Raises `StoreError`.

        `held` knows messages that will be told in another frame: those of a turn whose end is near.
        """
        if self.is_over or self.is_level:
            return None
        if self.feed.gone:
            return self._gone()
        if self.feed.starts_over != self._starts_over:
            return await self._reset()
        return await self._next_change() or await self.messages(held) or await self._next_record()

    async def messages(self, held: Held) -> Outgoing | None:
        """The next new messages, up to the first that is held."""
        if self.place.sequence >= self.feed.place.sequence:
            return None
        kept = self.feed.kept_since(self.place.sequence)
        if kept is None:
            return self._lagging() or await self._from_store(held)
        return self._told(kept, held)

    async def before(self, pieces: Sequence[Piece]) -> Outgoing | None:
        """Get the messages to send before these entries can be claimed; None when there are none.

        Where the feed keeps the entries no more, they come as messages themselves.
        """
        due = self._undelivered(pieces)
        if not due or self._next_in_line(due) is not None:
            return None
        first, last = due[0].sequence, due[-1].sequence
        return await self.messages(lambda piece: piece.sequence >= first) or await self.messages(
            lambda piece: piece.sequence > last
        )

    def claim(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Take those of these entries that were not sent yet, in order to send them in another frame.

        The feed has the entries as they are now, the caller as they were stored: they may have been redacted
        since. Takes nothing where other entries come first, or where the feed does not have these: they come
        as messages then.
        """
        claimed = self._next_in_line(self._undelivered(pieces)) or []
        if claimed:
            self._stands_behind(claimed)
        return claimed

    def _undelivered(self, pieces: Sequence[Piece]) -> list[Piece]:
        return [piece for piece in pieces if piece.sequence > self.place.sequence]

    def _next_in_line(self, pieces: Sequence[Piece]) -> list[Piece] | None:
        """Return the feed's version of these entries; None unless they are exactly the next ones."""
        kept = (self.feed.kept_since(self.place.sequence) or [])[: len(pieces)]
        wanted = [piece.sequence for piece in pieces]
        return kept if [piece.sequence for piece in kept] == wanted else None

    # What there is

    async def _next_change(self) -> Outgoing | None:
        """Changes come first, and leave the place as it is: told twice, they do no harm; missed, they do."""
        if self._changed == self.feed.changed and not self._missed_changes:
            return None
        if self._changed < self.feed.changed - len(self.feed.changes):
            return await self._reset()
        bodies, self._missed_changes = self._missed_changes, []
        bodies += [
            piece.body
            for number, piece in self.feed.changes
            if number > self._changed and piece.sequence <= self.place.sequence
        ]
        self._changed = self.feed.changed
        if not bodies:
            return None
        return Changed(conversation_id=self.conversation_id, entries=bodies, place=self.place)

    async def _next_record(self) -> Outgoing | None:
        feed, caught_up = self.feed, self._catching_up
        if self.place.sequence < feed.place.sequence:
            return None  # the rest is held
        self._catching_up = None
        if caught_up is not None and caught_up.leaves_doubt(feed.place.revision):
            return await self._reset()
        if feed.place.revision < self.place.revision or feed.place.sequence < self.place.sequence:
            return None  # the watch knows more than the feed, which will look soon
        self.place = feed.place
        if self._recorded == feed.recorded or feed.record is None:
            return None
        self._recorded = feed.recorded
        return Updated(conversation=conversation_document(feed.record), place=self.place)

    def _told(self, pieces: Sequence[Piece], held: Held) -> Outgoing | None:
        page = list(_page(takewhile(lambda piece: not held(piece), pieces)))
        if not page:
            return None
        self._stands_behind(page)
        return Messages(
            conversation_id=self.conversation_id, entries=[piece.body for piece in page], place=self.place
        )

    def _stands_behind(self, pieces: Sequence[Piece]) -> None:
        last = pieces[-1]
        if self._catching_up is not None:
            self._catching_up.saw(pieces)
        place = Place(
            revision=self._revision_behind(pieces),
            sequence=last.sequence,
            messages=self.place.messages + len(pieces),
        )
        self.place = self.feed.place if place == self.feed.place else place

    def _revision_behind(self, pieces: Sequence[Piece]) -> int:
        """How far everything is told. A place must not lie behind a change that was not."""
        here, there = self.place.revision, max(piece.revision for piece in pieces)
        describe = self._changed == self.feed.changed and not self._missed_changes
        if describe and (there <= self.feed.place.revision or there == here + 1):
            return max(here, there)
        return here

    # From the store

    def _lagging(self) -> Outgoing | None:
        if self._catching_up is not None:
            return None
        self._catching_up = _CatchingUp(None)
        behind = max(0, self.feed.place.messages - self.place.messages)
        return Lagging(conversation_id=self.conversation_id, behind=behind)

    async def _from_store(self, held: Held) -> Outgoing | None:
        store = self.feed.store
        # The feed may move during the reads below. An entry that is new to it then, and was changed between
        # the read and its move, is read here as it was before, and the feed never reports the change.
        known = self.feed.place.sequence
        if self.feed.place.messages - self.place.messages > FURTHEST_LOOK:
            # In an orderly log what comes next stands where the count says.
            entries = await store.page(self.conversation_id, limit=PAGE, offset=self.place.messages)
            in_order = self._is_in_order(entries) and self._told(_pieces(entries, up_to=known), held)
            return in_order or await self._reset()
        try:
            _, describe = await since(store, self.conversation_id, self.place)
        except ConversationNotFound:
            self.feed.vanish()
            return self._gone()
        if describe.doubt == "start over":
            return await self._reset()
        return self._told(_pieces(describe.new, up_to=known), held)

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
            seen = await feed.shown(limit=max(self._history, FIRST_LOOK))
        except ConversationNotFound:
            return self._gone()
        self._starts_over, self._recorded, self._changed = feed.starts_over, feed.recorded, feed.changed
        self._catching_up, self._missed_changes = None, []
        self.place = place_of(seen.record, seen.entries)
        return Reset(
            conversation=conversation_document(seen.record),
            entries=seen.shown(self._history),
            place=self.place,
        )

    def _gone(self) -> Gone:
        self.is_over = True
        return Gone(conversation_id=self.conversation_id)


class _CatchingUp:
    """What a watch that is behind sees on its way: enough to know whether it has seen everything."""

    def __init__(self, revision: int | None) -> None:
        self._revision = revision
        """Where it began, if what it sees must explain all steps from there; None if that is known."""
        self._seen: set[int] = set()

    def saw(self, pieces: Iterable[Piece]) -> None:
        if self._revision is not None:
            self._seen.update(piece.revision for piece in pieces)

    def leaves_doubt(self, revision: int) -> bool:
        return self._revision is not None and revision - self._revision > len(self._seen - {self._revision})


def _pieces(entries: Sequence[Entry], *, up_to: float = math.inf) -> list[Piece]:
    return [Piece(entry) for entry in entries if entry.sequence <= up_to]


def _page(pieces: Iterable[Piece]) -> Iterator[Piece]:
    size = 0
    for count, piece in enumerate(pieces):
        size += piece.size
        if count and (count >= PAGE or size > PAGE_BYTES):
            return
        yield piece
