"""The asynchronous interface of the spool: one thread writes, and one fsync serves all waiting callers.

Results are settled on the event loop in the order of the file, before any caller continues. So queues in
memory have the same order as the file.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from aforesaid.errors import AforesaidError, StoreUnavailable
from aforesaid.layers.resilient.spool.files import Adopted, Ref, SpoolFiles
from aforesaid.stores._worker import Job, Jobs, WorkerThreads, batches, deliver

T = TypeVar("T")
OnSettled = Callable[[Ref | None], Any]
"""A callback on the event loop: receives the operation's reference, None if it was not written; returns the
caller's answer."""

LARGEST_BATCH = 256
# Operations that may wait for the disk. Further callers wait for a slot, up to a deadline.
MOST_WAITING = 1024


class _SpoolJob(Job):
    """Work for the spool's thread. Its callback runs even if its caller was cancelled or its loop closed:
    the queues in memory must contain what the file contains."""

    __slots__ = ("on_settled", "payload", "spool")

    def __init__(
        self,
        spool: "Spool",
        work: Callable[[], Any],
        *,
        payload: bytes | None = None,
        on_settled: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(work)
        self.spool = spool
        # The operation to append; None for other work.
        self.payload = payload
        self.on_settled = on_settled

    def attempt(self) -> None:
        """Run the work and record its result or error."""
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001  raised in the caller
            self.error = _translate(error)

    def settle(self) -> None:
        """Settle all finished jobs in the order of the file."""
        self.spool.settle_finished()

    def resolve(self) -> None:
        """Call the callback, then resolve the future. An append that failed has the result None."""
        try:
            if self.on_settled is not None and (self.payload is not None or self.error is None):
                self.result = self.on_settled(self.result)
        except AforesaidError as error:
            self.error = self.error or error
        # Resolving a future of a closed loop raises; its caller is gone.
        if not self.future.get_loop().is_closed():
            super().settle()


class Spool:
    """The spool of one process and store."""

    def __init__(self, folder: Path, *, limit: int, deadline: float) -> None:
        self.folder = folder
        self.limit = limit
        self._files = SpoolFiles(folder, limit=limit)
        # Finished jobs, in order, until an event loop settles them.
        self._finished: deque[_SpoolJob] = deque()
        self._thread = WorkerThreads[_SpoolJob](
            f"the spool in {folder}",
            self._serve,
            thread_name="spool",
            max_queued=MOST_WAITING,
            max_waiting=sys.maxsize,
            timeout=deadline,
        )
        self._closed = False
        # Adopted operations that cannot be decoded and are not dead letters yet.
        self.undecoded: list[tuple[Ref, bytes, AforesaidError]] = []

    @property
    def size(self) -> int:
        """The size of the files in bytes."""
        return self._files.size

    def settle_finished(self) -> None:
        """Settle finished jobs, including those that a closed event loop left. Runs on the event loop."""
        while self._finished:
            self._finished.popleft().resolve()

    async def write(self, payload: bytes, on_settled: OnSettled) -> Any:
        """Write an operation durably, then return the result of `on_settled`.

        A caller that is cancelled while the operation waits prevents the write; later, the operation is
        written. `on_settled` is called in both cases.
        """
        job = _SpoolJob(
            self, lambda: self._files.append([payload])[0], payload=payload, on_settled=on_settled
        )
        try:
            return await self._thread.run(job)
        finally:
            if not job.is_queued:
                on_settled(None)

    async def read(self, refs: Sequence[Ref]) -> list[bytes | None]:
        """Return the operations' payloads; None for one that is damaged or was set aside."""
        return await self._call(partial(self._files.read, refs))

    async def set_aside_damaged(self, refs: Sequence[Ref]) -> int:
        """Move damaged frames to a separate file; return their number."""
        return await self._call(partial(self._files.set_aside_damaged, refs))

    async def mark_done(self, refs: Sequence[Ref]) -> None:
        """Mark operations as stored."""
        await self._call(partial(self._files.mark_done, refs))

    async def adopt(self, on_settled: Callable[[Adopted], T]) -> T:
        """Adopt the sets of ended processes, then return the result of `on_settled`.

        `on_settled` is called also when the caller is cancelled: no other caller would find the adopted
        operations.
        """
        return cast(T, await self._call(self._files.adopt, on_settled))

    async def forget(self, matches: Callable[[bytes], bool]) -> list[Ref]:
        """Remove every trace of matching operations; return those that were not stored."""
        return await self._call(partial(self._files.forget, matches))

    async def close(self) -> None:
        """Finish accepted writes, then close the files."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._thread.close)

    async def _call(self, work: Callable[[], T], on_settled: Callable[[T], Any] | None = None) -> T:
        # Without a slot: replaying, which makes room, must not wait for callers that wait for room.
        return cast(T, await self._thread.run_without_slot(_SpoolJob(self, work, on_settled=on_settled)))

    # The thread

    def _serve(self, jobs: Jobs[_SpoolJob]) -> None:
        try:
            for batch in batches(jobs, LARGEST_BATCH):
                self._process(batch)
        finally:
            self._files.close()

    def _process(self, jobs: list[_SpoolJob]) -> None:
        """Run the jobs in order. Consecutive appends share one fsync."""
        appends: list[_SpoolJob] = []
        for job in jobs:
            if job.payload is None:
                self._append(appends)
                appends = []
                job.attempt()
                self._finish([job])
            else:
                appends.append(job)
        self._append(appends)

    def _append(self, jobs: list[_SpoolJob]) -> None:
        wanted = [job for job in jobs if not job.future.cancelled()]
        if len(wanted) < 2 or not self._append_together(wanted):
            for job in wanted:
                job.attempt()
        self._finish(jobs)

    def _append_together(self, jobs: list[_SpoolJob]) -> bool:
        """Append with one fsync; return whether it succeeded. After a failure the operations are written one
        by one, because an operation that is too large must not block the others."""
        try:
            refs = self._files.append([job.payload for job in jobs if job.payload is not None])
        except Exception:  # noqa: BLE001  each caller gets the error of its own operation
            return False
        for job, ref in zip(jobs, refs, strict=True):
            job.result = ref
        return True

    def _finish(self, jobs: list[_SpoolJob]) -> None:
        # If the event loop is closed, the next one settles the jobs.
        self._finished.extend(jobs)
        deliver(jobs)


def _translate(error: Exception) -> AforesaidError:
    if isinstance(error, AforesaidError):
        return error
    ours = StoreUnavailable(f"the spool failed: {error!r}")
    ours.__cause__ = error
    return ours
