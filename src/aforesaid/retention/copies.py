"""Copies of an owner's data outside the store: archives and exported folders."""

from pathlib import Path
from typing import TYPE_CHECKING

from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.model.conversations import Conversation
from aforesaid.retention.removal import Removal
from aforesaid.telemetry import events
from aforesaid.transfer.owner_scope import OwnerScope

if TYPE_CHECKING:
    from aforesaid.transfer.archive_files import Archive
    from aforesaid.transfer.folders import Manifest


class OwnerCopies:
    """One owner's archives and exports."""

    def __init__(self, scope: OwnerScope, removal: Removal, unstored: UnstoredTurns) -> None:
        self._scope = scope
        self._removal = removal
        self._unstored = unstored

    async def restore(self, conversation_id: str) -> Conversation:
        """Move a conversation back from its archive, unchanged. Raise `ArchiveNotFound`."""
        from aforesaid.transfer.archival import restore

        archives = self._removal.archives()
        back = await restore(self._scope.store, archives, conversation_id, blobs=self._scope.blobs)
        events.conversation_changed("conversation_restored", "a conversation was restored", back.id)
        return back

    async def archives(self) -> list["Archive"]:
        """List the archived conversations without content, the most recently active first."""
        return await self._removal.archives().list()

    async def export(self, folder: str | Path) -> "Manifest":
        """Write everything stored about this owner into a new folder, for people and for programs."""
        from aforesaid.transfer.folders import export_owner

        await self._unstored.flush(self._scope.owner)
        return await export_owner(self._scope, Path(folder))

    async def import_(self, folder: str | Path) -> "Manifest":
        """Import an exported folder as this owner's data."""
        from aforesaid.transfer.folders import import_owner

        return await import_owner(self._scope, Path(folder))
