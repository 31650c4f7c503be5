"""Wait until the store has every acknowledged write: the precondition of an operation that needs everything.

Acknowledged writes that the store lacks are in three places: in the lanes of this process, in the spool of a
process that died, and in the spool of another live process on this machine. Lanes are waited for. A dead
process's spool is adopted, and becomes a lane. A live process stores its own spool; it is waited for.
"""

import asyncio
from typing import TYPE_CHECKING

from aforesaid.errors import StoreError, StoreUnavailable
from aforesaid.layers.resilient.owner_queues import OwnerQueue

if TYPE_CHECKING:
    from aforesaid.layers.resilient.backend import ResilientBackend

LOOK_EVERY = 0.05
"""Seconds between looks at the breaker, or at another process's spool."""


async def settle(backend: "ResilientBackend", owner: str | None = None) -> None:
    """Return once the store has every acknowledged write of the owner, or of all owners.

    Raises `StoreUnavailable` when the store is away, or when `Resilience.settle_deadline` passes first.
    """
    backend.check_open()
    if not backend.reachable:
        raise backend.away()
    deadline = backend.resilience.settle_deadline
    try:
        async with asyncio.timeout(deadline) as waiting:
            await _settle(backend, owner)
    except TimeoutError:
        if not waiting.expired():
            raise
        raise StoreUnavailable(
            f"{backend.name} lacks writes that were acknowledged while it was away, and did not get all of "
            f"them within {deadline:g} s; this operation needs all data, and changed nothing: try it again"
        ) from None


async def _settle(backend: "ResilientBackend", owner: str | None) -> None:
    while True:
        await _adopt(backend)
        while (queue := _next_lane(backend, owner)) is not None:
            await _drained(backend, queue)
        pending = await backend.pending_owners()
        if not (pending if owner is None else owner in pending):
            return
        await asyncio.sleep(LOOK_EVERY)


async def _adopt(backend: "ResilientBackend") -> None:
    try:
        await backend.adopt()
    except StoreError as error:
        raise StoreUnavailable(
            f"the spool of an earlier process cannot be read: {backend.name} may lack data, and this "
            f"operation needs all of it; it changed nothing: {error}"
        ) from error


def _next_lane(backend: "ResilientBackend", owner: str | None) -> OwnerQueue | None:
    if owner is not None:
        return backend.queues.get(owner)
    return next(iter(backend.queues.values()), None)


async def _drained(backend: "ResilientBackend", queue: OwnerQueue) -> None:
    """Wait for a lane, a moment at a time: the store may go away again."""
    if not backend.reachable:
        raise backend.away()
    await backend.hurry()
    try:
        async with asyncio.timeout(LOOK_EVERY):
            await queue.drained.wait()
    except TimeoutError:
        return
