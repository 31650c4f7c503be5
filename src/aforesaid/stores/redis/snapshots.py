"""Read snapshots: everything a context needs, in one call of a script.

The documents of an owner are in another cluster slot than a conversation, so on a cluster they take a second
call at the same time.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from aforesaid.contracts import Listing, LogSnapshot
from aforesaid.model.conversations import check_count
from aforesaid.stores._snapshots import RowDecoders, SnapshotCache, SnapshotQuery, SnapshotRows
from aforesaid.stores.redis import values
from aforesaid.stores.redis.owner_connection import OwnerConnection
from aforesaid.stores.redis.records import document_bounds, document_of

_DECODERS = RowDecoders(
    record=values.record,
    entry=values.entry,
    document=lambda listing, member: document_of(member, listing.conversation_id),
    size=len,
)


class SnapshotMemory:
    """The cached snapshots of a backend."""

    def __init__(self) -> None:
        self.cache = SnapshotCache(_DECODERS)

    def forget(self) -> None:
        """Drop everything after a removal. A read that began before fills the old cache, which is gone."""
        self.cache = SnapshotCache(_DECODERS)


async def read_snapshot(
    connection: OwnerConnection,
    memory: SnapshotMemory,
    conversation_id: str,
    *,
    front: int,
    tail: int,
    documents: Listing,
) -> LogSnapshot:
    """Read a snapshot of a conversation. Raise `ConversationNotFound`."""
    check_count(front, field="front", least=0)
    check_count(tail, field="tail", least=0)
    query = SnapshotQuery(connection.owner, conversation_id, front, tail, documents)
    cache = memory.cache
    cached = cache.get(query)
    known = None if cached is None else cached.rows
    return cache.decoded(query, await _rows(connection, query, known)).snapshot


async def _rows(
    connection: OwnerConnection, query: SnapshotQuery, known: SnapshotRows | None
) -> SnapshotRows:
    """Read the rows; those of an unchanged conversation are the known ones."""
    now, listing = values.moment_of(connection.now()), query.documents
    arguments = (now, query.front, query.tail, b"" if known is None else known.version)
    if not listing.limit:
        reply = await connection.run("read_snapshot", query.conversation_id, *arguments)
    elif not connection.clustered:
        bounds = document_bounds(listing)
        reply = await connection.run(
            "read_snapshot", query.conversation_id, *arguments, *bounds, also=(connection.keys.documents,)
        )
    else:
        reply, (_, found) = await asyncio.gather(
            connection.run("read_snapshot", query.conversation_id, *arguments),
            connection.run_on_documents("read_documents", now, *document_bounds(listing)),
        )
        reply[1] = found
    if known is None or reply[0] == b"done":
        return _snapshot_rows(query, reply)
    return known if known.documents == reply[1] else known._replace(documents=reply[1])


def _snapshot_rows(query: SnapshotQuery, reply: Sequence[Any]) -> SnapshotRows:
    _, documents, version, record, head, front, newest_first = reply
    tail = newest_first[::-1]
    if len(tail) < query.tail:
        front = tail[: query.front]
    return SnapshotRows(record, head.decode() or None, front, tail, documents, version)
