"""Everywhere that something of one owner can be. Below: contracts, blobs. Above: erasure, the manager."""

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import JOURNAL, Backend, ConversationStore, CopyHolder
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.stores.blobs import BlobStore

if TYPE_CHECKING:
    from aforesaid.transfer.archives import OwnerArchives


class OwnerScope(Struct, frozen=True, kw_only=True):
    """An owner's store, and what stands around it."""

    owner: str
    store: ConversationStore
    backend: Backend | None = None
    blobs: BlobStore | None = None
    archives: "OwnerArchives | None" = None
    holders: tuple[CopyHolder, ...] = ()
    """What holds copies: caches, spools, archives."""
    rules: RetentionRules = RetentionRules()
    """How long conversations are kept where the owner has no rule: what the memory was opened with."""

    async def authoritative(self) -> "OwnerScope":
        """The same with the authoritative store. Raises `StoreUnavailable`; see `ConversationStore`."""
        return replace(self, store=await self.store.authoritative())

    @property
    def journal(self) -> ConversationStore | None:
        """Where unfinished erasures are noted."""
        return None if self.backend is None else self.backend.of(JOURNAL)
