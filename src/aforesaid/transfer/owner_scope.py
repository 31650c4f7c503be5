"""All places that hold one owner's data."""

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import JOURNAL, Backend, ConversationStore, CopyHolder
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.stores.blobs import BlobStore

if TYPE_CHECKING:
    from aforesaid.transfer.archives import OwnerArchives


class OwnerScope(Struct, frozen=True, kw_only=True):
    """An owner's store with its backend, blobs, archives and copies."""

    owner: str
    store: ConversationStore
    backend: Backend | None = None
    blobs: BlobStore | None = None
    archives: "OwnerArchives | None" = None
    holders: tuple[CopyHolder, ...] = ()
    """Holders of copies: caches, spools, archives."""
    rules: RetentionRules = RetentionRules()
    """Default retention rules, for conversations without a rule of the owner."""

    async def authoritative(self) -> "OwnerScope":
        """Return the same scope with the authoritative store. Raise `StoreUnavailable`."""
        return replace(self, store=await self.store.authoritative())

    @property
    def journal(self) -> ConversationStore | None:
        """The store in which erasures in progress are recorded."""
        return None if self.backend is None else self.backend.of(JOURNAL)
