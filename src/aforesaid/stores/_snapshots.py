"""Cache snapshots together with the rows they were decoded from.

A conversation in progress is read again in every turn, mostly unchanged. A cached snapshot is returned only
if the rows, read again, are equal, so it is never stale. Comparing rows is cheaper than decoding them.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Document, Entry, Listing, LogSnapshot
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import is_immutable

# Approximate size of the cache. The least recently stored snapshots are dropped first.
MAX_BYTES = 8 * 1024 * 1024
# Approximate size of an entry without its text, including its row and its place in a window.
ENTRY_BYTES = 1500


class SnapshotQuery(NamedTuple):
    """The parameters of a snapshot."""

    owner: str
    conversation_id: str
    front: int
    tail: int
    documents: Listing


class SnapshotRows(NamedTuple):
    """Rows of one snapshot, as the store returns them."""

    record: Sequence[Any]
    head: str | None
    front: Sequence[Hashable]
    tail: Sequence[Hashable]
    documents: Sequence[Any]
    version: bytes = b""
    """The version of the conversation, where the store has one."""


class RowDecoders(NamedTuple):
    """How a store decodes its rows."""

    record: Callable[[str, Sequence[Any]], Conversation]
    entry: Callable[[str, Any], Entry]
    document: Callable[[Listing, Any], Document]
    size: Callable[[Any], int]
    """The length of the text in the row of an entry or document."""


class CachedSnapshot(NamedTuple):
    """A cached snapshot with its rows."""

    rows: SnapshotRows
    entries: dict[Hashable, Entry]
    """Entries with immutable messages."""
    snapshot: LogSnapshot
    is_immutable: bool
    """Whether several callers may get the snapshot: all of its messages are immutable."""
    size: int
    versions: dict[int, int]
    """Connection → file version in which it read these rows, for stores in a file."""


class SnapshotCache:
    """The snapshots of one store, shared by its threads."""

    def __init__(self, decoders: RowDecoders, max_bytes: int = MAX_BYTES) -> None:
        self._decoders = decoders
        self._cached: BoundedDict[SnapshotQuery, CachedSnapshot] = BoundedDict(
            max_bytes, size=lambda cached: cached.size
        )
        self._lock = threading.Lock()

    def get(self, query: SnapshotQuery) -> CachedSnapshot | None:
        return self._cached.get(query)

    def decoded(self, query: SnapshotQuery, rows: SnapshotRows) -> CachedSnapshot:
        """Return the cached snapshot of these rows, or decode and cache them."""
        cached = self._cached.get(query)
        if cached is not None and cached.is_immutable and cached.rows == rows:
            return cached
        return self._build(query, rows, {} if cached is None else cached.entries)

    def _build(
        self, query: SnapshotQuery, found: SnapshotRows, known: dict[Hashable, Entry]
    ) -> CachedSnapshot:
        name, decoders = query.conversation_id, self._decoders
        record = decoders.record(name, found.record)
        # Decode only new rows: most of a conversation is unchanged since the last snapshot.
        entries = {row: known.get(row) or decoders.entry(name, row) for row in (*found.front, *found.tail)}
        snapshot = LogSnapshot(
            message_count=record.message_count,
            front=[entries[row] for row in found.front],
            tail=[entries[row] for row in found.tail],
            documents=[decoders.document(query.documents, row) for row in found.documents],
            head=found.head,
            lineage=record.lineage,
            record=record,
        )
        shared = {row: entry for row, entry in entries.items() if is_immutable(entry.message)}
        size = sum([ENTRY_BYTES + 2 * decoders.size(row) for row in (*shared, *found.documents)])
        cached = CachedSnapshot(found, shared, snapshot, len(shared) == len(entries), size, {})
        with self._lock:
            self._cached[query] = cached
        return cached
