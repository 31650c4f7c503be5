"""Threads that process jobs for coroutines, so that file and database work never blocks the event loop.

    caller ──► Slots ──► queue ──► WorkerThreads ──► Wakeups ──► the caller's future
               (limit)             (batches)         (one wakeup per loop)

The SQLite store, the JSON file store and the spool use the same classes. Each passes the function that
processes its jobs.
"""

import asyncio
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, finalize

from aforesaid.errors import Overloaded, StoreClosed

J = TypeVar("J", bound="Job")

# Seconds that a caller waits for a slot.
WAIT_SECONDS = 30.0


class Job:
    """Work for a thread, and the future of its caller. `WorkerThreads` sets the future."""

    __slots__ = ("called_at", "error", "future", "is_queued", "result", "wakeups", "work")

    future: asyncio.Future[Any]
    wakeups: "Wakeups"

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work
        # Time of the call, from which timeouts count. It precedes the wait for a slot.
        self.called_at = time.monotonic()
        # Whether a thread will process the job, even if its caller is cancelled.
        self.is_queued = False
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Resolve the future with the result or the error. Runs on the event loop."""
        # The job may have been committed when its caller was cancelled; the result has no receiver.
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


Jobs = queue.SimpleQueue[J | None]
"""Waiting jobs. None ends one thread."""


class WorkerThreads(Generic[J]):
    """Threads that share a queue of jobs, one thread for each `serve` function.

    `name` is the name of the resource in error messages. `close` finishes all accepted jobs.
    """

    def __init__(
        self,
        name: str,
        *serve: Callable[[Jobs[J]], None],
        thread_name: str,
        max_queued: int,
        max_waiting: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> None:
        self._name = name
        self._jobs: Jobs[J] = queue.SimpleQueue()
        if max_waiting is None:
            max_waiting = max_queued * 8
        self._slots = Slots(name, limit=max_queued, max_waiting=max_waiting, timeout=timeout)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()
        self._queue_lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._threads = [
            threading.Thread(target=one, args=(self._jobs,), name=f"aforesaid-{thread_name}", daemon=True)
            for one in serve
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, job: J) -> Any:
        """Wait for a slot, then for the result of the job. Raise `Overloaded` and the job's error.

        A cancelled job that waits in the queue is not run. Once a thread has started it, the job completes.
        """
        loop = asyncio.get_running_loop()
        # Every turn passes here: one lookup finds both, and taking a free slot does not wait.
        slots, wakeups = self._loops.get(loop) or self._new_loop(loop)
        if not slots.take():
            await self._slots.wait(slots)
        try:
            return await self._enqueue(job, loop, wakeups)
        finally:
            slots.release()

    async def run_without_slot(self, job: J) -> Any:
        """Run a job that must not be refused, such as a read on which the progress of other jobs depends."""
        loop = asyncio.get_running_loop()
        _, wakeups = self._loops.get(loop) or self._new_loop(loop)
        return await self._enqueue(job, loop, wakeups)

    def _new_loop(self, loop: asyncio.AbstractEventLoop) -> "_LoopState":
        state = self._loops[loop] = _LoopState(self._slots.of_loop(loop), wakeups_of(loop))
        return state

    def _enqueue(self, job: J, loop: asyncio.AbstractEventLoop, wakeups: "Wakeups") -> "asyncio.Future[Any]":
        if os.getpid() != self._process:  # a fork does not copy the threads
            raise StoreClosed(f"{self._name} was opened before a fork; open it again in this process")
        job.future, job.wakeups = loop.create_future(), wakeups
        with self._queue_lock:  # no job may enter the queue after the None that ends a thread
            if self._closed:
                raise StoreClosed
            job.is_queued = True
            self._jobs.put(job)
        return job.future

    def close(self) -> None:
        """Finish the jobs in the queue, then end the threads. Blocks; call it off the event loop."""
        if os.getpid() != self._process:
            return
        with self._queue_lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class _LoopState(NamedTuple):
    """The slots and wakeups of one event loop, found with one lookup per job."""

    slots: "LoopSlots"
    wakeups: "Wakeups"


def batches(jobs: Jobs[J], most: int) -> Iterator[list[J]]:
    """Yield all waiting jobs, at least one and at most `most`, until the queue is closed.

    The limit keeps a continuous stream of jobs from delaying the batch forever.
    """
    ended = False
    while not ended and (job := jobs.get()) is not None:
        batch = [job]
        with suppress(queue.Empty):
            while not ended and len(batch) < most:
                if (job := jobs.get_nowait()) is None:
                    ended = True
                else:
                    batch.append(job)
        yield batch


def deliver(jobs: Sequence[Job]) -> None:
    """Pass finished jobs to their event loops, with one wakeup for each loop."""
    by_loop: dict[Wakeups, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.wakeups, []).append(job)
    for wakeups, finished in by_loop.items():
        wakeups.post(finished)


# Back-pressure


class Slots:
    """Admit at most `limit` callers; others wait until a deadline, then get `Overloaded`.

    An unbounded queue uses up all memory when the disk or the server is slow. Each event loop has slots of
    its own, because a future belongs to one loop.
    """

    def __init__(self, name: str, *, limit: int, max_waiting: int, timeout: float) -> None:
        self._name = name
        self._limit = limit
        self._max_waiting = max_waiting
        self._timeout = timeout
        self._waiting = 0
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopSlots] = WeakKeyDictionary()

    async def enter(self) -> "LoopSlots":
        """Take a slot; the caller releases it. Raise `Overloaded`."""
        slots = self.of_loop(asyncio.get_running_loop())
        if not slots.take():
            await self.wait(slots)
        return slots

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> "LoopSlots":
        """Return the slots of a loop."""
        slots = self._loops.get(loop)
        if slots is None:
            slots = self._loops[loop] = LoopSlots(self._limit)
        return slots

    async def wait(self, slots: "LoopSlots") -> None:
        """Wait until a slot is free. Raise `Overloaded`."""
        if self._waiting >= self._max_waiting:
            raise Overloaded(f"{self._name}: {self._waiting:,} callers are waiting already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout):
                await slots.next_slot()
        except TimeoutError:
            raise Overloaded(f"{self._name}: no slot became free within {self._timeout:g} s") from None
        finally:
            self._waiting -= 1


class LoopSlots:
    """The slots of one event loop, assigned in order of arrival. Every turn takes one, so taking a free
    slot does not wait."""

    __slots__ = ("__weakref__", "_free", "_queue")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._queue: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a slot if one is free, and return whether it was. No slot is free while callers wait."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def next_slot(self) -> None:
        """Wait in the queue until `release` assigns a slot."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():
                self.release()  # the slot was assigned at the moment of cancellation: pass it on
            raise

    def release(self) -> None:
        """Assign the slot to the first waiting caller, or make it free."""
        while self._queue:
            slot = self._queue.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1


# Wakeups
#
# `call_soon_threadsafe` writes a byte to a socket, reads the socket twice, and allocates a handle with a copy
# of the context. An eventfd counter needs one write and one read, which saves about twenty microseconds per
# call.


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
    wakeups = _wakeups.get(loop)
    if wakeups is None:
        wakeups = _wakeups[loop] = _new_wakeups(loop)
    return wakeups


_wakeups: WeakKeyDictionary[asyncio.AbstractEventLoop, Wakeups] = WeakKeyDictionary()


def _new_wakeups(loop: asyncio.AbstractEventLoop) -> Wakeups:
    if not hasattr(os, "eventfd"):
        return CallbackWakeups(loop)
    wakeups = EventfdWakeups()
    try:
        loop.add_reader(wakeups.counter, wakeups.drain)
    except NotImplementedError:
        return CallbackWakeups(loop)
    return wakeups


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
