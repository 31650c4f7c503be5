"""The outbox of a connection: choose the next frame to send.

Replies come first, then answers, then changes of watched conversations. Only replies are queued. While the
queue is full, the connection reads no more frames, so a slow client needs bounded memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec import Raw

from aforesaid.agents import apology_for
from aforesaid.errors import AforesaidError
from aforesaid.protocol.documents import problem_of
from aforesaid.protocol.live import (
    AnswerDelta,
    AnswerDone,
    AnswerFailed,
    CloseCode,
    Stored,
)
from aforesaid.protocol.live_base import Outgoing
from aforesaid.server.live.feeds import EncodedEntry
from aforesaid.server.live.turns import Outcome, Turn, TurnKey
from aforesaid.server.live.watches import Watch

# Maximum characters of an answer in one frame.
LONGEST_DELTA = 32 * 1024


class ConnectionClosed(Exception):
    """The server closes the connection with this code."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class TurnSubscription:
    """A turn whose answer this connection gets, and the number of sent characters."""

    def __init__(self, turn: Turn, *, wants_answer: bool = True) -> None:
        self.turn = turn
        self.wants_answer = wants_answer
        self.sent = 0


class Outbox:
    """Frames to send."""

    def __init__(self, max_waiting: int, on_gone: Callable[[Watch], None]) -> None:
        self.watches: dict[str, Watch] = {}
        self.subscriptions: dict[TurnKey, TurnSubscription] = {}
        self._max_waiting = max_waiting
        # Called with a watch whose conversation was deleted.
        self._on_gone = on_gone
        self._replies: deque[Outgoing] = deque()
        self.ending: ConnectionClosed | None = None
        self._woken = asyncio.Event()
        self._space = asyncio.Event()

    # Sources

    @property
    def waiting(self) -> int:
        """The number of queued replies."""
        return len(self._replies)

    def reply(self, frame: Outgoing) -> None:
        self._replies.append(frame)
        self._woken.set()

    def notify(self, frame: Outgoing) -> None:
        """Queue a frame that may be dropped, unless the queue is full."""
        if len(self._replies) < self._max_waiting:
            self.reply(frame)

    def end(self, code: int, reason: str = "") -> None:
        """Close after the queued replies. Only the first call has an effect."""
        self.ending = self.ending or ConnectionClosed(code, reason)
        self._woken.set()
        self._space.set()

    def wake(self) -> None:
        self._woken.set()

    def subscribe(self, turn: Turn, *, wants_answer: bool = True) -> None:
        """Send the answer of a turn, from its beginning."""
        self.subscriptions[turn.key] = TurnSubscription(turn, wants_answer=wants_answer)
        turn.listen(self.wake)
        if turn.text or turn.outcome is not None:
            self.wake()

    def unsubscribe(self, turn: Turn) -> None:
        """Send no more of a turn."""
        turn.leave(self.wake)
        self.subscriptions.pop(turn.key, None)

    def unsubscribe_all(self) -> None:
        for subscription in self.subscriptions.values():
            subscription.turn.leave(self.wake)
        self.subscriptions.clear()

    @property
    def is_full(self) -> bool:
        """Whether the queue of replies is full."""
        return len(self._replies) >= self._max_waiting and self.ending is None

    async def wait_for_space(self) -> None:
        """Wait until the queue has space."""
        while self.is_full:
            self._space.clear()
            await self._space.wait()

    # Next frame

    async def next(self) -> Outgoing:
        """Wait for the next frame. Raises `ConnectionClosed` after the last one."""
        while True:
            # Cleared before looking for work: a wake-up during the search is not lost.
            self._woken.clear()
            if self._replies:
                self._space.set()
                return self._replies.popleft()
            if self.ending is not None:
                return await self._final_frame(self.ending)
            frame = await self._next_turn_frame() or await self._next_watch_frame()
            if frame is not None:
                return frame
            await self._woken.wait()

    async def _final_frame(self, ending: ConnectionClosed) -> Outgoing:
        """Return the outcome of a finished turn if the server restarts. Raises `ConnectionClosed`."""
        # During a restart, clients still get the outcome of turns that have just been stored.
        frame = await self._next_turn_frame() if ending.code == CloseCode.RESTARTING else None
        if frame is None:
            raise ending
        return frame

    async def _next_turn_frame(self) -> Outgoing | None:
        for subscription in tuple(self.subscriptions.values()):
            frame = self._next_delta(subscription) or await self._next_outcome(subscription)
            if frame is not None:
                return frame
        return None

    def _next_delta(self, subscription: TurnSubscription) -> Outgoing | None:
        turn, sent = subscription.turn, subscription.sent
        if sent >= len(turn.text) or turn.outcome is not None:
            return None  # `answer.done` has the whole text
        delta = turn.text[sent : sent + LONGEST_DELTA]
        subscription.sent = sent + len(delta)
        return AnswerDelta(id=turn.id, text=delta, offset=sent)

    async def _next_outcome(self, subscription: TurnSubscription) -> Outgoing | None:
        turn, outcome = subscription.turn, subscription.turn.outcome
        if outcome is None:
            return None
        watch = self.watches.get(turn.conversation_id)
        if (
            outcome.error is None
            and watch is not None
            and (earlier := await watch.earlier_messages(outcome.entries))
        ):
            return earlier
        turn.leave(self.wake)
        del self.subscriptions[turn.key]
        if outcome.error is not None:
            return _failed(turn, outcome.error)
        return _done(turn, outcome, watch) if subscription.wants_answer else _stored(turn, outcome, watch)

    async def _next_watch_frame(self) -> Outgoing | None:
        for watch in tuple(self.watches.values()):
            if watch.is_up_to_date:
                continue
            frame = await watch.next(partial(self._is_pending, watch.conversation_id))
            if frame is not None:
                if watch.is_over:
                    self._on_gone(watch)
                return frame
        return None

    def _is_pending(self, conversation_id: str, entry: EncodedEntry) -> bool:
        """Return whether an entry belongs to a turn in progress, whose `answer.done` will contain it.

        A store may report a turn before its `append` returns.
        """
        return any(
            entry.message_id == turn_id or entry.message_id.startswith(f"{turn_id}/")
            for other_id, turn_id in self.subscriptions
            if other_id == conversation_id
        )


def _failed(turn: Turn, error: AforesaidError) -> Outgoing:
    return AnswerFailed(id=turn.id, problem=problem_of(error), apology=apology_for(error))


def _done(turn: Turn, outcome: Outcome, watch: Watch | None) -> Outgoing:
    return AnswerDone(
        id=turn.id,
        conversation_id=turn.conversation_id,
        text=outcome.text,
        spoken=outcome.spoken,
        message_ids=list(outcome.message_ids),
        entries=[] if watch is None else [entry.body for entry in watch.claim(outcome.entries)],
        place=None if watch is None else watch.place,
        interrupted=outcome.interrupted,
        repeated=outcome.repeated,
        stored=outcome.stored,
    )


def _stored(turn: Turn, outcome: Outcome, watch: Watch | None) -> Outgoing:
    return Stored(
        id=turn.id,
        conversation_id=turn.conversation_id,
        message_ids=list(outcome.message_ids) if turn.is_complete else [],
        entries=[] if watch is None else _entries(turn, outcome, watch),
        place=None if watch is None else watch.place,
        repeated=outcome.repeated,
    )


def _entries(turn: Turn, outcome: Outcome, watch: Watch) -> list[Raw]:
    """Claim the stored entries and return those that the client does not have.

    A client that sent a complete turn has its entries, unless they were changed since.
    """
    claimed = watch.claim(outcome.entries)
    if turn.is_complete:
        sent = {(entry.sequence, entry.revision) for entry in outcome.entries}
        claimed = [entry for entry in claimed if (entry.sequence, entry.revision) not in sent]
    return [entry.body for entry in claimed]
