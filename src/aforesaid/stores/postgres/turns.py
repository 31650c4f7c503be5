"""Store the turns that wait in one process with one statement, across owners and conversations.

The first turn goes at once. Turns that arrive while `MOST_BATCHES` statements run wait, and go together when
one of them ends. So turns share the round trip, the statement's overhead and the commit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Error

from aforesaid._internal.tasks import PerLoop, start_background
from aforesaid.errors import Overloaded, StoreClosed, StoreError
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import connections
from aforesaid.stores.postgres.rows import Row, key_of
from aforesaid.stores.postgres.terms import Indexed, counted_values, index_values

# Statements under way at once: while one commits, the next one runs.
MOST_BATCHES = 2
# Turns and characters per statement.
MOST_TURNS = 64
MOST_CHARACTERS = 1_000_000

Run = Callable[[str, Mapping[str, Any]], Awaitable[list[Row]]]
"""Runs a named query in one round trip."""


class Turn(NamedTuple):
    """New messages for one conversation, without times of their own."""

    owner: str
    conversation_id: str
    now: datetime
    expected: int | None
    seen: str | None
    head: str | None
    messages: Sequence[Message]
    bodies: Sequence[str]
    found_by: Sequence[Indexed]


class Stored(NamedTuple):
    """A stored turn: the sequence of its first message, and the row of the record."""

    sequence: int
    record: Row


class _Job(NamedTuple):
    turn: Turn
    stored: "asyncio.Future[Stored | None]"


class _Queue:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self.waiting: deque[_Job] = deque()
        self.batches: set[asyncio.Task[None]] = set()
        self.running = 0
        self.is_closing = False
        self.ended = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return self.running >= MOST_BATCHES

    def take(self) -> list[_Job]:
        """Take the waiting turns of different conversations, in the order in which they are locked."""
        taken: dict[tuple[str, str], _Job] = {}
        left: list[_Job] = []
        size = 0
        while self.waiting and len(taken) < MOST_TURNS and size < MOST_CHARACTERS:
            job = self.waiting.popleft()
            if job.stored.cancelled():
                continue
            place = job.turn.owner, job.turn.conversation_id
            if place in taken:
                left.append(job)
                continue
            taken[place] = job
            size += sum(map(len, job.turn.bodies))
        self.waiting.extendleft(reversed(left))
        return [taken[place] for place in sorted(taken)]


class TurnWriter:
    """Stores turns, those that wait together in one statement."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._queues = PerLoop(_Queue)

    async def store(self, turn: Turn) -> Stored | None:
        """Store the turn. Return None if nothing was stored and `aforesaid.turn` must give the reason."""
        queue = self._queues.here()
        if queue.is_closing:
            raise StoreClosed
        if queue.is_full:
            if len(queue.waiting) >= connections.MAX_WAITING:
                raise Overloaded(f"{connections.MAX_WAITING:,} turns are waiting for the database already")
            job = _Job(turn, asyncio.get_running_loop().create_future())
            queue.waiting.append(job)
            return await job.stored
        # Alone, and in the caller's own task, so that a cancelled caller ends the statement.
        queue.running += 1
        try:
            return (await self._store_all([turn]))[0]
        except StoreError as error:
            if not _is_refusal(error):
                raise
            return None
        finally:
            queue.running -= 1
            self._start_next(queue)

    async def finish(self) -> None:
        """Store the accepted turns and accept no others meanwhile."""
        queue = self._queues.here()
        queue.is_closing = True
        try:
            while queue.running or queue.waiting:
                queue.ended.clear()
                await queue.ended.wait()
        finally:
            queue.is_closing = False

    def _start_next(self, queue: _Queue) -> None:
        queue.ended.set()
        if queue.is_full or not (jobs := queue.take()):
            return
        queue.running += 1
        batch = start_background(self._serve(queue, jobs), name="aforesaid turns")
        queue.batches.add(batch)
        batch.add_done_callback(queue.batches.discard)

    async def _serve(self, queue: _Queue, jobs: Sequence[_Job]) -> None:
        try:
            _deliver(jobs, await self._store_all([job.turn for job in jobs]))
        except StoreError as error:
            # After a refusal, every caller tries alone. Otherwise the turns may be stored.
            if _is_refusal(error):
                _deliver(jobs, [None] * len(jobs))
            else:
                _fail(jobs, error)
        except BaseException as error:
            _fail(jobs, error)
            raise
        finally:
            queue.running -= 1
            self._start_next(queue)

    async def _store_all(self, turns: Sequence[Turn]) -> list[Stored | None]:
        """Store the turns in one transaction; None for those that were not stored."""
        stored: list[Stored | None] = [None] * len(turns)
        for place, next_sequence, *record in await self._run("append_turns", batch_values(turns)):
            first = next_sequence - len(turns[place - 1].messages)
            stored[place - 1] = Stored(first, tuple(record))
        return stored


def _is_refusal(error: BaseException) -> bool:
    """Return whether the server refused the statement, so that certainly nothing was stored."""
    cause = error.__cause__
    return isinstance(cause, Error) and cause.diag.severity_nonlocalized == "ERROR"


def _deliver(jobs: Sequence[_Job], results: Sequence[Stored | None]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if not job.stored.done():
            job.stored.set_result(result)


def _fail(jobs: Sequence[_Job], error: BaseException) -> None:
    for job in jobs:
        if not job.stored.done():
            job.stored.set_exception(error)


def batch_values(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the parameters of `append_turns`. Texts are sent faster than lists."""
    messages = [message for turn in turns for message in turn.messages]
    index = [one for turn in turns for one in turn.found_by]
    counts = [counted_values(turn.found_by) for turn in turns]
    lasts: list[int] = []
    for turn in turns:
        lasts.append((lasts[-1] if lasts else 0) + len(turn.messages))
    return index_values(index) | {
        "owners": [turn.owner for turn in turns],
        "ids": array(turn.conversation_id for turn in turns),
        "times": array(turn.now.isoformat() for turn in turns),
        "expected": _given(turn.expected for turn in turns),
        "seen": _given(turn.seen for turn in turns),
        "heads": _given(turn.head for turn in turns),
        "firsts": array(str(last - len(turn.messages) + 1) for turn, last in zip(turns, lasts, strict=True)),
        "lasts": array(map(str, lasts)),
        "indexed": array(str(count["indexed"]) for count in counts),
        "all_terms": array(str(count["all_terms"]) for count in counts),
        "roles": array(message.role for message in messages),
        "keys": _given(message_key(message) for message in messages),
        "bodies": [body for turn in turns for body in turn.bodies],
    }


def _given(values: Iterable[Any]) -> list[Any] | None:
    """Return the values; None if there are none."""
    listed = list(values)
    return None if all(value is None for value in listed) else listed


def array(words: Iterable[str]) -> str:
    """Encode words as an array literal, which is faster than a list in the driver."""
    return f"{{{','.join(words)}}}"


def message_key(message: Message) -> str | None:
    return None if message.message_id is None else key_of(message.message_id)
