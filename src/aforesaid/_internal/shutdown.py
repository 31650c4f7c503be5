"""Orderly shutdown on a signal.

async with aforesaid.open(url) as memory, terminated() as stopping:
    ...                       # accept work
    await stopping.wait()     # SIGTERM, or an interrupt at the keyboard
    ...                       # accept no more, and finish work in progress
# leaving the block closes the memory: accepted work is stored, or in the spool
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def terminated() -> AsyncIterator[asyncio.Event]:
    """Yield an event that a termination signal sets. A second signal has its default effect."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        stopping.set()
        loop.remove_signal_handler(number)

    listening = []
    for number in SIGNALS:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; or not the main thread
            loop.add_signal_handler(number, stop, number)
            listening.append(number)
    try:
        yield stopping
    finally:
        for number in listening:
            loop.remove_signal_handler(number)
