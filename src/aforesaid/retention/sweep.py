"""The sweep: periodic removal of expired data and archiving of old conversations.

Expired data is never returned, swept or not; the sweep only frees space. Several processes may sweep one
store at once: one of them removes and counts each conversation.
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
"""Frequent enough that expired data does not stay long, rare enough to cost nothing."""
JITTER = 0.5
"""The random part of an interval, as a fraction."""


class Sweepable(Protocol):
    """A memory, or anything else with periodic maintenance."""

    async def sweep(self) -> int: ...


async def sweep_forever(memory: Sweepable, *, every: timedelta = SWEEP_EVERY) -> None:
    """Sweep at intervals until cancelled. A failed sweep is logged and retried at the next interval."""
    while True:
        await asyncio.sleep(pause(every))
        await sweep_once(memory)


def pause(every: timedelta) -> float:
    """Return the seconds to the next sweep: random, so that the processes of one store do not sweep
    at once.
    """
    return every.total_seconds() * random.uniform(1 - JITTER, 1 + JITTER)


async def sweep_once(memory: Sweepable) -> int:
    """Run one sweep; return how many expired conversations were removed."""
    try:
        purged = await memory.sweep()
    except AforesaidError as error:
        log.warning("sweep failed: %s", describe(error))
        return 0
    if purged:
        log.info("sweep removed %d expired conversations", purged)
    return purged
