"""One owner's encrypted store."""

from datetime import datetime

from msgspec.structs import replace

from aforesaid.contracts import Tally
from aforesaid.layers.encrypted.documents import SealedDocuments
from aforesaid.layers.encrypted.keyring import KIND
from aforesaid.layers.encrypted.log_writes import SealedLogs
from aforesaid.model.conversations import Conversation


class EncryptedStore(SealedLogs, SealedDocuments):
    """One owner's part. The store inside must be `Sealable`."""

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        found = await self.inner.expired(by=by, limit=limit)
        return self._readable(found, await self._keys()) if self._seals_records else found

    async def clear(self) -> Tally:
        """Remove the owner's data and keys. Without the keys, backups of the data are unreadable."""
        self._backend.keyring.evict(self._owner)
        # Keys in the same store are cleared with the data. Keys in a separate keyring are deleted before the
        # data: a conversation that begins after the clear creates a new key, which must stay.
        dropped = False if self._keys_are_inside else await self._backend.keyring.drop(self._owner)
        gone = await self.inner.clear()
        self._backend.keyring.evict(self._owner)
        self._backend.forget_owner(self._owner)
        return _with_keys_apart(gone) + Tally(keys=dropped)

    async def tally(self, conversation_id: str | None = None) -> Tally:
        held = _with_keys_apart(await self.inner.tally(conversation_id))
        if conversation_id is not None or self._keys_are_inside:
            return held
        return held + Tally(keys=await self._backend.keyring.has(self._owner))


def _with_keys_apart(tally: Tally) -> Tally:
    """Count key documents as keys instead of documents."""
    documents = dict(tally.documents)
    return replace(tally, keys=documents.pop(KIND, 0), documents=documents)
