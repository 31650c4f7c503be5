"""Ending in order when told to. Below: the standard library. Above: surfaces that run until then.

async with aforesaid.open(url) as memory, terminated() as told:
    ...                       # accept work
    await told.wait()         # SIGTERM, or an interrupt at the keyboard
    ...                       # accept no more, and let what is under way finish
# leaving the block closes the memory: what was accepted is stored, or in the spool
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def terminated() -> AsyncIterator[asyncio.Event]:
    """An event that is set when the process is told to end. A second signal acts as if nobody listened."""
    describe = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(number: int) -> None:
        describe.set()
        loop.remove_signal_handler(number)

    listening = []
    for number in SIGNALS:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; or not the main thread
            loop.add_signal_handler(number, tell, number)
            listening.append(number)
    try:
        yield describe
    finally:
        for number in listening:
            loop.remove_signal_handler(number)
