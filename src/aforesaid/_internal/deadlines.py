"""Deadlines that hold, also for work that takes its time to be cancelled. Below: the standard library.

A driver that is cancelled may first try to cancel its query on a server that does not answer, which
takes as long as it takes. `within` does not wait for that: the work is told to end, and left to it.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

CANCELLED_AGAIN_SECONDS = 0.5
"""After how long a task that goes on is told once more to end."""

_left: "set[asyncio.Task[Any]]" = set()
"""Work that was left to end by itself. The event loop alone would forget it."""


async def within(
    seconds: float | None, work: Coroutine[Any, Any, T], *, left: "set[asyncio.Task[Any]] | None" = None
) -> T:
    """What the work gives. Raises `TimeoutError` on time; what is left of the work is put into `left`."""
    if seconds is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _leave(task, _left if left is None else left)
        raise
    if not done:
        _leave(task, _left if left is None else left)
        raise TimeoutError
    return task.result()


async def promptly_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """The same for work that ends as soon as it is cancelled: it needs no task of its own."""
    async with asyncio.timeout(seconds):
        return await work


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks and wait until they are over, however they end.

    Once may not be enough: on Python 3.11 `asyncio.wait_for`, on which drivers wait, swallows a cancellation
    that comes in the same moment as what it waits for. Tasks of another loop are cancelled and not waited
    for; those of a closed loop never run again.
    """
    here = asyncio.get_running_loop()
    running = {task for task in tasks if not task.done() and task.get_loop() is here}
    for task in tasks:
        if not task.done() and task not in running:
            _cancel_elsewhere(task)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCELLED_AGAIN_SECONDS)


def _cancel_elsewhere(task: "asyncio.Task[Any]") -> None:
    with suppress(RuntimeError):  # the loop is closed, or is closed in this moment
        task.get_loop().call_soon_threadsafe(task.cancel)


def _leave(task: "asyncio.Task[Any]", left: "set[asyncio.Task[Any]]") -> None:
    def ended(task: "asyncio.Task[Any]") -> None:
        left.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that nobody complains that it was not

    task.cancel()
    left.add(task)
    task.add_done_callback(ended)
