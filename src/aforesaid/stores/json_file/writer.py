"""The writer thread, which commits all waiting jobs with one write of the file."""

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

MAX_BATCH = 1024
"""Jobs per write. The limit keeps a continuous stream of jobs from delaying the write forever."""

MAX_QUEUED = 4 * MAX_BATCH
"""Jobs in the queue; further callers wait for a slot."""
WAIT_SECONDS = 30.0


class Job:
    """Work on one owner's data, with its future."""

    __slots__ = ("error", "future", "owner", "result", "work")

    def __init__(self, owner: str, work: Callable[[OwnerData], Any]) -> None:
        self.owner = owner
        self.work = work
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Resolve the future."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """One thread and its queue. `close` finishes all accepted jobs."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._slots = Slots(
            "the JSON file", limit=MAX_QUEUED, max_waiting=MAX_QUEUED * 8, timeout=WAIT_SECONDS
        )
        self._queue_lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="aforesaid-json-file", daemon=True)
        self._thread.start()

    async def run(self, owner: str, work: Callable[[OwnerData], T]) -> T:
        """Run the work and return when its result is durable.

        Cancellation removes a job from the queue; once started, a job completes.
        """
        slots = await self._slots.enter()
        try:
            job = Job(owner, work)
            self._accept(job)
            return cast(T, await asyncio.wrap_future(job.future))
        finally:
            slots.release()

    def close(self) -> None:
        """Finish the jobs in the queue, then end the thread. Blocks; call it off the event loop."""
        if os.getpid() != self._process:
            return  # after a fork, the thread exists only in the parent process
        with self._queue_lock:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()

    def _accept(self, job: Job) -> None:
        if os.getpid() != self._process:
            raise StoreClosed("the file was opened before a fork; open it again in this process")
        with self._queue_lock:  # no job may enter the queue after the one that ends the thread
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
        """Return all waiting jobs, at least one, and whether the thread must end after them."""
        jobs: list[Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == MAX_BATCH:
                return jobs, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _handle(self, jobs: Sequence[Job]) -> None:
        try:
            self._commit(jobs)
        except Exception as error:  # noqa: BLE001  every caller of the batch gets the error
            for job in jobs:
                job.error = error
        for job in jobs:
            job.settle()
