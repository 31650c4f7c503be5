"""The spool as the event loop sees it: one thread that writes, and pays for one sync for all who wait.

Above: the layer. Below: `files`. What is written is settled on the event loop in the order of the
file, before any caller goes on: so the memory's order and the file's order are one.
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
Settled = Callable[[Ref | None], Any]
"""Told on the event loop where the operation lies, or None if it was not kept; gives the caller's answer."""

LARGEST_BATCH = 256
MOST_WAITING = 1024
"""Operations that may wait for the disk; whoever comes after them waits for a place, up to a deadline."""


class _Job(ABC):
    """Something for the thread to do, and the future of whoever waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.error: AforesaidError | None = None

    def settle(self) -> None:
        """Tell whoever waits. Runs on the event loop."""
        answer, error = self.answer()
        if self.future.done() or self.loop.is_closed():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)

    @abstractmethod
    def answer(self) -> tuple[Any, AforesaidError | None]:
        """What whoever waits is told."""


class _Append(_Job):
    def __init__(self, loop: asyncio.AbstractEventLoop, payload: bytes, settled: Settled) -> None:
        super().__init__(loop)
        self.payload = payload
        self.settled = settled
        self.ref: Ref | None = None

    def answer(self) -> tuple[Any, AforesaidError | None]:
        try:
            result = self.settled(self.ref)
        except AforesaidError as error:
            return None, self.error or error
        return result, self.error


def _as_it_is(result: T) -> T:
    return result


class _Call(_Job):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[], Any],
        settled: Callable[[Any], Any] = _as_it_is,
    ) -> None:
        super().__init__(loop)
        self.work = work
        self.settled = settled
        self.result: Any = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001  whatever it was belongs to whoever waits
            self.error = _ours(error)

    def answer(self) -> tuple[Any, AforesaidError | None]:
        return (self.settled(self.result), None) if self.error is None else (None, self.error)


class Spool:
    """What was accepted while the store was away. One for each process and store."""

    def __init__(self, folder: Path, *, limit: int, deadline: float) -> None:
        self.folder = folder
        self.limit = limit
        self._deadline = deadline
        self._files = SpoolFiles(folder, limit=limit)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._places = asyncio.Semaphore(MOST_WAITING)
        self._done: deque[Sequence[_Job]] = deque()
        """Jobs that the thread is through with, in order, until they are settled on an event loop."""
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()
        self.undecoded: list[tuple[Ref, bytes, AforesaidError]] = []
        """Adopted operations that this release cannot decode and that are not set aside yet."""

    @property
    def size(self) -> int:
        """The bytes that the files hold."""
        return self._files.size

    def follow_loop(self) -> None:
        """Go on on another event loop, and settle the jobs that the last one did not come to."""
        self._places = asyncio.Semaphore(MOST_WAITING)
        self._settle_done()

    async def write(self, payload: bytes, settled: Settled) -> Any:
        """Keep an operation, durably, then give what `settled` makes of it.

        Cancelled while it waits, it is not kept; cancelled later, it is kept whole. `settled` is
        told of either.
        """
        places = self._places
        try:
            await self._place()
        except BaseException:
            settled(None)
            raise
        try:
            return await self._hand_over(_Append(asyncio.get_running_loop(), payload, settled))
        finally:
            places.release()

    async def _place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._deadline):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(
                f"{MOST_WAITING:,} turns wait for the spool in {self.folder}; none was taken in "
                f"within {self._deadline:g} s"
            ) from None

    async def read(self, refs: Sequence[Ref]) -> list[bytes | None]:
        """Return the operations' payloads; None for one that is damaged by now, or that was set aside."""
        return await self._call(partial(self._files.read, refs))

    async def set_aside_damaged(self, refs: Sequence[Ref]) -> int:
        """Keep the frames that cannot be read in a file of their own; return how many these are."""
        return await self._call(partial(self._files.set_aside_damaged, refs))

    async def mark_done(self, refs: Sequence[Ref]) -> None:
        await self._call(partial(self._files.mark_done, refs))

    async def adopt(self, settled: Callable[[Adopted], T]) -> T:
        """Take over what processes that are gone have left, then give what `settled` makes of it. It is told
        also when the caller was cancelled: nobody else will find what is taken over."""
        job = _Call(asyncio.get_running_loop(), self._files.adopt, settled)
        return cast(T, await self._hand_over(job))

    async def forget(self, is_meant: Callable[[bytes], bool]) -> list[Ref]:
        return await self._call(partial(self._files.forget, is_meant))

    async def close(self) -> None:
        """Finish what was accepted, then let go of the files."""
        if self._closed:
            return
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    async def _call(self, work: Callable[[], T]) -> T:
        return cast(T, await self._hand_over(_Call(asyncio.get_running_loop(), work)))

    async def _hand_over(self, job: _Job) -> Any:
        if self._closed or os.getpid() != self._process:  # after a fork the thread is the other process's
            if isinstance(job, _Append):
                job.settled(None)
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
                jobs, ending = self._waiting()
                self._handle(jobs)
        finally:
            self._files.close()

    def _waiting(self) -> tuple[list[_Job], bool]:
        """The jobs that wait now, at least one, and whether the end came after them."""
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
        """Runs of appends share a sync; everything is done in the order in which it came."""
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
            self._keep(wanted)
        self._settle(jobs)

    def _keep(self, jobs: list[_Append]) -> None:
        try:
            refs = self._files.append([job.payload for job in jobs])
        except Exception as error:  # noqa: BLE001  whatever it was belongs to those who wait
            if len(jobs) == 1:
                jobs[0].error = _ours(error)
                return
            for job in jobs:  # one that is too large must not keep the others out
                self._keep([job])
        else:
            for job, ref in zip(jobs, refs, strict=True):
                job.ref = ref

    def _settle(self, jobs: Sequence[_Job]) -> None:
        """Hand the results to the event loop, in order, with one wake-up. A loop that is closed by now leaves
        them to the next one."""
        if not jobs:
            return
        self._done.append(jobs)
        with suppress(RuntimeError):
            jobs[0].loop.call_soon_threadsafe(self._settle_done)

    def _settle_done(self) -> None:
        """Settle what the thread is through with. Runs on the event loop."""
        while self._done:
            for job in self._done.popleft():
                job.settle()


def _ours(error: Exception) -> AforesaidError:
    if isinstance(error, AforesaidError):
        return error
    ours = StoreUnavailable(f"the spool failed: {error!r}")
    ours.__cause__ = error
    return ours
