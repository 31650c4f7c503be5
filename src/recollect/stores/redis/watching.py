"""Telling others: every script that changes a conversation says so on its owner's channel.

What is said is an id and a revision, nothing of the content. Above: `store`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recollect.contracts import Change
from recollect.stores.redis.connections import Connections


@asynccontextmanager
async def watched(
    connections: Connections, channel: str, conversation_id: str | None
) -> AsyncIterator[AsyncIterator[Change]]:
    """The changes on a channel. A connection that breaks is an error: changes may have been missed."""
    async with connections.listening(channel) as heard:
        yield _changes(heard, conversation_id)


async def _changes(heard: AsyncIterator[bytes], conversation_id: str | None) -> AsyncIterator[Change]:
    async for payload in heard:
        changed, _, revision = payload.decode().partition(":")
        if conversation_id in (None, changed):
            yield Change(conversation_id=changed, revision=int(revision) if revision else None)
