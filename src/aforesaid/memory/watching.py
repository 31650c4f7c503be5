"""Watch for changes: of one conversation, or of all conversations of an owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import Change, ConversationStore, Watchable
from aforesaid.contracts.listing import known_records
from aforesaid.model.ids import parse_uuid

LOOKED_AT_EVERY = 0.25
"""Seconds between two looks at one conversation: a record is read, which costs next to nothing."""
ALL_LOOKED_AT_EVERY = 1.0
"""The same for all conversations of an owner, whose records are all read."""

Revisions = dict[str, int]


def watch(
    store: ConversationStore, conversation_id: str | None = None
) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
    """Watch one conversation, or all of an owner's. Stores that are not `Watchable` are polled."""
    if conversation_id is not None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
    if isinstance(store, Watchable):
        return store.watch(conversation_id)
    return looking(store, conversation_id)


@asynccontextmanager
async def looking(
    store: ConversationStore, conversation_id: str | None = None
) -> AsyncIterator[AsyncIterator[Change]]:
    """Changes in a store that cannot tell of them, found by looking again and again."""
    known = await _revisions(store, conversation_id)
    yield _changes(store, conversation_id, known)


async def _changes(
    store: ConversationStore, conversation_id: str | None, known: Revisions
) -> AsyncIterator[Change]:
    every = ALL_LOOKED_AT_EVERY if conversation_id is None else LOOKED_AT_EVERY
    while True:
        with noting_freshness() as look:
            seen = await _revisions(store, conversation_id)
        if look.degraded:
            seen = known | seen  # a conversation that is not known while the store is away is not gone
        for change in differences(known, seen):
            yield change
        known = seen
        await asyncio.sleep(every)


def differences(before: Revisions, after: Revisions) -> list[Change]:
    """What changed between two looks."""
    gone = [Change(conversation_id=one, revision=None) for one in before if one not in after]
    return gone + [
        Change(conversation_id=one, revision=revision)
        for one, revision in after.items()
        if before.get(one) != revision
    ]


async def _revisions(store: ConversationStore, conversation_id: str | None) -> Revisions:
    if conversation_id is not None:
        record = await store.get(conversation_id)
        return {} if record is None else {record.id: record.revision}
    return {record.id: record.revision async for record in known_records(store)}
