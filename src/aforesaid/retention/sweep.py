"""The sweep: what has expired is removed, what is old archived, while everything else goes on. Below: errors.

What has expired is never served, swept or not; the sweep only gives the space back. Many processes may
sweep one store at once: each conversation is removed, and counted, by one of them.
"""

import asyncio
import logging
import random
from datetime import timedelta
from typing import Protocol

from aforesaid.errors import AforesaidError
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.retention")

SWEEP_EVERY = timedelta(hours=1)
"""Often enough that nothing lies about for long, seldom enough to cost nothing."""
JITTER = 0.5
"""How much earlier or later a sweep may come, as a part of its interval."""


class Swept(Protocol):
    """What can be swept: a memory with all that belongs to it."""

    async def sweep(self) -> int: ...


async def sweep_forever(memory: Swept, *, every: timedelta = SWEEP_EVERY) -> None:
    """Sweep now and then, until cancelled. A sweep that fails is logged, and the next one tries again."""
    while True:
        await asyncio.sleep(pause(every))
        await sweep_once(memory)


def pause(every: timedelta) -> float:
    """Seconds to the next sweep: uneven, so that many processes on one store do not all sweep at once."""
    return every.total_seconds() * random.uniform(1 - JITTER, 1 + JITTER)


async def sweep_once(memory: Swept) -> int:
    """One sweep; returns how many expired conversations went."""
    try:
        purged = await memory.sweep()
    except AforesaidError as error:
        log.warning("sweep failed: %s", describe(error))
        return 0
    if purged:
        log.info("sweep removed %d expired conversations", purged)
    return purged
