"""Work on threads that is finished once it was begun. Below: the standard library."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Callable[[], T]) -> T:
    """Run the work on a thread, and wait for its end also when the caller is cancelled meanwhile.

    For opening and closing: half of either would leave files locked and threads running.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def _ended(running: "asyncio.Future[T]") -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # once more: the thread cannot be stopped, only waited for
    if not running.cancelled():
        running.exception()  # seen, so that nobody complains that it was not
