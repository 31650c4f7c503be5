"""Threads that do the database's work while the event loop goes on.

A `ReaderPool` runs each job on whichever of its threads is free. A `WriterThread` has one thread; it
takes the jobs that are waiting and commits them in one transaction, so that the price of making
data durable is paid once for many turns. Below: the engine. Above: `backend`.
"""

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

import apsw

from aforesaid.contracts import Appended
from aforesaid.errors import AforesaidError, StoreBusy, StoreClosed
from aforesaid.stores._slots import LoopSlots, Slots
from aforesaid.stores._wakeups import Wakeups, wakeups_of
from aforesaid.stores.sqlite.connections import LOCK_TIMEOUT, LockWait, ours
from aforesaid.stores.sqlite.identity import OpenFiles
from aforesaid.stores.sqlite.logs import Ends, OthersWroteError, Turn

log = logging.getLogger("aforesaid.stores.sqlite")
T = TypeVar("T")
Work = Callable[[apsw.Connection], Any]

LARGEST_BATCH = 64
"""Jobs in one transaction: enough that the commit costs next to nothing for each, and a bound."""

WORTH_SPLITTING = 50e-6
"""Seconds of the last batch, for each job that waits now, up to which two batches cost less than one."""

AT_REST_SECONDS = 0.05
"""Without a job for so long, the writing thread has time for what nobody waits for."""

MOST_JOBS = 4096
"""Jobs that may be in a lane's queue; whoever comes after them waits for a place, and then is refused."""
WAIT_SECONDS = 30.0
LATE_WAIT_SECONDS = 0.25
"""How long a job waits for a lock when its time was spent in the queue: enough for a usual transaction."""


class Job:
    """Work for a lane, and the future that waits for it."""

    __slots__ = ("asked", "box", "error", "future", "result", "turn", "work")

    def __init__(
        self, work: Work, future: asyncio.Future[Any], box: Wakeups, *, turn: Turn | None, asked: float
    ) -> None:
        self.work = work
        self.asked = asked
        """When the caller asked (`time.monotonic`): its time for waiting begins there."""
        self.box = box
        self.turn = turn
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def attempt(self, connection: apsw.Connection, path: str) -> None:
        """Do the work; keep what it returns or raises."""
        try:
            self.result = self.work(connection)
        except Exception as error:  # noqa: BLE001  whatever the work raised belongs to whoever waits for it
            self.error = ours(error, path)

    def settle(self) -> None:
        """Tell whoever waits. Runs on the event loop."""
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class LoopQueue(NamedTuple):
    """What an event loop needs of a lane: places for its jobs, and where it is told."""

    places: LoopSlots
    box: Wakeups


class WorkerPool:
    """Threads that share a queue of jobs. `close` finishes what was accepted."""

    def __init__(
        self,
        path: str,
        connections: Iterable[apsw.Connection],
        *,
        name: str,
        files: OpenFiles,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self._path = path
        self._files = files
        self._lock_timeout = lock_timeout
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._slots = Slots(path, places=MOST_JOBS, waiting=MOST_JOBS * 8, deadline=WAIT_SECONDS)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = WeakKeyDictionary()
        self._door = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(connection,), name=f"aforesaid-{name}", daemon=True)
            for connection in connections
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[apsw.Connection], T], *, turn: Turn | None = None) -> T:
        """Do the work on a thread of this lane and wait for it. `turn` is the turn that it puts, if it does.

        Cancelled while still in the queue, the work is not done; cancelled later, it is done whole.
        """
        asked = time.monotonic()
        loop = asyncio.get_running_loop()
        places, box = self._loops.get(loop) or self._new_loop(loop)
        if not places.take():
            await self._slots.wait(places)
        try:
            job = Job(work, loop.create_future(), box, turn=turn, asked=asked)
            self._accept(job)
            return cast(T, await job.future)
        finally:
            places.release()

    def _new_loop(self, loop: asyncio.AbstractEventLoop) -> LoopQueue:
        loop_queue = self._loops[loop] = LoopQueue(self._slots.room(loop), wakeups_of(loop))
        return loop_queue

    def _accept(self, job: Job) -> None:
        if os.getpid() != self._process:
            raise StoreClosed(f"{self._path} was opened before a fork; open it again in this process")
        with self._door:  # so that no job can slip in behind the one that ends the threads
            if self._closed:
                raise StoreClosed
            self._jobs.put(job)

    def close(self) -> None:
        """Finish the jobs in the queue, then end the threads. Blocks; call it off the event loop."""
        if os.getpid() != self._process:
            return  # the threads stayed behind in the process that was forked
        with self._door:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, connection: apsw.Connection) -> None:
        try:
            self._serve(connection)
        finally:
            connection.close()

    def _serve(self, connection: apsw.Connection) -> None:
        """What a thread does until the lane is closed."""

    def _wait_until(self, oldest: Job, *, was_busy: bool) -> float:
        """Until when a job waits for locks. Where the one before was refused, one that has no time left is
        refused without waiting, so that the waits of a whole queue do not add up."""
        late = 0.0 if was_busy else LATE_WAIT_SECONDS
        return max(oldest.asked + self._lock_timeout, time.monotonic() + min(late, self._lock_timeout))


class ReaderPool(WorkerPool):
    """Each job by itself."""

    def _serve(self, connection: apsw.Connection) -> None:
        wait = LockWait()
        connection.set_busy_handler(wait)
        was_busy = False
        while (job := self._jobs.get()) is not None:
            if not job.future.cancelled():
                wait.until = self._wait_until(job, was_busy=was_busy)
                self._read(job, connection)
                was_busy = isinstance(job.error, StoreBusy)
                _settle([job])

    def _read(self, job: Job, connection: apsw.Connection) -> None:
        try:
            self._files.check_again()
        except (AforesaidError, OSError) as error:
            job.error = ours(error, self._path)
        else:
            job.attempt(connection, self._path)


class AtRest(Protocol):
    """What the writing thread does, bit by bit, while it has nothing else to do."""

    waiting: int
    """How much there is to do, about."""

    @property
    def has_work(self) -> bool: ...

    @property
    def is_late(self) -> bool:
        """Whether it cannot wait any longer."""

    def do_some(self, db: apsw.Connection) -> None: ...


class WriterThread(WorkerPool):
    """The waiting jobs in one transaction; a job that fails is undone alone.

    Turns that wait together are put by one statement, in which the event loop runs. Under load, two batches
    take turns: while the engine and the disk take one, the event loop runs the tasks whose turns were in the
    other. For that the tasks are told late, when the next statement is about to begin. Told earlier, they
    would only take the interpreter from this thread, and then wait while the disk is busy.

    `ends` puts the turns. What it remembers is forgotten before they are put one by one, and before anything
    else is written. `at_rest` is what there is to do when no job comes for a moment.
    """

    def __init__(
        self,
        path: str,
        connection: apsw.Connection,
        *,
        name: str,
        files: OpenFiles,
        ends: Ends,
        at_rest: AtRest | None = None,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self._ends = ends
        self._at_rest = at_rest
        self._unfinished = False
        self._untold: list[Job] = []
        self._batch_seconds = 0.0
        self._lock_wait = LockWait()
        self._was_busy = False
        connection.set_busy_handler(self._wait_for_others)
        super().__init__(path, [connection], name=name, files=files, lock_timeout=lock_timeout)

    def put(self, turn: Turn) -> Coroutine[Any, Any, Appended]:
        """Put a turn at the end of its log."""
        return self.run(lambda db: self._ends.put(db, turn), turn=turn)

    def _serve(self, connection: apsw.Connection) -> None:
        while (job := self._next(connection)) is not None:
            jobs = [one for one in (job, *self._waiting()) if not one.future.cancelled()]
            if not jobs:
                continue
            self._lock_wait.until = self._wait_until(jobs[0], was_busy=self._was_busy)
            try:
                self._commit_checked(jobs, connection)
            except Exception as error:  # noqa: BLE001  the transaction failed as a whole: none of it was stored
                for one in jobs:
                    one.error = one.error or ours(error, self._path)
            self._was_busy = isinstance(jobs[0].error, StoreBusy)
            self._untold += jobs
            self._catch_up(connection)
        self._tell()

    def _commit_checked(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Commit if the files still have their names. Check again afterwards: a batch that went into a file
        without a name must not be acknowledged."""
        self._files.check_name()
        self._commit(jobs, connection)
        try:
            self._files.check()
        except BaseException:
            self._ends.forget()
            raise

    def _next(self, connection: apsw.Connection) -> Job | None:
        if self._jobs.empty():
            self._tell()
            while self._at_rest is not None and self._at_rest.has_work:
                try:
                    return self._jobs.get(timeout=AT_REST_SECONDS)
                except queue.Empty:
                    if not self._rest(self._at_rest, connection):
                        break
        return self._jobs.get()

    def _rest(self, at_rest: AtRest, connection: apsw.Connection) -> bool:
        """Do a bit of what nobody waits for; whether that worked. If not, it is tried after the next job."""
        waiting = at_rest.waiting
        self._lock_wait.until = time.monotonic() + min(LATE_WAIT_SECONDS, self._lock_timeout)
        try:
            self._files.check_again()
            self._begin(connection)
            at_rest.do_some(connection)
            self._finish(connection)
        except Exception as error:  # noqa: BLE001  nobody waits for it, so nobody can be told but the log
            log.warning("%s", ours(error, self._path))
            at_rest.waiting = waiting
            return False
        finally:
            self._undo(connection)
        return True

    def _catch_up(self, connection: apsw.Connection) -> None:
        """Do what cannot wait until nobody comes; those whose work is committed are told after it."""
        at_rest = self._at_rest
        while at_rest is not None and at_rest.is_late and self._rest(at_rest, connection):
            pass

    def _waiting(self) -> list[Job]:
        """The other jobs for this batch: all that wait, or half of them where two batches pay."""
        count = min(self._jobs.qsize(), LARGEST_BATCH - 1)
        if not self._untold and self._batch_seconds < count * WORTH_SPLITTING:
            count //= 2
        jobs = [self._jobs.get_nowait() for _ in range(count)]
        if jobs and jobs[-1] is None:
            self._jobs.put(jobs.pop())  # closing: end after this batch
        return cast(list[Job], jobs)

    def _commit(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Hope first: nearly always every job succeeds, and none needs a savepoint of its own."""
        turns = [job.turn for job in jobs if job.turn is not None]
        if len(turns) == len(jobs):
            done = self._put_at_once(jobs, turns, connection)
        else:
            done = self._commit_together(jobs, connection)
        if not done:
            self._commit_apart(jobs, connection)

    def _put_at_once(self, jobs: list[Job], turns: list[Turn], connection: apsw.Connection) -> bool:
        """Whether that worked. If not, whose fault it is shows when each is put by itself."""
        begin = time.perf_counter()
        try:
            put = self._ends.put_at_once(connection, turns, meanwhile=self._tell)
        except apsw.BusyError:
            raise  # that was waited for long enough
        except (apsw.ConstraintError, apsw.FullError, AforesaidError, OthersWroteError):
            return False
        except apsw.Error as error:  # which may not come again when they are, and nobody would know
            log.warning("turns are put one by one: %s", ours(error, self._path))
            return False
        self._batch_seconds = time.perf_counter() - begin
        for job, result in zip(jobs, put, strict=True):
            job.result = result
        return True

    def _commit_together(self, jobs: list[Job], connection: apsw.Connection) -> bool:
        """Whether all of them succeeded. If not, none was done."""
        self._ends.forget()
        try:
            self._begin(connection)
            for job in jobs:
                self._attempt(job, connection)
                if job.error is not None:
                    return len(jobs) == 1
            self._end(connection)
        finally:
            self._undo(connection)
        return True

    def _commit_apart(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Do them again, those that succeed in one transaction, those that fail undone."""
        self._ends.forget()
        try:
            self._begin(connection)
            for job in jobs:
                job.error = None
                connection.execute("SAVEPOINT job")
                self._attempt(job, connection)
                if job.error is not None:
                    if not connection.in_transaction:
                        raise job.error  # the engine undid all of them, as when the disk is full
                    connection.execute("ROLLBACK TO job")
                connection.execute("RELEASE job")
            self._end(connection)
        finally:
            self._undo(connection)

    def _begin(self, connection: apsw.Connection) -> None:
        self._unfinished = True
        connection.execute("BEGIN IMMEDIATE")

    def _attempt(self, job: Job, connection: apsw.Connection) -> None:
        if job.turn is None:
            self._tell()  # this may take its time
        job.attempt(connection, self._path)

    def _end(self, connection: apsw.Connection) -> None:
        self._tell()
        begin = time.perf_counter()
        self._finish(connection)
        self._batch_seconds = time.perf_counter() - begin

    def _finish(self, connection: apsw.Connection) -> None:
        connection.execute("COMMIT")
        self._unfinished = False

    def _undo(self, connection: apsw.Connection) -> None:
        if not self._unfinished:
            return
        self._unfinished = False
        if connection.in_transaction:  # the engine undoes some failures by itself
            connection.execute("ROLLBACK")

    def _wait_for_others(self, attempt: int) -> bool:
        self._tell()
        return self._lock_wait(attempt)

    def _tell(self) -> None:
        """Let those go on whose work is committed."""
        if self._untold:
            describe, self._untold = self._untold, []
            _settle(describe)


def _settle(jobs: list[Job]) -> None:
    """Hand the results to the event loops, one wake-up for each loop."""
    by_box: dict[Wakeups, list[Job]] = {}
    for job in jobs:
        by_box.setdefault(job.box, []).append(job)
    for box, mine in by_box.items():
        box.post(mine)
