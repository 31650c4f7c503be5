"""Answered turns that could not be stored: a queue that retries them in order, until they are stored.

An answer that a model has produced reaches the user, whatever the store does. `store` gives the store a few
seconds. When that fails, the turn is queued and retried in the background, with the same message ids: a turn
that is stored twice is stored once. Within a conversation nothing overtakes a queued turn. The queue is in
memory and bounded; closing it tries a last time and logs what was not stored.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from aforesaid._internal.background import Background
from aforesaid._internal.deadlines import within
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

STORE_SECONDS = 8.0
"""Seconds that a user waits for an answer to be stored: more than the resilient layer needs for its spool."""
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of queued turns: hours of a busy house."""
SHORTEST_PAUSE, FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5, 5.0
"""Seconds between attempts to store what is queued."""
CLOSING_SECONDS = 5.0
"""Seconds that closing spends on the last attempt."""

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


class _Line:
    """The queued turns of one conversation."""

    def __init__(self) -> None:
        self.turns: deque[_Turn] = deque()
        self.storing = asyncio.Lock()
        """Held while the first turn is being stored, so that no other one overtakes it."""
        self.storer: asyncio.Task[object] | None = None
        """The task that stores the first turn. Its own append must not wait for itself."""


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
        self._patience = patience
        self._most_bytes = most_bytes
        self._first_pause = first_pause
        self._closing = closing
        self._lines: dict[Key, _Line] = {}
        self._bytes = 0
        self._background = Background(self._work, lambda: bool(self._lines), name="aforesaid-unstored")

    def __len__(self) -> int:
        """The number of queued turns."""
        return sum(len(line.turns) for line in self._lines.values())

    def messages(self, owner: str, conversation_id: str) -> tuple[Message, ...]:
        """Return the queued messages of a conversation, in order."""
        line = self._lines.get((owner, conversation_id))
        return () if line is None else tuple(message for turn in line.turns for message in turn.messages)

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
        """Store a turn behind those that are queued; when that fails, queue it.

        Raises `MessageConflict`, because then the store holds another turn with these ids; nothing else.
        """
        try:
            return await within(self._patience, self._in_order(owner, conversation_id, messages, append))
        except MessageConflict:
            raise
        except TimeoutError:
            late = StoreUnavailable(f"the store did not take the turn within {self._patience:g} s")
            return self._take((owner, conversation_id), messages, append, late, now)
        except Exception as error:  # noqa: BLE001  the edge of any store: the answer still reaches the user
            return self._take((owner, conversation_id), messages, append, _ours(error), now)

    async def _in_order(
        self, owner: str, conversation_id: str, messages: Sequence[Message], append: Append
    ) -> Appended:
        await self.flush(owner, conversation_id)
        return await append(conversation_id, messages)

    def _take(
        self, key: Key, messages: Sequence[Message], append: Append, error: AforesaidError, now: datetime
    ) -> NotStored:
        may_pass = _may_pass(error) and not self._background.is_closed
        queued = may_pass and self._queue(key, messages, append, now)
        _note("queued" if queued else "lost", key, error)
        return NotStored(error=error, queued=queued)

    def _queue(self, key: Key, messages: Sequence[Message], append: Append, now: datetime) -> bool:
        """Queue the turn, if there is room; it keeps the time at which it was said."""
        stamped = [message if message.timestamp is not None else message.at(now) for message in messages]
        size = sum(len(encode_message(message)) for message in stamped)
        if self._bytes + size > self._most_bytes:
            return False
        self._lines.setdefault(key, _Line()).turns.append(_Turn(stamped, append, now, size))
        self._bytes += size
        self._begin()
        return True

    async def flush(self, owner: str, conversation_id: str | None = None) -> None:
        """Store the queued turns of a conversation, or of an owner, now. Raises what the store raises."""
        for key in [key for key in self._lines if key[0] == owner and conversation_id in (None, key[1])]:
            while (line := self._lines.get(key)) is not None and line.storer is not asyncio.current_task():
                await self._store_line(key, line)

    async def _store_line(self, key: Key, line: _Line) -> None:
        async with line.storing:
            line.storer = asyncio.current_task()
            try:
                while line.turns:
                    await self._store_first(key, line)
            finally:
                line.storer = None
            self._drop_empty(key, line)

    async def _store_first(self, key: Key, line: _Line) -> None:
        turn = line.turns[0]
        try:
            await turn.append(key[1], turn.messages)
        except AforesaidError as error:
            if _may_pass(error):
                raise
            _note("lost", key, error)
        else:
            _note("stored", key, None)
        line.turns.popleft()
        self._bytes -= turn.size

    def _drop_empty(self, key: Key, line: _Line) -> None:
        if not line.turns and self._lines.get(key) is line:
            del self._lines[key]

    # In the background

    def _begin(self) -> None:
        start = self._background.here().time() + self._first_pause
        if self._background.is_idle:
            self._background.begin_at(lambda: start)

    async def _work(self) -> None:
        pause = self._first_pause
        while self._lines:
            if await self._try_all():
                pause = self._first_pause
            else:
                await self._background.rest(pause)
                await asyncio.sleep(SHORTEST_PAUSE)  # also where somebody waits for the end
                pause = min(LONGEST_PAUSE, pause * 2)

    async def _try_all(self) -> bool:
        """Try each conversation; return whether one was stored."""
        before = len(self)
        for owner, conversation_id in list(self._lines):
            try:
                await within(self._patience, self.flush(owner, conversation_id))
            except TimeoutError:
                continue
            except Exception as error:  # noqa: BLE001  the edge of a background task: it tries again
                log.debug("a queued turn is not stored yet: %s", describe(error))
        return len(self) < before

    async def settled(self) -> None:
        """Wait until nothing is queued."""
        await self._background.done()

    async def close(self) -> None:
        """Try a last time, within a deadline; log what is not stored."""
        await self._background.close()
        try:
            await within(self._closing, self._try_last())
        except TimeoutError:
            log.warning("the store did not take the queued turns within %g s", self._closing)
        finally:
            self._give_up()

    async def _try_last(self) -> None:
        await self._try_all()

    def _give_up(self) -> None:
        for key, line in self._lines.items():
            for _ in line.turns:
                _note("lost", key, None)
        self._lines.clear()
        self._bytes = 0

    # Forgetting

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Remove the queued turns of a conversation, or of an owner. See `contracts.Holds`."""
        before = len(self)
        for key in [key for key in self._lines if key[0] == owner and conversation_id in (None, key[1])]:
            line = self._lines[key]
            async with line.storing:
                kept = [turn for turn in line.turns if until is not None and turn.at > until]
                self._bytes -= sum(turn.size for turn in line.turns) - sum(turn.size for turn in kept)
                line.turns = deque(kept)
                self._drop_empty(key, line)
        return {"queued_turns": gone} if (gone := before - len(self)) else {}


def _may_pass(error: AforesaidError) -> bool:
    """Whether trying again may help."""
    if isinstance(error, TooManyRequests | RevisionConflict):
        return True
    return not isinstance(error, Conflict | NotFound | InvalidInput | AccessError | StoreClosed)


def _ours(error: Exception) -> AforesaidError:
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


def _note(outcome: str, key: Key, error: AforesaidError | None) -> None:
    telemetry.counter("aforesaid_unstored_turns_total", status=outcome).add()
    level, name, sentence = _SENTENCES[outcome]
    reason = {} if error is None else {"error": describe(error)}
    event(log, level, name, sentence, conversation_id=key[1], **reason)
