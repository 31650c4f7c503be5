"""A provider on this machine, for commands that have an event loop of their own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aforesaid.testing.providers import FakeProvider, Says
from aforesaid.testing.providers.provider import Kind


@contextmanager
def served(kind: Kind, *lines: Says) -> Iterator[FakeProvider]:
    """The provider, on a thread with a loop of its own; it says these lines."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    provider = FakeProvider(kind)
    provider.will(*lines)
    asyncio.run_coroutine_threadsafe(provider.__aenter__(), loop).result(10)
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(provider.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
