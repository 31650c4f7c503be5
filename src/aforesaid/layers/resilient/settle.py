"""Wait until the store has every acknowledged write: the precondition of an operation on all data.

Acknowledged writes that the store lacks are in three places:

- in the queues of this process, which are replayed
- in the spool of a process that ended, which is adopted into a queue
- in the spool of another live process on this machine, which replays it itself
"""

import asyncio
from typing import TYPE_CHECKING

from aforesaid.errors import StoreError, StoreUnavailable
from aforesaid.layers.resilient.owner_queues import OwnerQueue

if TYPE_CHECKING:
    from aforesaid.layers.resilient.backend import ResilientBackend

POLL_SECONDS = 0.05
"""Seconds between checks of the breaker and of other processes' spools."""


async def settle(backend: "ResilientBackend", owner: str | None = None) -> None:
    """Return once the store has every acknowledged write of the owner, or of all owners.

    Raises `StoreUnavailable` when the store is unavailable, or when `Resilience.settle_deadline` passes
    first.
    """
    backend.check_open()
    if not backend.reachable:
        raise backend.unavailable()
    deadline = backend.resilience.settle_deadline
    try:
        async with asyncio.timeout(deadline) as waiting:
            await _settle(backend, owner)
    except TimeoutError:
        if not waiting.expired():
            raise
        raise StoreUnavailable(
            f"{backend.name} lacks writes that were acknowledged while it was unavailable, and did not get "
            f"all of them within {deadline:g} s; this operation needs all data and changed nothing: try again"
        ) from None


async def _settle(backend: "ResilientBackend", owner: str | None) -> None:
    while True:
        await _adopt(backend)
        while (queue := _next_queue(backend, owner)) is not None:
            await _wait_briefly(backend, queue)
        pending = await backend.pending_owners()
        if not (pending if owner is None else owner in pending):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _adopt(backend: "ResilientBackend") -> None:
    try:
        await backend.adopt()
    except StoreError as error:
        raise StoreUnavailable(
            f"the spool of an earlier process cannot be read, so {backend.name} may lack data; this "
            f"operation needs all data and changed nothing: {error}"
        ) from error


def _next_queue(backend: "ResilientBackend", owner: str | None) -> OwnerQueue | None:
    if owner is not None:
        return backend.queues.get(owner)
    return next(iter(backend.queues.values()), None)


async def _wait_briefly(backend: "ResilientBackend", queue: OwnerQueue) -> None:
    """Wait for the queue for one poll interval, because the store may become unavailable again."""
    if not backend.reachable:
        raise backend.unavailable()
    await backend.start_replay()
    try:
        async with asyncio.timeout(POLL_SECONDS):
            await queue.drained.wait()
    except TimeoutError:
        return
