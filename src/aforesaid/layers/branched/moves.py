"""Let one fork or removal of an owner at a time make or move parts of lineages, in all processes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from aforesaid.contracts import ConversationStore, Document
from aforesaid.errors import DocumentConflict
from aforesaid.model.clock import parse_moment

KIND, KEY = "branch_moves", "moving"
# A process that ended while it moved messages holds the lock this long. Moves repeat from the beginning.
LEASE = timedelta(seconds=30)
PAUSE = 0.02
# How often a waiting move looks before it takes the lock over, however the clock of the store goes.
MOST_WAITS = 2 * LEASE / timedelta(seconds=PAUSE)


@asynccontextmanager
async def moving(store: ConversationStore) -> AsyncIterator[None]:
    """Wait until nothing else makes or moves parts of lineages; then do so in the block."""
    name = os.urandom(8).hex()
    held = await _acquired(store, name)
    try:
        yield
    finally:
        with suppress(DocumentConflict):  # it took so long that another one took the lock over
            await store.delete_document(KIND, KEY, expected_version=held.version)


async def nothing_moves(store: ConversationStore) -> None:
    """Wait until nothing makes or moves parts of lineages."""
    waited = 0
    while await _held(store, waited) is not None:
        waited += 1
        await asyncio.sleep(PAUSE)


async def _acquired(store: ConversationStore, name: str) -> Document:
    waited = 0
    while True:
        found = await store.get_document(KIND, KEY)
        if found is None or _is_over(store, found, waited):
            data = f"{name} {(store.now() + LEASE).isoformat()}".encode()
            version = 0 if found is None else found.version
            with suppress(DocumentConflict):
                return await store.put_document(KIND, KEY, data, expected_version=version)
        waited += 1
        await asyncio.sleep(PAUSE)


async def _held(store: ConversationStore, waited: int) -> Document | None:
    found = await store.get_document(KIND, KEY)
    return None if found is None or _is_over(store, found, waited) else found


def _is_over(store: ConversationStore, held: Document, waited: int) -> bool:
    until = parse_moment(held.data.decode().partition(" ")[2], field="until")
    return waited >= MOST_WAITS or store.now() >= until
