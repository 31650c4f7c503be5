"""`WorkerThreads`: batches, cancellation, closing, forks and changes of the event loop."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from aforesaid.errors import StoreClosed
from aforesaid.layers.resilient.spool import Spool
from aforesaid.stores._worker import Job, Jobs, WorkerThreads, batches, deliver


class Recorder:
    """Runs jobs in batches and records the sizes of the batches. `go` lets it begin."""

    def __init__(self, most: int = 10) -> None:
        self.go = threading.Event()
        self.batches: list[int] = []
        self.most = most
        self.threads = WorkerThreads[Job]("the disk", self._serve, thread_name="test", max_queued=100)

    def _serve(self, jobs: Jobs[Job]) -> None:
        for batch in batches(jobs, self.most):
            assert self.go.wait(120)
            wanted = [job for job in batch if not job.future.cancelled()]
            self.batches.append(len(wanted))
            for job in wanted:
                job.result = job.work()
            deliver(wanted)


async def submit(recorder: Recorder, count: int) -> "list[asyncio.Task[int]]":
    tasks = [asyncio.create_task(recorder.threads.run(Job(lambda n=n: n))) for n in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_waiting_jobs_are_processed_in_batches_and_in_order() -> None:
    recorder = Recorder(most=4)
    tasks = await submit(recorder, 11)
    recorder.go.set()
    assert await asyncio.gather(*tasks) == list(range(11))
    assert sum(recorder.batches) == 11
    assert max(recorder.batches) <= 4
    await asyncio.to_thread(recorder.threads.close)


async def test_a_cancelled_job_in_the_queue_is_not_run() -> None:
    recorder = Recorder()
    done: list[str] = []
    tasks = [
        asyncio.create_task(recorder.threads.run(Job(lambda name=name: done.append(name))))
        for name in ("first", "second", "third")
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    recorder.go.set()
    await asyncio.gather(tasks[0], tasks[2])
    assert done == ["first", "third"]
    await asyncio.to_thread(recorder.threads.close)


async def test_closing_finishes_accepted_jobs_and_refuses_later_ones() -> None:
    recorder = Recorder(most=2)
    tasks = await submit(recorder, 5)
    closing = asyncio.create_task(asyncio.to_thread(recorder.threads.close))
    recorder.go.set()
    assert await asyncio.gather(*tasks) == list(range(5))
    await closing
    with pytest.raises(StoreClosed):
        await recorder.threads.run(Job(lambda: None))
    await asyncio.to_thread(recorder.threads.close)  # closing twice is harmless


async def test_a_forked_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    recorder.go.set()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreClosed, match="the disk was opened before a fork"):
            await recorder.threads.run(Job(lambda: None))
        recorder.threads.close()  # the threads belong to the parent
    assert await recorder.threads.run(Job(lambda: 7)) == 7
    await asyncio.to_thread(recorder.threads.close)


def test_an_operation_of_a_closed_loop_does_not_delay_the_next_loop(tmp_path: Path) -> None:
    """Both loops' operations are written with one fsync; each callback runs once."""
    spool = Spool(tmp_path, limit=10**6, deadline=60)
    go = threading.Event()
    written: list[str] = []

    async def leave_behind() -> None:
        holding = asyncio.create_task(spool._call(lambda: go.wait(120)))
        waiting = asyncio.create_task(
            spool.write(b"old", lambda ref: written.append(f"old {ref is not None}"))
        )
        await asyncio.sleep(0)
        assert not holding.done()
        assert not waiting.done()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_behind())
    loop.close()  # without cancelling its tasks

    async def follow() -> None:
        task = asyncio.create_task(spool.write(b"new", lambda ref: written.append(f"new {ref is not None}")))
        await asyncio.sleep(0)
        go.set()
        await asyncio.wait_for(task, 120)
        spool.settle_finished()
        await spool.close()

    asyncio.run(follow())
    assert written == ["old True", "new True"]
