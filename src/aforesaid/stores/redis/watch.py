"""Watch changes: every script that changes a conversation publishes on its owner's channel.

A notification is only a hint, because every client with access to the server can publish. It contains the id
and the revision, but no content. After a hint, the watcher reads the record and reports its actual revision,
so a forged or repeated hint costs one read and reports nothing false.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aforesaid.contracts import Change
from aforesaid.stores.redis.owner_connection import OwnerConnection


@asynccontextmanager
async def watch(
    connection: OwnerConnection, conversation_id: str | None
) -> AsyncIterator[AsyncIterator[Change]]:
    """Yield the changes of one conversation, or of all. Raise when the connection breaks or the server stops
    answering, because changes may be missed then.
    """
    async with connection.connections.listening(connection.keys.changes) as payloads:
        # Subscribed first, so that no change between the two is missed.
        watcher = _Watcher(connection, conversation_id)
        await watcher.begin()
        yield watcher.changes(payloads)


class _Watcher:
    """Compares the store with what it reported before."""

    def __init__(self, connection: OwnerConnection, conversation_id: str | None) -> None:
        self._connection = connection
        self._conversation_id = conversation_id
        self._revisions: dict[str, int | None] = {}
        """The last known revision by conversation; None where only its existence is known."""

    async def begin(self) -> None:
        """Read which conversations exist: only those can be removed."""
        if self._conversation_id is None:
            # The revisions are not read: an owner may have thousands of conversations.
            found = await self._connection.call("ZRANGE", self._connection.keys.index, 0, -1)
            self._revisions = dict.fromkeys(one.decode() for one in found)
        elif (revision := await self._revision(self._conversation_id)) is not None:
            self._revisions = {self._conversation_id: revision}

    async def changes(self, payloads: AsyncIterator[bytes]) -> AsyncIterator[Change]:
        async for payload in payloads:
            hint = _PAYLOAD.fullmatch(payload)
            if hint is None:
                continue
            changed = hint.group(1).decode()
            if self._conversation_id in (None, changed) and await self._has_changed(changed):
                yield Change(conversation_id=changed, revision=self._revisions.get(changed))

    async def _has_changed(self, conversation_id: str) -> bool:
        revision = await self._revision(conversation_id)
        if revision is None:
            existed = conversation_id in self._revisions
            self._revisions.pop(conversation_id, None)
            return existed
        was, self._revisions[conversation_id] = self._revisions.get(conversation_id), revision
        return was != revision

    async def _revision(self, conversation_id: str) -> int | None:
        found = await self._connection.unexpired(conversation_id)
        return None if found is None else found.record.revision


_PAYLOAD = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9]{0,18})")
"""The id and the revision; no revision after a removal."""
