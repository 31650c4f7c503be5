"""Watch changes: every script that changes a conversation publishes on its owner's channel.

A message contains the id and the revision, but no content.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aforesaid.contracts import Change
from aforesaid.stores.redis.connections import Connections


@asynccontextmanager
async def watch_channel(
    connections: Connections, channel: str, conversation_id: str | None
) -> AsyncIterator[AsyncIterator[Change]]:
    """Yield the changes on a channel. Raise when the connection breaks, because changes may be missed
    then."""
    async with connections.listening(channel) as messages:
        yield _changes(messages, conversation_id)


async def _changes(messages: AsyncIterator[bytes], conversation_id: str | None) -> AsyncIterator[Change]:
    async for payload in messages:
        change = _parse_change(payload)
        if change is not None and conversation_id in (None, change.conversation_id):
            yield change


def _parse_change(payload: bytes) -> Change | None:
    """Parse a message; None if it is invalid, because any client with access can publish."""
    found = _PAYLOAD.fullmatch(payload)
    if found is None:
        return None
    changed, revision = found.group(1).decode(), found.group(2)
    return Change(conversation_id=changed, revision=int(revision) if revision else None)


_PAYLOAD = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9]{0,18})")
