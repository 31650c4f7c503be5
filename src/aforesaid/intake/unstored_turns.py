"""Answered turns that could not be stored: a queue that retries them in order, until they are stored.

An answer that a model has produced reaches the user, whatever the store does. `store` gives the store a few
seconds. When that fails, the turn is queued and retried in the background, with the same message ids: a turn
that is stored twice is stored once. Within a conversation nothing overtakes a queued turn. The queue is in
memory and bounded; closing it tries a last time and logs what was not stored.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from aforesaid._internal.tasks import Background, background_context, within
from aforesaid.contracts import Appended
from aforesaid.errors import (
    AccessError,
    AforesaidError,
    Conflict,
    InvalidInput,
    MessageConflict,
    NotFound,
    RevisionConflict,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    TooManyRequests,
)
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.telemetry import describe, event, telemetry

log = logging.getLogger("aforesaid.unstored")

# Seconds that a user waits for an answer to be stored: more than the resilient layer needs for its spool.
STORE_SECONDS = 8.0
# The most bytes of queued turns: hours of a busy household.
MOST_BYTES = 32 * 1024 * 1024
# Seconds between attempts to store what is queued.
SHORTEST_PAUSE, FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5, 5.0
# Seconds that closing spends on the last attempt.
CLOSING_SECONDS = 5.0
# Seconds that work after turns waits for the work of other turns. Done together, it shares transactions, so
# that the turns of other conversations wait for fewer of them.
LATER_SECONDS = 0.25
# Such work that runs at once: the rest of the store's queue stays free for turns.
LATER_AT_ONCE = 32

Work = Callable[[], Coroutine[Any, Any, None]]
Append = Callable[[str, Sequence[Message]], Awaitable[Appended]]
"""Stores a turn of a conversation."""
Key = tuple[str, str]
"""An owner and a conversation."""


class NotStored(Struct, frozen=True, kw_only=True):
    """Why an answered turn is not stored, and whether it is queued."""

    error: AforesaidError
    queued: bool


class _Turn(NamedTuple):
    messages: Sequence[Message]
    append: Append
    at: datetime
    size: int


class _Queue:
    """The queued turns of one conversation."""

    def __init__(self) -> None:
        self.turns: deque[_Turn] = deque()
        # Held while the first turn is being stored, so that no other one overtakes it.
        self.storing = asyncio.Lock()
        # The task that stores the first turn. Its own append must not wait for itself.
        self.storing_task: asyncio.Task[object] | None = None


class UnstoredTurns:
    """The queue of one memory."""

    def __init__(
        self,
        *,
        patience: float = STORE_SECONDS,
        most_bytes: int = MOST_BYTES,
        first_pause: float = FIRST_PAUSE,
        closing: float = CLOSING_SECONDS,
    ) -> None:
        # Seconds that a user waits for the store.
        self.patience = patience
        self._most_bytes = most_bytes
        self._first_pause = first_pause
        self._closing = closing
        self._queues: dict[Key, _Queue] = {}
        self._bytes = 0
        self._background = Background(self._work, lambda: bool(self._queues), name="aforesaid-unstored")
        self._later: deque[tuple[Context, Work]] = deque()
        self._doing_later = Background(self._do_later, lambda: bool(self._later), name="aforesaid-after-turn")

    def __len__(self) -> int:
        """The number of queued turns."""
        return sum(len(queue.turns) for queue in self._queues.values())

    def __bool__(self) -> bool:
        # Every turn asks, and nearly always there is none: a queue is removed with its last turn.
        return bool(self._queues)

    def messages(self, owner: str, conversation_id: str) -> tuple[Message, ...]:
        """Return the queued messages of a conversation, in order."""
        queue = self._queues.get((owner, conversation_id))
        return () if queue is None else tuple(message for turn in queue.turns for message in turn.messages)

    # Storing

    async def store(
        self,
        owner: str,
        conversation_id: str,
        messages: Sequence[Message],
        append: Append,
        *,
        now: datetime,
    ) -> Appended | NotStored:
        """Store a turn after the queued ones; when that fails, queue it.

        Raise only `MessageConflict`: the store then has another turn with these ids.
        """
        try:
            return await within(self.patience, self._in_order(owner, conversation_id, messages, append))
        except MessageConflict:
            raise
        except TimeoutError:
            late = StoreUnavailable(f"the store did not take the turn within {self.patience:g} s")
            return self._queue_or_drop((owner, conversation_id), messages, append, late, now)
        except Exception as error:  # noqa: BLE001  the edge of any store: the answer still reaches the user
            return self._queue_or_drop((owner, conversation_id), messages, append, _translated(error), now)

    async def _in_order(
        self, owner: str, conversation_id: str, messages: Sequence[Message], append: Append
    ) -> Appended:
        await self.flush(owner, conversation_id)
        return await append(conversation_id, messages)

    def _queue_or_drop(
        self, key: Key, messages: Sequence[Message], append: Append, error: AforesaidError, now: datetime
    ) -> NotStored:
        retry = _is_transient(error) and not self._background.is_closed
        queued = retry and self._queue(key, messages, append, now)
        _record("queued" if queued else "lost", key, error)
        return NotStored(error=error, queued=queued)

    def _queue(self, key: Key, messages: Sequence[Message], append: Append, now: datetime) -> bool:
        """Queue the turn if it fits. It keeps its original time."""
        stamped = [message if message.timestamp is not None else message.at(now) for message in messages]
        size = sum(len(encode_message(message)) for message in stamped)
        if self._bytes + size > self._most_bytes:
            return False
        self._queues.setdefault(key, _Queue()).turns.append(_Turn(stamped, append, now, size))
        self._bytes += size
        self._begin()
        return True

    async def flush(self, owner: str, conversation_id: str | None = None) -> None:
        """Store the queued turns of a conversation, or of an owner, now. Raise the store's errors."""
        for key in [key for key in self._queues if key[0] == owner and conversation_id in (None, key[1])]:
            while (
                queue := self._queues.get(key)
            ) is not None and queue.storing_task is not asyncio.current_task():
                await self._store_queue(key, queue)

    async def _store_queue(self, key: Key, queue: _Queue) -> None:
        async with queue.storing:
            queue.storing_task = asyncio.current_task()
            try:
                while queue.turns:
                    await self._store_first(key, queue)
            finally:
                queue.storing_task = None
            self._drop_empty(key, queue)

    async def _store_first(self, key: Key, queue: _Queue) -> None:
        turn = queue.turns[0]
        try:
            await turn.append(key[1], turn.messages)
        except AforesaidError as error:
            if _is_transient(error):
                raise
            _record("lost", key, error)
        else:
            _record("stored", key, None)
        queue.turns.popleft()
        self._bytes -= turn.size

    def _drop_empty(self, key: Key, queue: _Queue) -> None:
        if not queue.turns and self._queues.get(key) is queue:
            del self._queues[key]

    # In the background

    def _begin(self) -> None:
        start = self._background.here().time() + self._first_pause
        if self._background.is_idle:
            self._background.begin_at(lambda: start)

    async def _work(self) -> None:
        pause = self._first_pause
        while self._queues:
            if await self._try_all():
                pause = self._first_pause
            else:
                await self._background.rest(pause)
                await asyncio.sleep(SHORTEST_PAUSE)  # also while `settled` waits, when `rest` returns at once
                pause = min(LONGEST_PAUSE, pause * 2)

    async def _try_all(self) -> bool:
        """Try each conversation; return whether one was stored."""
        before = len(self)
        for owner, conversation_id in list(self._queues):
            try:
                await within(self.patience, self.flush(owner, conversation_id))
            except TimeoutError:
                continue
            except Exception as error:  # noqa: BLE001  the edge of a background task: it tries again
                log.debug("a queued turn is not stored yet: %s", describe(error))
        return len(self) < before

    def later(self, work: Work) -> None:
        """Run work after a stored turn that its user need not wait for, soon and together with the work of
        other turns. It handles its own errors.
        """
        self._later.append((background_context(), work))
        start = self._doing_later.here().time() + LATER_SECONDS
        self._doing_later.begin_at(lambda: start)

    async def _do_later(self) -> None:
        while self._later:
            some = [self._later.popleft() for _ in range(min(LATER_AT_ONCE, len(self._later)))]
            loop = asyncio.get_running_loop()
            await asyncio.wait([loop.create_task(work(), context=context) for context, work in some])

    async def later_is_done(self) -> None:
        """Do the work of `later` now, and wait for it."""
        await self._doing_later.done()

    async def catch_up(self, owner: str, conversation_id: str | None = None) -> None:
        """Do what turns have left for later, and store the queued ones: before anything is removed."""
        await self.later_is_done()
        await self.flush(owner, conversation_id)

    async def settled(self) -> None:
        """Wait until nothing is queued."""
        await self._background.done()

    async def close(self) -> None:
        """Try a last time, within a deadline; log what is not stored."""
        await self._background.close()
        await self.later_is_done()
        await self._doing_later.close()
        try:
            await within(self._closing, self._try_last())
        except TimeoutError:
            log.warning("the store did not take the queued turns within %g s", self._closing)
        finally:
            self._give_up()

    async def _try_last(self) -> None:
        await self._try_all()

    def _give_up(self) -> None:
        for key, queue in self._queues.items():
            for _ in queue.turns:
                _record("lost", key, None)
        self._queues.clear()
        self._bytes = 0

    # Forgetting

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove the queued turns of a conversation, or of an owner. See `contracts.CopyHolder`."""
        await self.later_is_done()
        before = len(self)
        for key in [key for key in self._queues if key[0] == owner and conversation_id in (None, key[1])]:
            queue = self._queues[key]
            async with queue.storing:
                kept = [turn for turn in queue.turns if until is not None and turn.at > until]
                self._bytes -= sum(turn.size for turn in queue.turns) - sum(turn.size for turn in kept)
                queue.turns = deque(kept)
                self._drop_empty(key, queue)
        return {"queued_turns": gone} if (gone := before - len(self)) else {}


def _is_transient(error: AforesaidError) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, TooManyRequests | RevisionConflict):
        return True
    return not isinstance(error, Conflict | NotFound | InvalidInput | AccessError | StoreClosed)


def _translated(error: Exception) -> AforesaidError:
    if isinstance(error, AforesaidError):
        return error
    ours = StoreError(f"the store failed: {type(error).__name__}")
    ours.__cause__ = error
    return ours


_SENTENCES = {
    "queued": (logging.WARNING, "turn_queued", "an answered turn could not be stored; it is queued"),
    "stored": (logging.INFO, "turn_stored_late", "a queued turn is stored now"),
    "lost": (logging.ERROR, "turn_not_stored", "an answered turn is not stored, and is not tried again"),
}


_counters = {
    outcome: telemetry.counter("aforesaid_unstored_turns_total", status=outcome) for outcome in _SENTENCES
}


def _record(outcome: str, key: Key, error: AforesaidError | None) -> None:
    _counters[outcome].add()
    level, name, sentence = _SENTENCES[outcome]
    reason = {} if error is None else {"error": describe(error)}
    event(log, level, name, sentence, conversation_id=key[1], **reason)
