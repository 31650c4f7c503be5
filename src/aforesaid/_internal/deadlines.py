"""Deadlines that hold even for work that is slow to cancel.

A cancelled driver may first try to cancel its query on a server that does not answer. `within` does not wait
for that: it cancels the work and leaves it to end by itself.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

CANCEL_AGAIN_SECONDS = 0.5
"""After this pause a task that still runs is cancelled again."""

_unfinished: "set[asyncio.Task[Any]]" = set()
"""Cancelled work that has not ended. The event loop holds only weak references to tasks."""


async def within(
    seconds: float | None, work: Coroutine[Any, Any, T], *, left: "set[asyncio.Task[Any]] | None" = None
) -> T:
    """Return the result of the work. Raise `TimeoutError` on time; unfinished work is added to `left`."""
    if seconds is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _abandon(task, _unfinished if left is None else left)
        raise
    if not done:
        _abandon(task, _unfinished if left is None else left)
        raise TimeoutError
    return task.result()


async def promptly_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that ends as soon as it is cancelled. It needs no task of its own."""
    async with asyncio.timeout(seconds):
        return await work


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks and wait until they end.

    One cancellation may not be enough: on Python 3.11 `asyncio.wait_for`, which drivers use, swallows a
    cancellation that coincides with the awaited result. Tasks of another loop are cancelled but not awaited;
    those of a closed loop never run again.
    """
    here = asyncio.get_running_loop()
    running = {task for task in tasks if not task.done() and task.get_loop() is here}
    for task in tasks:
        if not task.done() and task not in running:
            _cancel_elsewhere(task)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)


def _cancel_elsewhere(task: "asyncio.Task[Any]") -> None:
    with suppress(RuntimeError):  # the loop is closed, or is being closed
        task.get_loop().call_soon_threadsafe(task.cancel)


def _abandon(task: "asyncio.Task[Any]", left: "set[asyncio.Task[Any]]") -> None:
    def ended(task: "asyncio.Task[Any]") -> None:
        left.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    task.cancel()
    left.add(task)
    task.add_done_callback(ended)
