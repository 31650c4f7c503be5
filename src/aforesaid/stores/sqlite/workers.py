"""Threads that access the database: readers run one job at a time, the writer commits all waiting jobs in one
transaction, so that many turns share the cost of one durable write."""

import logging
import queue
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

import apsw

from aforesaid.contracts import Appended
from aforesaid.errors import AforesaidError, StoreBusy
from aforesaid.stores._worker import WAIT_SECONDS, Job, Jobs, WorkerThreads, deliver
from aforesaid.stores.sqlite.connections import LockWait, OpenFiles, translate_error
from aforesaid.stores.sqlite.logs import ConcurrentWriteError, LogAppender, Turn

log = logging.getLogger("aforesaid.stores.sqlite")
T = TypeVar("T")

# Jobs per transaction: enough to make the commit cheap for each job.
MAX_BATCH = 64

# Seconds of the last batch per waiting job, below which two batches are faster than one.
SPLIT_THRESHOLD = 50e-6

# Seconds without a job after which the writer does background work.
IDLE_SECONDS = 0.05

# Jobs in a queue; further callers wait for a slot and are then refused.
MAX_QUEUED = 4096
# How long a job waits for a lock if it spent its time in the queue: enough for a usual transaction.
LATE_WAIT_SECONDS = 0.25


class TurnJob(Job):
    """The append of one turn, which can share a statement with other turns."""

    __slots__ = ("turn",)

    def __init__(self, work: Callable[[apsw.Connection], Any], turn: Turn) -> None:
        super().__init__(work)
        self.turn = turn


def _attempt(job: Job, connection: apsw.Connection, path: str) -> None:
    """Run the work and record its result or error."""
    try:
        job.result = job.work(connection)
    except Exception as error:  # noqa: BLE001  the caller of the job gets every error
        job.error = translate_error(error, path)


def _wait_until(oldest: Job, *, lock_timeout: float, was_busy: bool) -> float:
    """Return the time until which a job waits for locks. After a job that timed out, a job without time left
    does not wait at all, so that the waits of a queue do not add up."""
    late = 0.0 if was_busy else LATE_WAIT_SECONDS
    return max(oldest.called_at + lock_timeout, time.monotonic() + min(late, lock_timeout))


class Readers:
    """Reader threads, each with a connection."""

    def __init__(
        self, path: str, connections: Sequence[apsw.Connection], *, files: OpenFiles, lock_timeout: float
    ) -> None:
        readers = [_Reader(path, connection, files, lock_timeout) for connection in connections]
        self._threads = WorkerThreads[Job](
            path,
            *(reader.serve for reader in readers),
            thread_name="reader",
            max_queued=MAX_QUEUED,
            timeout=WAIT_SECONDS,
        )

    def run(self, work: Callable[[apsw.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run the work on a free thread and return its result."""
        return self._threads.run(Job(work))

    def close(self) -> None:
        """Finish the accepted jobs. Blocks."""
        self._threads.close()


class _Reader:
    """One reader thread."""

    def __init__(self, path: str, connection: apsw.Connection, files: OpenFiles, lock_timeout: float) -> None:
        self._path = path
        self._connection = connection
        self._files = files
        self._lock_timeout = lock_timeout

    def serve(self, jobs: Jobs[Job]) -> None:
        """Run the jobs until the queue is closed."""
        wait = LockWait()
        self._connection.set_busy_handler(wait)
        was_busy = False
        try:
            while (job := jobs.get()) is not None:
                if not job.future.cancelled():
                    wait.until = _wait_until(job, lock_timeout=self._lock_timeout, was_busy=was_busy)
                    self._read(job)
                    was_busy = isinstance(job.error, StoreBusy)
                    deliver([job])
        finally:
            self._connection.close()

    def _read(self, job: Job) -> None:
        try:
            self._files.check_again()
        except (AforesaidError, OSError) as error:
            job.error = translate_error(error, self._path)
        else:
            _attempt(job, self._connection, self._path)


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


class Writer:
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
        files: OpenFiles,
        appender: LogAppender,
        background: BackgroundWork | None,
        lock_timeout: float,
    ) -> None:
        self._path = path
        self._connection = connection
        self._files = files
        self._appender = appender
        self._background = background
        self._lock_timeout = lock_timeout
        self._unfinished = False
        self._undelivered: list[Job] = []
        self._batch_seconds = 0.0
        self._lock_wait = LockWait()
        self._was_busy = False
        connection.set_busy_handler(self._wait_for_others)
        self._threads = WorkerThreads[Job](
            path, self._serve, thread_name="writer", max_queued=MAX_QUEUED, timeout=WAIT_SECONDS
        )

    def run(self, work: Callable[[apsw.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run the work in a transaction; return its result after the commit."""
        return self._threads.run(Job(work))

    def append(self, turn: Turn) -> Coroutine[Any, Any, Appended]:
        """Append a turn to its log."""
        return self._threads.run(TurnJob(lambda db: self._appender.append(db, turn), turn))

    def close(self) -> None:
        """Finish the accepted jobs. Blocks."""
        self._threads.close()

    # The thread

    def _serve(self, jobs: Jobs[Job]) -> None:
        try:
            while (job := self._next(jobs)) is not None:
                batch = [one for one in (job, *self._waiting(jobs)) if not one.future.cancelled()]
                if batch:
                    self._process(batch)
            self._deliver()
        finally:
            self._connection.close()

    def _process(self, jobs: list[Job]) -> None:
        self._lock_wait.until = _wait_until(jobs[0], lock_timeout=self._lock_timeout, was_busy=self._was_busy)
        try:
            self._commit(jobs)
        except Exception as error:  # noqa: BLE001  the transaction failed: nothing of it was stored
            for one in jobs:
                one.error = one.error or translate_error(error, self._path)
        self._was_busy = isinstance(jobs[0].error, StoreBusy)
        # Delivered right before the next statement, or as soon as no job waits.
        self._undelivered += jobs
        self._catch_up()

    def _next(self, jobs: Jobs[Job]) -> Job | None:
        if jobs.empty():
            # No job waits, so delivering later gains nothing: a single caller gets its answer at once.
            self._deliver()
            while self._background is not None and self._background.has_work:
                try:
                    return jobs.get(timeout=IDLE_SECONDS)
                except queue.Empty:
                    if not self._run_background(self._background):
                        break
        return jobs.get()

    def _run_background(self, background: BackgroundWork) -> bool:
        """Do some background work; return whether it succeeded. A failure is retried after the next job."""
        waiting = background.waiting
        self._lock_wait.until = time.monotonic() + min(LATE_WAIT_SECONDS, self._lock_timeout)
        try:
            self._files.check_again()
            self._begin()
            background.run_some(self._connection)
            self._finish()
        except Exception as error:  # noqa: BLE001  no caller waits for this work, so only log the error
            found = translate_error(error, self._path)
            # Another process at work is no reason to worry: the work is done after the next job.
            level = logging.DEBUG if isinstance(found, StoreBusy) else logging.WARNING
            log.log(level, "indexing is delayed: %s", found)
            background.waiting = waiting
            return False
        finally:
            self._undo()
        return True

    def _catch_up(self) -> None:
        """Do background work that is overdue. Callers of committed jobs wait for it."""
        background = self._background
        while background is not None and background.is_overdue and self._run_background(background):
            pass

    def _waiting(self, jobs: Jobs[Job]) -> list[Job]:
        """Return further jobs for this batch: all waiting ones, or half of them if two batches are faster."""
        count = min(jobs.qsize(), MAX_BATCH - 1)
        # With undelivered jobs, two batches alternate already. Otherwise halve a fast batch: while SQLite
        # writes the second half, the event loop resumes the callers of the first.
        if not self._undelivered and self._batch_seconds < count * SPLIT_THRESHOLD:
            count //= 2
        batch = [jobs.get_nowait() for _ in range(count)]
        if batch and batch[-1] is None:
            jobs.put(batch.pop())  # closing: end after this batch
        return cast(list[Job], batch)

    def _commit(self, jobs: list[Job]) -> None:
        """Commit the jobs if the paths still refer to the open files. Check again afterwards, because a batch
        that went to a deleted file must not be acknowledged."""
        self._files.check_name()
        # Without savepoints first: nearly always every job succeeds.
        turns = [job.turn for job in jobs if isinstance(job, TurnJob)]
        only_turns = len(turns) == len(jobs)
        if not (self._append_all(jobs, turns) if only_turns else self._commit_together(jobs)):
            self._commit_one_by_one(jobs)
        try:
            self._files.check()
        except BaseException:
            self._appender.clear_cache()
            raise

    def _append_all(self, jobs: list[Job], turns: list[Turn]) -> bool:
        """Store all turns with one statement; return whether it succeeded. After a failure, storing them
        one by one finds the cause."""
        begin = time.perf_counter()
        try:
            # In autocommit mode one statement is a whole transaction. A batch of 32 turns used to be seven
            # statements, and after each this thread had to wait for the interpreter lock.
            results = self._appender.append_all(self._connection, turns, before_write=self._deliver)
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

    def _commit_together(self, jobs: list[Job]) -> bool:
        """Run all jobs in one transaction; return whether all succeeded. After a failure, none has an
        effect."""
        # These jobs may change records that the appender has cached.
        self._appender.clear_cache()
        try:
            self._begin()
            for job in jobs:
                self._attempt(job)
                if job.error is not None:
                    return len(jobs) == 1
            self._end()
        finally:
            self._undo()
        return True

    def _commit_one_by_one(self, jobs: list[Job]) -> None:
        """Run the jobs again with a savepoint each, so that only failed jobs are rolled back."""
        self._appender.clear_cache()
        try:
            self._begin()
            for job in jobs:
                job.error = None
                self._connection.execute("SAVEPOINT job")
                self._attempt(job)
                if job.error is not None:
                    if not self._connection.in_transaction:
                        raise job.error  # SQLite rolled back the whole transaction, as when the disk is full
                    self._connection.execute("ROLLBACK TO job")
                self._connection.execute("RELEASE job")
            self._end()
        finally:
            self._undo()

    def _begin(self) -> None:
        self._unfinished = True
        # Take the write lock now. A transaction that starts as a reader and writes later fails at once,
        # without the busy handler, if another connection wrote in between.
        self._connection.execute("BEGIN IMMEDIATE")

    def _attempt(self, job: Job) -> None:
        if not isinstance(job, TurnJob):
            self._deliver()  # the work may take long
        _attempt(job, self._connection, self._path)

    def _end(self) -> None:
        # The callers of the previous batch run while the disk is busy with this one.
        self._deliver()
        begin = time.perf_counter()
        self._finish()
        self._batch_seconds = time.perf_counter() - begin

    def _finish(self) -> None:
        self._connection.execute("COMMIT")
        self._unfinished = False

    def _undo(self) -> None:
        if not self._unfinished:
            return
        self._unfinished = False
        if self._connection.in_transaction:  # SQLite rolls back by itself after some errors
            self._connection.execute("ROLLBACK")

    def _wait_for_others(self, attempt: int) -> bool:
        # Another process has the lock: callers of committed jobs must not wait for it too.
        self._deliver()
        return self._lock_wait(attempt)

    def _deliver(self) -> None:
        """Deliver the results of committed jobs."""
        if self._undelivered:
            jobs, self._undelivered = self._undelivered, []
            deliver(jobs)
