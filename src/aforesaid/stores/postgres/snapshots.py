"""Read snapshots: everything a context needs, in one round trip."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aforesaid.contracts import Document, Listing, LogSnapshot
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import check_count
from aforesaid.stores._snapshots import RowDecoders, SnapshotCache, SnapshotQuery, SnapshotRows
from aforesaid.stores.postgres import rows

# The parts of `aforesaid.snapshot`, and the first column of the record.
RECORD, TAIL, FRONT, DOCUMENTS = range(4)
CONVERSATION = 7

Run = Callable[[str, Mapping[str, Any]], Awaitable[list[rows.Row]]]
"""Runs a named query in one round trip."""


def _document(listing: Listing, row: rows.Row) -> Document:
    updated_at, version, _, _, key, data = row
    return Document(
        kind=listing.kind,
        key=key,
        data=data,
        version=version,
        updated_at=rows.utc(updated_at),
        conversation_id=None,
    )


DECODERS = RowDecoders(
    record=lambda _, row: rows.conversation(tuple(row)),
    entry=rows.entry,
    document=_document,
    size=lambda row: len(row[-1]),
)


async def read_snapshot(
    run: Run, cache: SnapshotCache, named: Mapping[str, Any], query: SnapshotQuery
) -> LogSnapshot:
    """Read a snapshot of a conversation. Raise `ConversationNotFound`."""
    check_count(query.front, field="front", least=0)
    check_count(query.tail, field="tail", least=0)
    cached = cache.get(query)
    known = None if cached is None else cached.rows
    listing = query.documents
    values: dict[str, Any] = {"front": query.front, "tail": query.tail}
    values |= {"version": None if known is None else known.version.decode()}
    values |= {"kind": listing.kind, "after": listing.after, "limit": listing.limit}
    found = await run("snapshot", {**named, **values})
    if not found:
        raise ConversationNotFound(query.conversation_id)
    return cache.decoded(query, _snapshot_rows(query, found, known)).snapshot


def _snapshot_rows(query: SnapshotQuery, found: list[rows.Row], known: SnapshotRows | None) -> SnapshotRows:
    """Sort the rows into their parts; those of an unchanged conversation are the known ones."""
    documents = [row[1:CONVERSATION] for row in found if row[0] == DOCUMENTS]
    first = found[0]
    if known is not None and first[CONVERSATION] is None:
        return known if known.documents == documents else known._replace(documents=documents)
    *record, head = first[CONVERSATION:]
    tail = [row[1:6] for row in found if row[0] == TAIL][::-1]
    front = [row[1:6] for row in found if row[0] == FRONT]
    if len(tail) < query.tail:
        front = tail[: query.front]
    return SnapshotRows(record, head, front, tail, documents, first[5].encode())
