"""Call coroutines from synchronous code: an event loop on a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from aforesaid.errors import StoreClosed

T = TypeVar("T")


class Portal:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aforesaid-portal", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal's loop and wait for its result. Ctrl-C cancels it."""
        if self._loop.is_closed():
            work.close()
            raise StoreClosed("this memory is closed: open it again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Stop the thread. Closing twice is allowed."""
        if self.is_closed:
            return
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SharedPortal:
    """The portal of all synchronous adapters of a process, started by the first call.

    It is never closed: its thread ends with the process, and every call has returned before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: Portal | None = None

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine on the loop and wait for its result."""
        with self._lock:
            if self._portal is None:
                self._portal = Portal()
            portal = self._portal
        return portal.run(work())

    def iterate(self, items: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate over an asynchronous iterator, one step at a time."""
        source = items()

        async def step() -> tuple[bool, Any]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        while True:
            found, item = self.call(step)
            if not found:
                return
            yield item


PORTAL = SharedPortal()
