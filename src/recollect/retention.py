"""The sweep: expired conversations are removed while everything else goes on. Below: errors.

What has expired is never served, swept or not; the sweep only gives the space back.
"""

import asyncio
import logging
import random
from datetime import timedelta
from typing import Protocol

from recollect.errors import RecollectError

log = logging.getLogger("recollect.retention")

SWEEP_EVERY = timedelta(hours=1)
"""Often enough that nothing lies about for long, seldom enough to cost nothing."""


class Purged(Protocol):
    """What can be swept: a backend, or a memory with all that belongs to it."""

    async def purge_expired(self) -> int: ...


async def sweep_forever(backend: Purged, *, every: timedelta = SWEEP_EVERY) -> None:
    """Purge now and then, until cancelled. A sweep that fails is logged, and the next one tries again."""
    while True:
        # Uneven, so that many processes on one store do not all sweep at once.
        await asyncio.sleep(every.total_seconds() * random.uniform(0.5, 1.5))
        await sweep_once(backend)


async def sweep_once(backend: Purged) -> int:
    """One purge; returns how many conversations went."""
    try:
        purged = await backend.purge_expired()
    except RecollectError as error:
        log.warning("sweep failed: %s", error)
        return 0
    if purged:
        log.info("sweep removed %d expired conversations", purged)
    return purged
