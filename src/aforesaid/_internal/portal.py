"""Call coroutines from synchronous code: one event loop on one thread for the whole process.

Stores bind to the loop that first uses them, so all synchronous callers share one loop.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from aforesaid.errors import InvalidInput

T = TypeVar("T")


class Portal:
    """An event loop on a thread of its own, started by the first call."""

    def __init__(self, name: str = "aforesaid-portal") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine on the loop and wait for its result. Raise `InvalidInput` on the loop itself."""
        loop = self.loop()
        if _running_loop() is loop:
            raise InvalidInput("a synchronous method was called on the loop that would have to serve it")
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted while it waited
            raise

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

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop; start its thread if it does not run."""
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                # A daemon: work that matters has returned to its caller before the process ends.
                threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True).start()
            return self._loop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


PORTAL = Portal()
"""The portal of all synchronous faces in this process."""
