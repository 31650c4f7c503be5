"""Work that always finishes once it has started, on threads and in tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the work on a thread, and wait for its end even when the caller is cancelled.

    For work that must not continue after cleanup: opening, closing, writing files.
    """
    return await _result(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end; a cancelled caller waits for it."""
    return await _result(asyncio.ensure_future(work))


@asynccontextmanager
async def opened(opening: Callable[[], BinaryIO]) -> AsyncIterator[BinaryIO]:
    """Open a file on a thread and close it with the block, or at once when the caller is cancelled before."""
    running = asyncio.ensure_future(asyncio.to_thread(opening))
    try:
        file = await _result(running)
    except asyncio.CancelledError:
        if not running.cancelled() and running.exception() is None:
            running.result().close()
        raise
    try:
        yield file
    finally:
        await to_the_end(file.close)


async def _result(running: "asyncio.Future[T]") -> T:
    """Return the result; a cancelled caller waits for the end first."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def _ended(running: "asyncio.Future[Any]") -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # cancelled again: the work is only awaited, not stopped
    if not running.cancelled():
        running.exception()  # retrieved, so that asyncio does not log it
