"""The asynchronous interface of the spool: one thread writes, and one fsync serves all waiting callers.

Results are settled on the event loop in the order of the file, before any caller continues. So queues in
memory have the same order as the file.
"""

import asyncio
import os
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from aforesaid.errors import AforesaidError, Overloaded, StoreClosed, StoreUnavailable
from aforesaid.layers.resilient.spool.files import Adopted, Ref, SpoolFiles

T = TypeVar("T")
OnSettled = Callable[[Ref | None], Any]
"""A callback on the event loop: receives the operation's reference, None if it was not written; returns the
caller's answer."""

LARGEST_BATCH = 256
MOST_WAITING = 1024
"""Operations that may wait for the disk. Further callers wait for a slot, up to a deadline."""


class _Job(ABC):
    """Work for the thread, and the future of its caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.error: AforesaidError | None = None

    def settle(self) -> None:
        """Set the future's result. Runs on the event loop."""
        answer, error = self.answer()
        if self.future.done() or self.loop.is_closed():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)

    @abstractmethod
    def answer(self) -> tuple[Any, AforesaidError | None]:
        """Return the result or the error for the caller."""


class _Append(_Job):
    def __init__(self, loop: asyncio.AbstractEventLoop, payload: bytes, on_settled: OnSettled) -> None:
        super().__init__(loop)
        self.payload = payload
        self.on_settled = on_settled
        self.ref: Ref | None = None

    def answer(self) -> tuple[Any, AforesaidError | None]:
        try:
            result = self.on_settled(self.ref)
        except AforesaidError as error:
            return None, self.error or error
        return result, self.error


def _identity(result: T) -> T:
    return result


class _Call(_Job):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[], Any],
        on_settled: Callable[[Any], Any] = _identity,
    ) -> None:
        super().__init__(loop)
        self.work = work
        self.on_settled = on_settled
        self.result: Any = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001  raised in the caller
            self.error = _translate(error)

    def answer(self) -> tuple[Any, AforesaidError | None]:
        return (self.on_settled(self.result), None) if self.error is None else (None, self.error)


class Spool:
    """The spool of one process and store."""

    def __init__(self, folder: Path, *, limit: int, deadline: float) -> None:
        self.folder = folder
        self.limit = limit
        self._deadline = deadline
        self._files = SpoolFiles(folder, limit=limit)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._slots = asyncio.Semaphore(MOST_WAITING)
        self._done: deque[Sequence[_Job]] = deque()
        """Finished jobs, in order, until an event loop settles them."""
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()
        self.undecoded: list[tuple[Ref, bytes, AforesaidError]] = []
        """Adopted operations that cannot be decoded and are not dead letters yet."""

    @property
    def size(self) -> int:
        """The size of the files in bytes."""
        return self._files.size

    def follow_loop(self) -> None:
        """Move to the running event loop, and settle jobs that the previous one left."""
        self._slots = asyncio.Semaphore(MOST_WAITING)
        self._settle_done()

    async def write(self, payload: bytes, on_settled: OnSettled) -> Any:
        """Write an operation durably, then return the result of `on_settled`.

        A caller that is cancelled while the operation waits prevents the write; later, the operation is
        written. `on_settled` is called in both cases.
        """
        slots = self._slots
        try:
            await self._acquire_slot()
        except BaseException:
            on_settled(None)
            raise
        try:
            return await self._submit(_Append(asyncio.get_running_loop(), payload, on_settled))
        finally:
            slots.release()

    async def _acquire_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self._deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded(
                f"{MOST_WAITING:,} turns wait for the spool in {self.folder}; none was written "
                f"within {self._deadline:g} s"
            ) from None

    async def read(self, refs: Sequence[Ref]) -> list[bytes | None]:
        """Return the operations' payloads; None for one that is damaged or was set aside."""
        return await self._call(partial(self._files.read, refs))

    async def set_aside_damaged(self, refs: Sequence[Ref]) -> int:
        """Move damaged frames to a separate file; return their number."""
        return await self._call(partial(self._files.set_aside_damaged, refs))

    async def mark_done(self, refs: Sequence[Ref]) -> None:
        await self._call(partial(self._files.mark_done, refs))

    async def adopt(self, on_settled: Callable[[Adopted], T]) -> T:
        """Adopt the sets of ended processes, then return the result of `on_settled`.

        `on_settled` is called also when the caller is cancelled: no other caller would find the adopted
        operations.
        """
        job = _Call(asyncio.get_running_loop(), self._files.adopt, on_settled)
        return cast(T, await self._submit(job))

    async def forget(self, matches: Callable[[bytes], bool]) -> list[Ref]:
        return await self._call(partial(self._files.forget, matches))

    async def close(self) -> None:
        """Finish accepted writes, then close the files."""
        if self._closed:
            return
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    async def _call(self, work: Callable[[], T]) -> T:
        return cast(T, await self._submit(_Call(asyncio.get_running_loop(), work)))

    async def _submit(self, job: _Job) -> Any:
        if self._closed or os.getpid() != self._process:  # a fork does not copy the thread
            if isinstance(job, _Append):
                job.on_settled(None)
            raise StoreClosed
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="aforesaid-spool", daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return await job.future

    # The thread

    def _serve(self) -> None:
        try:
            ending = False
            while not ending:
                jobs, ending = self._next_jobs()
                self._handle(jobs)
        finally:
            self._files.close()

    def _next_jobs(self) -> tuple[list[_Job], bool]:
        """Return the waiting jobs, at least one, and whether the spool is closing."""
        jobs: list[_Job] = []
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

    def _handle(self, jobs: list[_Job]) -> None:
        """Run the jobs in order. Consecutive appends share one fsync."""
        appends: list[_Append] = []
        for job in jobs:
            if isinstance(job, _Append):
                appends.append(job)
                continue
            self._append(appends)
            appends = []
            assert isinstance(job, _Call)
            job.run()
            self._settle([job])
        self._append(appends)

    def _append(self, jobs: Sequence[_Append]) -> None:
        wanted = [job for job in jobs if not job.future.cancelled()]
        if wanted:
            self._append_to_files(wanted)
        self._settle(jobs)

    def _append_to_files(self, jobs: list[_Append]) -> None:
        try:
            refs = self._files.append([job.payload for job in jobs])
        except Exception as error:  # noqa: BLE001  raised in the callers
            if len(jobs) == 1:
                jobs[0].error = _translate(error)
                return
            for job in jobs:  # one at a time: an operation that is too large must not block the others
                self._append_to_files([job])
        else:
            for job, ref in zip(jobs, refs, strict=True):
                job.ref = ref

    def _settle(self, jobs: Sequence[_Job]) -> None:
        """Pass the results to the event loop, in order, with one wake-up. If the loop is closed, the next
        loop settles them."""
        if not jobs:
            return
        self._done.append(jobs)
        with suppress(RuntimeError):
            jobs[0].loop.call_soon_threadsafe(self._settle_done)

    def _settle_done(self) -> None:
        """Settle finished jobs. Runs on the event loop."""
        while self._done:
            for job in self._done.popleft():
                job.settle()


def _translate(error: Exception) -> AforesaidError:
    if isinstance(error, AforesaidError):
        return error
    ours = StoreUnavailable(f"the spool failed: {error!r}")
    ours.__cause__ = error
    return ours
