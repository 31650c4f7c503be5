"""Wake an event loop from worker threads.

`call_soon_threadsafe` writes a byte to a socket, reads the socket twice, and allocates a handle with a copy
of the context. An eventfd counter needs one write and one read, which saves about twenty microseconds per
call.
"""

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol
from weakref import WeakKeyDictionary, finalize


class Finished(Protocol):
    """Finished work of a thread."""

    def settle(self) -> None:
        """Resolve the waiting future. Runs on the event loop."""


class Wakeups(Protocol):
    """A queue of finished work for one event loop."""

    def post(self, finished: Sequence[Finished]) -> None:
        """Queue finished work; the loop settles it soon. Does nothing when the loop is closed."""


def wakeups_of(loop: asyncio.AbstractEventLoop) -> Wakeups:
    """Return the queue of this loop; create it on first use. Call it on the loop. It is freed with the
    loop."""
    queue = _queues.get(loop)
    if queue is None:
        queue = _queues[loop] = _new_queue(loop)
    return queue


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, Wakeups] = WeakKeyDictionary()


def _new_queue(loop: asyncio.AbstractEventLoop) -> Wakeups:
    if not hasattr(os, "eventfd"):
        return CallbackWakeups(loop)
    queue = EventfdWakeups()
    try:
        loop.add_reader(queue.counter, queue.drain)
    except NotImplementedError:
        return CallbackWakeups(loop)
    return queue


class EventfdWakeups:
    """The loop watches a counter that every post increases.

    The object has no reference to its loop, but the loop refers to it. So the counter is closed after the
    loop, when its descriptor number can no longer be confused with another file's.
    """

    def __init__(self) -> None:
        self.counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._queue: deque[Finished] = deque()
        finalize(self, os.close, self.counter)

    def post(self, finished: Sequence[Finished]) -> None:
        self._queue.extend(finished)
        os.eventfd_write(self.counter, 1)

    def drain(self) -> None:
        """Settle everything in the queue. Work posted meanwhile increases the counter again."""
        os.eventfd_read(self.counter)
        while self._queue:
            self._queue.popleft().settle()


class CallbackWakeups:
    """The fallback for systems without eventfd and for loops without `add_reader`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def post(self, finished: Sequence[Finished]) -> None:
        with suppress(RuntimeError):  # the loop was closed while callers waited
            self._loop.call_soon_threadsafe(_settle_all, finished)


def _settle_all(finished: Sequence[Finished]) -> None:
    for one in finished:
        one.settle()
