"""One owner's queue of spooled operations, and the view that includes them.

A queue exists from the first spooled operation until the last one is stored. Meanwhile all writes of the
owner go through it, so that their order is kept. It belongs to one event loop.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice

from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.spool import Ref

PACE = 2
"""During a replay, one new operation is accepted per this many stored ones, so that the backlog shrinks."""

LONGEST_WAIT = 0.25
"""The longest time that a new operation waits during a replay: a stalled store must not delay callers."""


class OwnerQueue:
    """The operations of one owner that are not stored yet."""

    def __init__(self, owner: str, view: View) -> None:
        self.owner = owner
        self.view = view
        self._backlog: deque[Ref] = deque()
        self._stored: set[Ref] = set()
        self._reservations = 0
        self.changed_conversations: set[str] = set()
        """Conversations that an accepted operation changes. The store's answers about others are current."""
        self.follow_loop()

    def follow_loop(self) -> None:
        """Create locks and events for the running event loop."""
        self.decision_lock = asyncio.Lock()
        """Held from reading the view to changing it."""
        self.replay_lock = asyncio.Lock()
        self.drained = asyncio.Event()
        self._draining = False
        self._credit = 0
        self._changed = asyncio.Event()

    def is_unaffected(self, conversation_id: str | None) -> bool:
        """Whether no accepted operation changes this conversation."""
        return conversation_id is not None and conversation_id not in self.changed_conversations

    @property
    def empty(self) -> bool:
        """Whether the queue has no operation and no reservation."""
        return not self._backlog and not self._reservations

    @property
    def depth(self) -> int:
        return len(self._backlog) - len(self._stored)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest operation was accepted."""
        return self._backlog[0].at if self._backlog else None

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep the queue alive while a caller is about to add an operation."""
        self._reservations += 1
        try:
            yield
        finally:
            self._reservations -= 1
            self._changed.set()

    def add(self, ref: Ref) -> None:
        self._backlog.append(ref)

    def add_adopted(self, refs: Sequence[Ref]) -> None:
        """Insert operations of another process by time of acceptance."""
        self._backlog = deque(sorted((*refs, *self._backlog), key=_accepted_at))

    def first(self, count: int) -> list[Ref]:
        """Return the oldest operations that are not stored."""
        waiting = (ref for ref in self._backlog if ref not in self._stored)
        return list(islice(waiting, count))

    def mark_stored(self, refs: Iterable[Ref]) -> None:
        """Remove operations that are stored or set aside."""
        before = len(self._stored)
        self._stored.update(refs)
        self._credit += len(self._stored) - before
        # Turns of different conversations are stored out of order, but the oldest one determines the age.
        while self._backlog and self._backlog[0] in self._stored:
            self._stored.remove(self._backlog.popleft())
        self._changed.set()

    def drop(self, refs: Iterable[Ref]) -> None:
        """Remove operations without storing them."""
        gone = set(refs)
        self._backlog = deque(ref for ref in self._backlog if ref not in gone)
        self._changed.set()

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Slow down new operations while the backlog is replayed."""
        self._draining = True
        try:
            yield
        finally:
            self._draining = False
            self._credit = 0
            self._changed.set()

    async def pace(self) -> None:
        """Delay a new operation while the backlog is replayed."""
        if not self._draining:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                while self._draining and self._credit < PACE and not self.drained.is_set():
                    await self.wait_for_change()
        # Each stored operation is a credit; a new one costs two.
        self._credit = max(0, self._credit - PACE)

    async def wait_for_change(self) -> None:
        """Wait until an operation is added, stored or removed."""
        self._changed.clear()
        await self._changed.wait()


def _accepted_at(ref: Ref) -> datetime:
    assert ref.at is not None
    return ref.at
