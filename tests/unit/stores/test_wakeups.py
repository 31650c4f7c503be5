"""Finished work reaches its event loop once and in order; a closed loop gets nothing."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import aforesaid
from aforesaid.stores import _worker
from aforesaid.stores._worker import CallbackWakeups, EventfdWakeups, Wakeups, wakeups_of


class Done:
    """Finished work that runs a function."""

    def __init__(self, settle: Callable[[], None]) -> None:
        self.settle = settle


def counting(loop: asyncio.AbstractEventLoop) -> Wakeups:
    queue = wakeups_of(loop)
    assert isinstance(queue, EventfdWakeups)
    return queue


KINDS = pytest.mark.parametrize("kind", [counting, CallbackWakeups])


@KINDS
async def test_work_of_many_threads_is_settled_once_and_in_the_order_of_each_thread(
    kind: Callable[[asyncio.AbstractEventLoop], Wakeups],
) -> None:
    queue = kind(asyncio.get_running_loop())
    settled: list[tuple[int, int]] = []
    everything = asyncio.Event()

    def settle(thread: int, number: int) -> Callable[[], None]:
        def note() -> None:
            assert threading.current_thread() is threading.main_thread()
            settled.append((thread, number))
            if len(settled) == 4 * 300:
                everything.set()

        return note

    def post(thread: int) -> None:
        for number in range(0, 300, 3):
            queue.post([Done(settle(thread, number + more)) for more in range(3)])

    threads = [threading.Thread(target=post, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(120):
        await everything.wait()
    for number in range(4):
        assert [n for thread, n in settled if thread == number] == list(range(300))


@KINDS
def test_a_closed_loop_gets_no_notification(
    kind: Callable[[asyncio.AbstractEventLoop], Wakeups],
) -> None:
    loop = asyncio.new_event_loop()
    queue = kind(loop)
    loop.close()
    settled: list[None] = []
    queue.post([Done(lambda: settled.append(None))])
    assert not settled


def test_a_queue_is_freed_with_its_loop() -> None:
    loop = asyncio.new_event_loop()
    queue = counting(loop)
    assert wakeups_of(loop) is queue
    assert isinstance(queue, EventfdWakeups)
    counter = queue.counter
    loop.close()
    os.fstat(counter)  # still there: the queue is referenced here
    del loop, queue
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(counter)


def test_a_loop_without_add_reader_gets_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()

    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(loop, "add_reader", refuse)
    assert isinstance(wakeups_of(loop), CallbackWakeups)
    loop.close()


async def test_sqlite_without_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")
    monkeypatch.setattr(_worker, "_wakeups", {})
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db", models=aforesaid.Models(embedder=None)
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        await asyncio.gather(*(erin.add_message(conversation.id, "user", f"{n}") for n in range(50)))
        assert len(await erin.messages(conversation.id, limit=100)) == 50
    assert isinstance(wakeups_of(asyncio.get_running_loop()), CallbackWakeups)
