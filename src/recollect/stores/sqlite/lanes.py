"""Threads that do the database's work while the event loop goes on.

A `ReadLane` runs each job on whichever of its threads is free. A `WriteLane` has one thread; it
takes all the jobs that are waiting and commits them in one transaction, so that the price of
making data durable is paid once for many turns. Below: the engine. Above: `backend`.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import apsw

from recollect.errors import StoreClosed
from recollect.stores.sqlite.connections import ours

T = TypeVar("T")
Work = Callable[[apsw.Connection], Any]

LARGEST_BATCH = 512
"""Turns in one transaction: enough that the commit costs next to nothing for each, and a bound."""


class Job:
    """Work for a lane, and the future that waits for it."""

    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
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


class Lane:
    """Threads that share a queue of jobs. `close` finishes what was accepted."""

    def __init__(self, path: str, connections: Iterable[apsw.Connection], *, name: str) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(connection,), name=f"recollect-{name}", daemon=True)
            for connection in connections
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do the work on a thread of this lane and wait for it.

        Cancelled while still in the queue, the work is not done; cancelled later, it is done whole.
        """
        job = Job(work, asyncio.get_running_loop())
        self._accept(job)
        return cast(T, await job.future)

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

    def _serve(self, connection: apsw.Connection) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._handle(job, connection)
        finally:
            connection.close()

    def _handle(self, job: Job, connection: apsw.Connection) -> None:
        """What a thread does with the next job."""


class ReadLane(Lane):
    """Each job by itself."""

    def _handle(self, job: Job, connection: apsw.Connection) -> None:
        if not job.future.cancelled():
            job.attempt(connection, self._path)
            _settle([job])


class WriteLane(Lane):
    """All waiting jobs in one transaction; a job that fails is undone alone."""

    def _handle(self, job: Job, connection: apsw.Connection) -> None:
        jobs = [one for one in self._with_waiting(job) if not one.future.cancelled()]
        try:
            self._commit(jobs, connection)
        except Exception as error:  # noqa: BLE001  the transaction failed as a whole: none of it was stored
            for one in jobs:
                one.error = one.error or ours(error, self._path)
        _settle(jobs)

    def _with_waiting(self, job: Job) -> list[Job]:
        jobs = [job]
        while len(jobs) < LARGEST_BATCH:
            try:
                waiting = self._jobs.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                self._jobs.put(None)  # closing: end after this batch
                break
            jobs.append(waiting)
        return jobs

    def _commit(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Hope first: nearly always every job succeeds, and none needs a savepoint of its own."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                job.attempt(connection, self._path)
                if job.error is not None:
                    break
            else:
                connection.execute("COMMIT")
                return
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if len(jobs) > 1:
            self._commit_apart(jobs, connection)

    def _commit_apart(self, jobs: list[Job], connection: apsw.Connection) -> None:
        """Do them again, those that succeed in one transaction, those that fail undone."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                job.error = None
                connection.execute("SAVEPOINT job")
                job.attempt(connection, self._path)
                if job.error is not None:
                    connection.execute("ROLLBACK TO job")
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _settle(jobs: list[Job]) -> None:
    """Hand the results to the event loops, one wake-up for each loop."""
    for loop in dict.fromkeys(job.loop for job in jobs):
        mine = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_settle_all, mine)
        except RuntimeError:
            continue  # the loop was closed while its callers waited: nobody is left to tell


def _settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.settle()
