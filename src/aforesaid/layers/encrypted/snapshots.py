"""Snapshots of an encrypted log, for stores that read them in one step.

The wrapped store returns the same snapshot object until something changes. The decrypted snapshot is cached
in it, so that a repeated window costs no more than in a plain store.
"""

from collections.abc import Sequence

from aforesaid.contracts import Document, Entry, Listing, LogEnd, LogSnapshot, SnapshotReader
from aforesaid.layers.encrypted.heads import Head
from aforesaid.layers.encrypted.keyring import KIND
from aforesaid.layers.encrypted.sealing import InvalidSeal, Place, is_immutable
from aforesaid.layers.encrypted.store import EncryptedStore

_OPENED = "opened"


class SnapshotStore(EncryptedStore):
    """An encrypted store. It is a `SnapshotReader` where the store inside is one."""

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        reading = self.inner_capability(SnapshotReader).read_snapshot(
            conversation_id, front=front, tail=tail, documents=documents
        )
        seen = await self._read(reading)
        mark = _OPENED, await self._keys()
        known: LogSnapshot | None = seen.cached(mark)
        if known is not None:
            return known
        opened = await self._opened_snapshot(conversation_id, seen, front, tail, documents)
        if _can_be_shared(opened.front) and _can_be_shared(opened.tail):
            seen.cache(mark, opened)
        return opened

    async def _opened_snapshot(
        self, conversation_id: str, seen: LogSnapshot, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        place = self._place(conversation_id)
        first, last = await self._proven_ends(place, seen, front, tail)
        return LogSnapshot(
            message_count=seen.message_count,
            front=first,
            tail=last,
            documents=await self._snapshot_documents(seen.documents, documents),
        )

    async def _proven_ends(
        self, place: Place, seen: LogSnapshot, front: int, tail: int
    ) -> tuple[list[Entry], list[Entry]]:
        """The first and the last entries, proven by the head that was read with them."""
        head = await self._head_or_none(place, LogEnd(0, 1, None, seen.head))
        if isinstance(head, InvalidSeal) or (head is not None and not _agrees(head, seen, front, tail)):
            entries = (await self._whole(place)).entries
            return entries[:front], entries[-tail:] if tail else []
        known = self._backend.opened(place)
        last = self._log_violations(
            place, await self._open_entries(place, seen.tail, known, spooled=head is None)
        )
        return await self._open_entries(place, seen.front, known, spooled=head is None), last

    async def _snapshot_documents(self, found: Sequence[Document], listing: Listing) -> list[Document]:
        if listing.kind == KIND:
            return []
        opened = await self._open_documents(found)
        if len(opened) == len(found):
            return opened
        # What was set aside is made up for from further on.
        return await self.documents(listing.kind, after=listing.after, limit=listing.limit)


def _agrees(head: Head, seen: LogSnapshot, front: int, tail: int) -> bool:
    return head.holds(seen.tail, head.tail(tail)) and head.holds(seen.front, head.page(0, front))


def _can_be_shared(entries: Sequence[Entry]) -> bool:
    """Whether all entries are readable and immutable, so that callers can share them."""
    return all(entry.unreadable is None and is_immutable(entry.message) for entry in entries)
