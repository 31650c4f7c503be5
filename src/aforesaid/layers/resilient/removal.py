"""Remove copies that the resilient layer holds: spooled operations, dead letters and last known state."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.operations import concerns
from aforesaid.layers.resilient.spool import Ref

if TYPE_CHECKING:
    from aforesaid.layers.resilient.backend import ResilientBackend


async def remove_copies(
    backend: "ResilientBackend", owner: str, conversation_id: str | None, until: datetime | None
) -> dict[str, int]:
    """Remove the layer's copies of an owner's data, or of one conversation; return their number by kind.

    With `until`, operations that were accepted later stay. Removed operations are not stored.
    """
    backend.check_open()
    await backend.adopt()  # otherwise the spool of an ended process would restore the data later
    known = backend.last_known
    copies = known.forget(owner) if conversation_id is None else known.drop(owner, conversation_id)
    spooled = await _remove_spooled(backend, owner, conversation_id, until)
    letters = await asyncio.to_thread(dead_letters.remove, backend.folder, owner, conversation_id, until)
    return {"spool_entries": len(spooled), "dead_letters": letters, "cached_copies": copies}


async def _remove_spooled(
    backend: "ResilientBackend", owner: str, conversation_id: str | None, until: datetime | None
) -> list[Ref]:
    spool, queue = backend.spool, backend.queues.get(owner)
    if spool is None or not spool.size:
        return []

    def matches(payload: bytes) -> bool:
        return concerns(payload, owner, conversation_id, until=until)

    if queue is None:
        return await spool.forget(matches)
    async with queue.replay_lock:
        removed = await spool.forget(matches)
        queue.drop(removed)
        if conversation_id is not None:
            queue.view.owner_data.delete(conversation_id)
        elif until is not None:
            queue.view.forget_older(until)
        else:
            queue.view.owner_data.logs.clear()
            queue.view.owner_data.sessions.clear()
    backend.remove_if_empty(queue)
    return removed
