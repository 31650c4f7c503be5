"""Watch for changes: of one conversation, or of all conversations of an owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import Change, ConversationStore, Watchable, capability
from aforesaid.contracts.listing import known_records
from aforesaid.model.ids import parse_uuid

POLL_SECONDS = 0.25
"""Seconds between two polls of one conversation, each of which reads one record."""
POLL_ALL_SECONDS = 1.0
"""Seconds between two polls of all of an owner's conversations, each of which reads all records."""

Revisions = dict[str, int]


def watch(
    store: ConversationStore, conversation_id: str | None = None
) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
    """Watch one conversation, or all of an owner's. Stores that are not `Watchable` are polled."""
    if conversation_id is not None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
    watchable = capability(store, Watchable)
    if watchable is not None:
        return watchable.watch(conversation_id)
    return poll(store, conversation_id)


@asynccontextmanager
async def poll(
    store: ConversationStore, conversation_id: str | None = None
) -> AsyncIterator[AsyncIterator[Change]]:
    """Report changes of a store that is not `Watchable`, by polling."""
    previous = await _revisions(store, conversation_id)
    yield _changes(store, conversation_id, previous)


async def _changes(
    store: ConversationStore, conversation_id: str | None, previous: Revisions
) -> AsyncIterator[Change]:
    every = POLL_ALL_SECONDS if conversation_id is None else POLL_SECONDS
    while True:
        with noting_freshness() as freshness:
            current = await _revisions(store, conversation_id)
        if freshness.degraded:
            current = (
                previous | current
            )  # while the store is unavailable, a missing conversation may still exist
        for change in differences(previous, current):
            yield change
        previous = current
        await asyncio.sleep(every)


def differences(before: Revisions, after: Revisions) -> list[Change]:
    """Return the changes between two polls."""
    removed = [Change(conversation_id=one, revision=None) for one in before if one not in after]
    return removed + [
        Change(conversation_id=one, revision=revision)
        for one, revision in after.items()
        if before.get(one) != revision
    ]


async def _revisions(store: ConversationStore, conversation_id: str | None) -> Revisions:
    if conversation_id is not None:
        record = await store.get(conversation_id)
        return {} if record is None else {record.id: record.revision}
    return {record.id: record.revision async for record in known_records(store)}
