"""Work that is finished once it was begun, on threads and in steps. Below: the standard library."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the work on a thread, and wait for its end also when the caller is cancelled meanwhile.

    For what must not go on behind the back of whoever tidies up: opening, closing, writing files.
    """
    return await _result(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """The same for steps that belong together: whoever is cancelled meanwhile waits for the last of them."""
    return await _result(asyncio.ensure_future(work))


@asynccontextmanager
async def opened(opening: Callable[[], BinaryIO]) -> AsyncIterator[BinaryIO]:
    """The file that the work opens on a thread, closed with the block, or at once when the caller is
    cancelled before it has it."""
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
    """What the work gives. Whoever is cancelled meanwhile waits for its end all the same."""
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
            continue  # once more: it is not to be stopped, only waited for
    if not running.cancelled():
        running.exception()  # seen, so that nobody complains that it was not
