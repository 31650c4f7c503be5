"""Threads that access the database, so that the event loop never blocks.

A `ReaderPool` runs each job on a free thread. A `WriterThread` commits all waiting jobs in one transaction,
so that many turns share the cost of one durable write.
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
from aforesaid.stores.sqlite.connections import LOCK_TIMEOUT, LockWait, translate_error
from aforesaid.stores.sqlite.identity import OpenFiles
from aforesaid.stores.sqlite.logs import ConcurrentWriteError, LogAppender, Turn

log = logging.getLogger("aforesaid.stores.sqlite")
T = TypeVar("T")
Work = Callable[[apsw.Connection], Any]

MAX_BATCH = 64
"""Jobs per transaction: enough to make the commit cheap for each job."""

SPLIT_THRESHOLD = 50e-6
"""Seconds of the last batch per waiting job, below which two batches are faster than one."""

IDLE_SECONDS = 0.05
"""Seconds without a job after which the writer does background work."""

MAX_QUEUED = 4096
"""Jobs in a queue; further callers wait for a slot and are then refused."""
WAIT_SECONDS = 30.0
LATE_WAIT_SECONDS = 0.25
"""How long a job waits for a lock if it spent its time in the queue: enough for a usual transaction."""


class Job:
    """Work for a thread, with its future."""

    __slots__ = ("called_at", "error", "future", "result", "turn", "wakeups", "work")

    def __init__(
        self,
        work: Work,
        future: asyncio.Future[Any],
        wakeups: Wakeups,
        *,
        turn: Turn | None,
        called_at: float,
    ) -> None:
        self.work = work
        self.called_at = called_at
        """Time of the call (`time.monotonic`), from which its lock timeout counts."""
        self.wakeups = wakeups
        self.turn = turn
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def attempt(self, connection: apsw.Connection, path: str) -> None:
        """Run the work and record its result or error."""
        try:
            self.result = self.work(connection)
        except Exception as error:  # noqa: BLE001  the caller of the job gets every error
            self.error = translate_error(error, path)

    def settle(self) -> None:
        """Resolve the future. Runs on the event loop."""
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class LoopQueue(NamedTuple):
    """The slots and the wakeup queue of one event loop."""

    slots: LoopSlots
    wakeups: Wakeups


class WorkerPool:
    """Threads with a shared job queue. `close` finishes all accepted jobs."""

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
        self._slots = Slots(path, limit=MAX_QUEUED, max_waiting=MAX_QUEUED * 8, timeout=WAIT_SECONDS)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = WeakKeyDictionary()
        self._queue_lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(connection,), name=f"aforesaid-{name}", daemon=True)
            for connection in connections
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[apsw.Connection], T], *, turn: Turn | None = None) -> T:
        """Run the work on a thread and wait for it. Pass `turn` if the work only stores that turn.

        Cancellation removes a job from the queue; once started, a job completes.
        """
        called_at = time.monotonic()
        loop = asyncio.get_running_loop()
        slots, wakeups = self._loops.get(loop) or self._new_loop(loop)
        if not slots.take():
            await self._slots.wait(slots)
        try:
            job = Job(work, loop.create_future(), wakeups, turn=turn, called_at=called_at)
            self._accept(job)
            return cast(T, await job.future)
        finally:
            slots.release()

    def _new_loop(self, loop: asyncio.AbstractEventLoop) -> LoopQueue:
        loop_queue = self._loops[loop] = LoopQueue(self._slots.of_loop(loop), wakeups_of(loop))
        return loop_queue

    def _accept(self, job: Job) -> None:
        if os.getpid() != self._process:
            raise StoreClosed(f"{self._path} was opened before a fork; open it again in this process")
        with self._queue_lock:  # no job may enter the queue after the ones that end the threads
            if self._closed:
                raise StoreClosed
            self._jobs.put(job)

    def close(self) -> None:
        """Finish the jobs in the queue, then end the threads. Blocks; call it off the event loop."""
        if os.getpid() != self._process:
            return  # after a fork, the threads exist only in the parent process
        with self._queue_lock:
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
        """Process jobs until the pool is closed."""

    def _wait_until(self, oldest: Job, *, was_busy: bool) -> float:
        """Return the time until which a job waits for locks. After a job that timed out, a job without
        time left does not wait at all, so that the waits of a queue do not add up."""
        late = 0.0 if was_busy else LATE_WAIT_SECONDS
        return max(oldest.called_at + self._lock_timeout, time.monotonic() + min(late, self._lock_timeout))


class ReaderPool(WorkerPool):
    """Threads that run one job at a time."""

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
            job.error = translate_error(error, self._path)
        else:
            job.attempt(connection, self._path)


class BackgroundWork(Protocol):
    """Background work of the writer, done in small portions while no job waits."""

    waiting: int
    """The approximate amount of work."""

    @property
    def has_work(self) -> bool: ...

    @property
    def is_overdue(self) -> bool:
        """Whether the work must be done even while jobs wait."""

    def run_some(self, db: apsw.Connection) -> None: ...


class WriterThread(WorkerPool):
    """The thread that commits waiting jobs in one transaction. A failed job is rolled back alone.

    One statement stores all waiting turns; SQLite releases the interpreter lock meanwhile, so the event loop
    runs. Under load, two batches alternate: while SQLite writes one, the event loop resumes the callers of
    the other. Therefore results are delivered late, right before the next statement. Delivered earlier, the
    callers would only compete with this thread for the interpreter and then wait for the disk.

    `appender` stores the turns. Its cache of records is cleared before turns are stored one by one and before
    any other write. `background` is the background work.
    """

    def __init__(
        self,
        path: str,
        connection: apsw.Connection,
        *,
        name: str,
        files: OpenFiles,
        appender: LogAppender,
        background: BackgroundWork | None = None,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self._appender = appender
        self._background = background
        self._unfinished = False
        self._undelivered: list[Job] = []
        self._batch_seconds = 0.0
        self._lock_wait = LockWait()
        self._was_busy = False
        connection.set_busy_handler(self._wait_for_others)
        super().__init__(path, [connection], name=name, files=files, lock_timeout=lock_timeout)

    def append(self, turn: Turn) -> Coroutine[Any, Any, Appended]:
        """Append a turn to its log."""
        return self.run(lambda db: self._appender.append(db, turn), turn=turn)

    def _serve(self, connection: apsw.Connection) -> None:
        while (job := self._next(connection)) is not None:
            jobs = [one for one in (job, *self._waiting()) if not one.future.cancelled()]
            if not jobs:
                continue
            self._lock_wait.until = self._wait_until(jobs[0], was_busy=self._was_busy)
            try:
                self._commit_checked(jobs, connection)
            except Exception as error:  # noqa: BLE001  the transaction failed: nothing of it was stored
                for one in jobs:
                    one.error = one.error or translate_error(error, self._path)
            self._was_busy = isinstance(jobs[0].error, StoreBusy)
            self._undelivered += jobs
            self._catch_up(connection)
        self._deliver()

    def _commit_checked(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Commit if the paths still refer to the open files. Check again afterwards, because a batch that
        went to a deleted file must not be acknowledged."""
        self._files.check_name()
        self._commit(jobs, connection)
        try:
            self._files.check()
        except BaseException:
            self._appender.clear_cache()
            raise

    def _next(self, connection: apsw.Connection) -> Job | None:
        if self._jobs.empty():
            self._deliver()
            while self._background is not None and self._background.has_work:
                try:
                    return self._jobs.get(timeout=IDLE_SECONDS)
                except queue.Empty:
                    if not self._run_background(self._background, connection):
                        break
        return self._jobs.get()

    def _run_background(self, background: BackgroundWork, connection: apsw.Connection) -> bool:
        """Do some background work; return whether it succeeded. A failure is retried after the next job."""
        waiting = background.waiting
        self._lock_wait.until = time.monotonic() + min(LATE_WAIT_SECONDS, self._lock_timeout)
        try:
            self._files.check_again()
            self._begin(connection)
            background.run_some(connection)
            self._finish(connection)
        except Exception as error:  # noqa: BLE001  no caller waits for this work, so only log the error
            log.warning("%s", translate_error(error, self._path))
            background.waiting = waiting
            return False
        finally:
            self._undo(connection)
        return True

    def _catch_up(self, connection: apsw.Connection) -> None:
        """Do background work that is overdue. Callers of committed jobs wait for it."""
        background = self._background
        while (
            background is not None and background.is_overdue and self._run_background(background, connection)
        ):
            pass

    def _waiting(self) -> list[Job]:
        """Return further jobs for this batch: all waiting ones, or half of them if two batches are faster."""
        count = min(self._jobs.qsize(), MAX_BATCH - 1)
        if not self._undelivered and self._batch_seconds < count * SPLIT_THRESHOLD:
            count //= 2
        jobs = [self._jobs.get_nowait() for _ in range(count)]
        if jobs and jobs[-1] is None:
            self._jobs.put(jobs.pop())  # closing: end after this batch
        return cast(list[Job], jobs)

    def _commit(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Try all jobs without savepoints first: nearly always every job succeeds."""
        turns = [job.turn for job in jobs if job.turn is not None]
        if len(turns) == len(jobs):
            done = self._append_all(jobs, turns, connection)
        else:
            done = self._commit_together(jobs, connection)
        if not done:
            self._commit_one_by_one(jobs, connection)

    def _append_all(self, jobs: list[Job], turns: list[Turn], connection: apsw.Connection) -> bool:
        """Store all turns with one statement; return whether it succeeded. After a failure, storing them
        one by one finds the cause."""
        begin = time.perf_counter()
        try:
            results = self._appender.append_all(connection, turns, before_write=self._deliver)
        except apsw.BusyError:
            raise  # the lock timeout has passed
        except (apsw.ConstraintError, apsw.FullError, AforesaidError, ConcurrentWriteError):
            return False
        except apsw.Error as error:  # log it: the error may not occur again one by one
            log.warning("storing turns one by one: %s", translate_error(error, self._path))
            return False
        self._batch_seconds = time.perf_counter() - begin
        for job, result in zip(jobs, results, strict=True):
            job.result = result
        return True

    def _commit_together(self, jobs: list[Job], connection: apsw.Connection) -> bool:
        """Run all jobs in one transaction; return whether all succeeded. After a failure, none has an
        effect."""
        self._appender.clear_cache()
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

    def _commit_one_by_one(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Run the jobs again with a savepoint each, so that only failed jobs are rolled back."""
        self._appender.clear_cache()
        try:
            self._begin(connection)
            for job in jobs:
                job.error = None
                connection.execute("SAVEPOINT job")
                self._attempt(job, connection)
                if job.error is not None:
                    if not connection.in_transaction:
                        raise job.error  # SQLite rolled back the whole transaction, as when the disk is full
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
            self._deliver()  # the work may take long
        job.attempt(connection, self._path)

    def _end(self, connection: apsw.Connection) -> None:
        self._deliver()
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
        if connection.in_transaction:  # SQLite rolls back by itself after some errors
            connection.execute("ROLLBACK")

    def _wait_for_others(self, attempt: int) -> bool:
        self._deliver()
        return self._lock_wait(attempt)

    def _deliver(self) -> None:
        """Deliver the results of committed jobs."""
        if self._undelivered:
            jobs, self._undelivered = self._undelivered, []
            _settle(jobs)


def _settle(jobs: list[Job]) -> None:
    """Pass the jobs to their event loops, with one wakeup for each loop."""
    by_loop: dict[Wakeups, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.wakeups, []).append(job)
    for wakeups, finished in by_loop.items():
        wakeups.post(finished)
