"""Telling others: every script that changes a conversation says so on its owner's channel.

What is said is an id and a revision, nothing of the content. Above: `store`.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aforesaid.contracts import Change
from aforesaid.stores.redis.connections import Connections


@asynccontextmanager
async def watched(
    connections: Connections, channel: str, conversation_id: str | None
) -> AsyncIterator[AsyncIterator[Change]]:
    """The changes on a channel. A connection that breaks is an error: changes may have been missed."""
    async with connections.listening(channel) as heard:
        yield _changes(heard, conversation_id)


async def _changes(heard: AsyncIterator[bytes], conversation_id: str | None) -> AsyncIterator[Change]:
    async for payload in heard:
        change = _change_in(payload)
        if change is not None and conversation_id in (None, change.conversation_id):
            yield change


def _change_in(payload: bytes) -> Change | None:
    """Read a payload; None where it is not one of ours. Any client that may publish can send one."""
    found = _PAYLOAD.fullmatch(payload)
    if found is None:
        return None
    changed, revision = found.group(1).decode(), found.group(2)
    return Change(conversation_id=changed, revision=int(revision) if revision else None)


_PAYLOAD = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9]{0,18})")
