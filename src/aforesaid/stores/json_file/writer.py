"""The thread that writes. It takes all the jobs that are waiting and pays for one file for them all.

Above: `backend`, which says what to do with a batch. Nobody is told anything before the batch is
done.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from aforesaid.errors import StoreClosed
from aforesaid.stores._slots import Slots
from aforesaid.stores.owner_data import OwnerData

T = TypeVar("T")
Commit = Callable[[Sequence["Job"]], None]

LARGEST_BATCH = 1024
"""Jobs that share one write: a bound, so that callers who never pause cannot put it off for ever."""

MOST_JOBS = 4 * LARGEST_BATCH
"""Jobs that may be in the queue; whoever comes after them waits for a place."""
WAIT_SECONDS = 30.0


class Job:
    """Work on one owner's shelf, and the future that waits for it."""

    __slots__ = ("error", "future", "owner", "result", "work")

    def __init__(self, owner: str, work: Callable[[OwnerData], Any]) -> None:
        self.owner = owner
        self.work = work
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Tell whoever waits."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """One thread and its queue. `close` finishes what was accepted."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._slots = Slots("the JSON file", places=MOST_JOBS, waiting=MOST_JOBS * 8, deadline=WAIT_SECONDS)
        self._door = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="aforesaid-json-file", daemon=True)
        self._thread.start()

    async def run(self, owner: str, work: Callable[[OwnerData], T]) -> T:
        """Do the work, make it durable, and only then return.

        Cancelled while still in the queue, the work is not done; cancelled later, it is done whole.
        """
        place = await self._slots.enter()
        try:
            job = Job(owner, work)
            self._accept(job)
            return cast(T, await asyncio.wrap_future(job.future))
        finally:
            place.release()

    def close(self) -> None:
        """Finish the jobs in the queue, then end the thread. Blocks; call it off the event loop."""
        if os.getpid() != self._process:
            return  # the thread stayed behind in the process that was forked
        with self._door:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()

    def _accept(self, job: Job) -> None:
        if os.getpid() != self._process:
            raise StoreClosed("the file was opened before a fork; open it again in this process")
        with self._door:  # so that no job can slip in behind the one that ends the thread
            if self._closed:
                raise StoreClosed
            self._jobs.put(job)

    def _serve(self) -> None:
        ending = False
        while not ending:
            jobs, ending = self._waiting()
            jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            if jobs:
                self._handle(jobs)

    def _waiting(self) -> tuple[list[Job], bool]:
        """All the jobs that wait now, at least one, and whether the end came after them."""
        jobs: list[Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == LARGEST_BATCH:
                return jobs, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _handle(self, jobs: Sequence[Job]) -> None:
        try:
            self._commit(jobs)
        except Exception as error:  # noqa: BLE001  the batch failed as a whole, and everybody in it is told
            for job in jobs:
                job.error = error
        for job in jobs:
            job.settle()
