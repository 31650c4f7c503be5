"""What a connection is told, one frame at a time, when there is room to send it. Below: watches, turns.

Replies come first, then pieces of answers, then what happened in watched conversations. Nothing but
replies ever waits, and of those so many at most that the connection is read no further until some are
gone: a client that reads slowly holds up nobody and fills nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec import Raw

from aforesaid.agents import apology_for
from aforesaid.errors import AforesaidError
from aforesaid.protocol.live import (
    AnswerDelta,
    AnswerDone,
    AnswerFailed,
    CloseCode,
    Outgoing,
    Stored,
)
from aforesaid.protocol.problems import problem_of
from aforesaid.server.live.feeds import Piece
from aforesaid.server.live.turns import Outcome, Turn, TurnKey
from aforesaid.server.live.watches import Watch

LONGEST_DELTA = 32 * 1024
"""Characters of an answer in one frame."""


class Ended(Exception):
    """The connection ends, with this code."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamingTranscriber:
    """An answer that goes to this connection, and how much of it was sent."""

    def __init__(self, turn: Turn, *, wants_answer: bool = True) -> None:
        self.turn = turn
        self.wants_answer = wants_answer
        self.sent = 0


class Outbox:
    """The way out."""

    def __init__(self, most_waiting: int, over: Callable[[Watch], None]) -> None:
        self.watches: dict[str, Watch] = {}
        self.listening: dict[TurnKey, StreamingTranscriber] = {}
        self._most_waiting = most_waiting
        self._over = over
        """Told of a watch whose conversation is gone."""
        self._replies: deque[Outgoing] = deque()
        self.ending: Ended | None = None
        self._woken = asyncio.Event()
        self._taken = asyncio.Event()

    # What there is to tell

    @property
    def waiting(self) -> int:
        """Replies that wait to be sent."""
        return len(self._replies)

    def reply(self, frame: Outgoing) -> None:
        self._replies.append(frame)
        self._woken.set()

    def mention(self, frame: Outgoing) -> None:
        """Tell it if there is room; it is old news soon."""
        if len(self._replies) < self._most_waiting:
            self.reply(frame)

    def end(self, code: int, reason: str = "") -> None:
        """Say what waits, and then no more. The first reason holds."""
        self.ending = self.ending or Ended(code, reason)
        self._woken.set()
        self._taken.set()

    def wake(self) -> None:
        self._woken.set()

    def listen(self, turn: Turn, *, wants_answer: bool = True) -> None:
        """Tell of this turn, from its beginning."""
        self.listening[turn.key] = StreamingTranscriber(turn, wants_answer=wants_answer)
        turn.listen(self.wake)
        if turn.text or turn.outcome is not None:
            self.wake()

    def forget(self, turn: Turn) -> None:
        """There is nothing to tell of this turn after all."""
        turn.leave(self.wake)
        self.listening.pop(turn.key, None)

    def stop_listening(self) -> None:
        for listening in self.listening.values():
            listening.turn.leave(self.wake)
        self.listening.clear()

    @property
    def is_full(self) -> bool:
        """Whether as many replies wait as may."""
        return len(self._replies) >= self._most_waiting and self.ending is None

    async def has_room(self) -> None:
        """Wait until replies are taken. Nothing more is read from the client before."""
        while self.is_full:
            self._taken.clear()
            await self._taken.wait()

    # One by one

    async def next(self) -> Outgoing:
        """The next frame, as soon as there is one. Raises `Ended` when all is said."""
        while True:
            self._woken.clear()
            if self._replies:
                self._taken.set()
                return self._replies.popleft()
            if self.ending is not None:
                return await self._last_words(self.ending)
            frame = await self._next_of_turns() or await self._next_of_watches()
            if frame is not None:
                return frame
            await self._woken.wait()

    async def _last_words(self, ending: Ended) -> Outgoing:
        """A server that ends still says what it has answered; whoever is sent away hears no more."""
        frame = await self._next_of_turns() if ending.code == CloseCode.RESTARTING else None
        if frame is None:
            raise ending
        return frame

    async def _next_of_turns(self) -> Outgoing | None:
        for listening in tuple(self.listening.values()):
            frame = self._next_piece(listening) or await self._next_outcome(listening)
            if frame is not None:
                return frame
        return None

    def _next_piece(self, listening: StreamingTranscriber) -> Outgoing | None:
        turn, sent = listening.turn, listening.sent
        if sent >= len(turn.text) or turn.outcome is not None:
            return None  # what is complete comes as a whole
        piece = turn.text[sent : sent + LONGEST_DELTA]
        listening.sent = sent + len(piece)
        return AnswerDelta(id=turn.id, text=piece, offset=sent)

    async def _next_outcome(self, listening: StreamingTranscriber) -> Outgoing | None:
        turn, outcome = listening.turn, listening.turn.outcome
        if outcome is None:
            return None
        watch = self.watches.get(turn.conversation_id)
        if outcome.error is None and watch is not None and (earlier := await watch.before(outcome.pieces)):
            return earlier
        turn.leave(self.wake)
        del self.listening[turn.key]
        if outcome.error is not None:
            return _failed(turn, outcome.error)
        return _done(turn, outcome, watch) if listening.wants_answer else _stored(turn, outcome, watch)

    async def _next_of_watches(self) -> Outgoing | None:
        for watch in tuple(self.watches.values()):
            if watch.is_level:
                continue
            frame = await watch.next(partial(self._is_held, watch.conversation_id))
            if frame is not None:
                if watch.is_over:
                    self._over(watch)
                return frame
        return None

    def _is_held(self, conversation_id: str, piece: Piece) -> bool:
        """Whether the message belongs to a turn that this connection waits for: `answer.done` brings it.

        A store may tell of a turn before whoever stored it has heard that it is stored.
        """
        return any(
            piece.message_id == turn_id or piece.message_id.startswith(f"{turn_id}/")
            for spoken_in, turn_id in self.listening
            if spoken_in == conversation_id
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
        entries=[] if watch is None else [piece.body for piece in watch.claim(outcome.pieces)],
        place=None if watch is None else watch.place,
        interrupted=outcome.interrupted,
        repeated=outcome.repeated,
        stored=outcome.stored,
    )


def _stored(turn: Turn, outcome: Outcome, watch: Watch | None) -> Outgoing:
    return Stored(
        id=turn.id,
        conversation_id=turn.conversation_id,
        message_ids=list(outcome.message_ids) if turn.is_given else [],
        entries=[] if watch is None else _entries(turn, outcome, watch),
        place=None if watch is None else watch.place,
        repeated=outcome.repeated,
    )


def _entries(turn: Turn, outcome: Outcome, watch: Watch) -> list[Raw]:
    """Claim the stored entries, and return those that the client does not have.

    A client that sent the whole turn has its entries, except where they were changed since.
    """
    claimed = watch.claim(outcome.pieces)
    if turn.is_given:
        sent = {(piece.sequence, piece.revision) for piece in outcome.pieces}
        claimed = [piece for piece in claimed if (piece.sequence, piece.revision) not in sent]
    return [piece.body for piece in claimed]
