"""Snapshots of an encrypted log, for stores that read them in one step.

The wrapped store returns the same snapshot object until something changes. The decrypted snapshot is cached
in it, so that a repeated window costs no more than in a plain store.
"""

from collections.abc import Sequence

from aforesaid.contracts import Document, Entry, Listing, LogEnd, LogSnapshot, SnapshotReader
from aforesaid.layers.encrypted.entries import OpenedEntries, can_be_shared, known_entries
from aforesaid.layers.encrypted.keyring import KIND
from aforesaid.layers.encrypted.log_reads import violations_logged
from aforesaid.layers.encrypted.seals import InvalidSeal, LogId
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
        log_id = self._log_id(conversation_id)
        opened = self._backend.opened(log_id)
        first, last = await self._verified_ends(log_id, seen, front, tail, opened)
        snapshot = LogSnapshot(
            message_count=seen.message_count,
            front=first,
            tail=last,
            documents=await self._snapshot_documents(seen.documents, documents),
        )
        if can_be_shared(first, opened) and can_be_shared(last, opened):
            seen.cache(mark, snapshot)
        return snapshot

    async def _verified_ends(
        self, log_id: LogId, seen: LogSnapshot, front: int, tail: int, opened: OpenedEntries
    ) -> tuple[list[Entry], list[Entry]]:
        """Return the first and the last entries, compared with the head that was read with them."""
        head = await self._head_or_none(log_id, LogEnd(0, 1, None, seen.head))
        first, last = known_entries(seen.front, opened), known_entries(seen.tail, opened)
        if isinstance(head, InvalidSeal) or (
            head is not None
            and not (
                head.holds(last, head.tail(tail), opened) and head.holds(first, head.page(0, front), opened)
            )
        ):
            entries = (await self._whole(log_id)).entries
            return entries[:front], entries[-tail:] if tail else []
        away = head is None
        opened_last = violations_logged(log_id, await self._open_entries(log_id, last, opened, spooled=away))
        return await self._open_entries(log_id, first, opened, spooled=away), opened_last

    async def _snapshot_documents(self, found: Sequence[Document], listing: Listing) -> list[Document]:
        if listing.kind == KIND:
            return []
        opened = await self._open_documents(found)
        if len(opened) == len(found):
            return opened
        # What was set aside is made up for from further on.
        return await self.documents(listing.kind, after=listing.after, limit=listing.limit)
