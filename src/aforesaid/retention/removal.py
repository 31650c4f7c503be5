"""Remove data and everything derived from it: delete, clear, redact, archive, erase; and copies elsewhere."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from aforesaid._internal.freshness import noting_freshness
from aforesaid.contracts import Scrubbable, capability
from aforesaid.dialects import references_in
from aforesaid.dialects.tombstones import MARK, TAG, tombstone_of
from aforesaid.errors import (
    InvalidInput,
    InvalidSetting,
    MessageNotFound,
    NotAllowed,
    StoreUnavailable,
    shown,
)
from aforesaid.intake.messages import Intake
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message
from aforesaid.model.participants import participant_of
from aforesaid.notes.records import NotesCache, remove_notes_from
from aforesaid.retention.rules import Lifetimes
from aforesaid.telemetry import events
from aforesaid.transfer.owner_scope import OwnerScope

if TYPE_CHECKING:
    from aforesaid.retention.receipts import Receipt
    from aforesaid.retention.repetitions import ForgetPreview, ForgetReceipt, Forgettable
    from aforesaid.search.searcher import Searcher
    from aforesaid.transfer.archives import Archive, OwnerArchives
    from aforesaid.transfer.folders import Manifest


# Remove data and everything derived from it: delete, clear, redact, archive, erase.
#
# Every removal ends in `Removal._gone`, which lists what else contains the removed words.


PAGE = 100
Reason = Literal["deleted", "cleared", "redacted", "archived"]


class Removal:
    """Removes one owner's data."""

    def __init__(
        self,
        scope: OwnerScope,
        intake: Intake,
        searcher: "Searcher",
        notes_cache: NotesCache,
        lifetimes: Lifetimes,
        unstored: UnstoredTurns,
    ) -> None:
        self.scope = scope
        self.store = scope.store
        self._intake = intake
        self._images = intake.images
        self._searcher = searcher
        self._notes_cache = notes_cache
        self._lifetimes = lifetimes
        self._unstored = unstored

    async def delete_conversation(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> None:
        """Remove the conversation and its archive. Do nothing where there is none."""
        await self._unstored.later_is_done()
        await self.store.delete(conversation_id, expected_revision=expected_revision)
        await self._gone(conversation_id, "deleted")
        events.conversation_ended(conversation_id, "deleted")

    async def clear_history(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> Conversation:
        """Remove the messages and keep the conversation."""
        return await self.rewrite_history(conversation_id, (), expected_revision=expected_revision)

    async def rewrite_history(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Conversation:
        """Replace all messages of a conversation in one step; return its record.

        Data derived from the log is removed. With `expected_revision`, raise `RevisionConflict` unless the
        conversation has that revision. To add messages, use `append`.
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            raise InvalidInput(f"messages must be a list; got {shown(messages)}", field="messages")
        await self._unstored.later_is_done()
        prepared = await self._intake.stored_form(conversation_id, messages)
        if participant_of(self.store) is None:
            from aforesaid.analytics.collection import forget

            await forget(self.store, conversation_id, recount=True)
        stored = await self.store.rewrite(conversation_id, prepared, expected_revision=expected_revision)
        await self._gone(conversation_id, "cleared")
        events.conversation_changed("history_cleared", "a history was cleared", conversation_id)
        if messages:
            self._searcher.enqueue_indexing(conversation_id)
        return stored.conversation

    async def redact(
        self, conversation_id: str, message_id: str, *, mark: str = MARK, scrub: bool = False
    ) -> Message:
        """Remove the words of a message and leave a mark with its id, time, place and tool call ids.

        Data derived from the conversation goes too, and so do notes made from this message. `scrub` also
        removes the words from the store's files where that needs a rewrite of tables or files.
        """
        redacted = await self._redact(conversation_id, message_id, mark=mark)
        scrubbable = capability(self.scope.backend, Scrubbable) if scrub else None
        if scrubbable is not None:
            await scrubbable.scrub(self.scope.owner)
        return redacted

    async def _redact(
        self, conversation_id: str, message_id: str, *, mark: str = MARK, anonymous: bool = False
    ) -> Message:
        from aforesaid.intake.open_turns import open_turns

        await self._unstored.later_is_done()
        entry = await self.store.entry(conversation_id, message_id)
        if entry is None:
            raise MessageNotFound(parse_uuid(conversation_id, field="conversation_id"), message_id)
        if entry.unreadable is None:
            blank = tombstone_of(entry.message, mark=mark)
        else:
            blank = Message(role="system", content=mark, message_id=message_id, tags=(TAG,))
        await open_turns(self.store, entry.conversation_id)
        (counted,) = await self._intake.counted([blank.with_(author=None) if anonymous else blank])
        replaced = await self.store.replace(conversation_id, counted)
        images = references_in(entry.message)
        await self._gone(replaced.conversation_id, "redacted", message_id=message_id, images=images)
        return replaced.message

    async def erase_participant(self, participant_id: str) -> "Receipt":
        """Erase a person from all conversations of this owner: the messages that they wrote, their name, and
        their read markers.

        A mark stays at the place of each message. The receipt counts what was removed. Call it again after an
        interruption: it continues.
        """
        from aforesaid.retention.people import erase_person

        self._refuse_participant()
        await self._unstored.catch_up(self.scope.owner)
        receipt = await erase_person(self.scope, participant_id, partial(self._redact, anonymous=True))
        events.erased(0, None)
        return receipt

    async def archive(self, conversation_id: str) -> "Archive":
        """Move a conversation into an archive file. A second call has no further effect."""
        from aforesaid.transfer.archives.moves import archive

        archives = self.archives()
        # Queued turns first: stored afterwards, they would find no conversation.
        await self._unstored.catch_up(self.scope.owner, conversation_id)
        moved = await archive(self.store, archives, conversation_id, blobs=self.scope.blobs)
        await self._gone(conversation_id, "archived")
        events.conversation_ended(conversation_id, "archived")
        return moved

    async def erase(self, conversation_id: str | None = None) -> "Receipt":
        """Erase a conversation, or everything this owner has, permanently from everywhere.

        This removes rows, index, vectors, summaries, notes, cached copies, images, spools and archives, and
        their traces in the store's files; with a conversation, also the notes made from it, and all branches
        of its family, because they show the same words. An interrupted erasure resumes when the store is
        opened again.
        """
        from aforesaid.layers.branched import BranchedStore, family_of, stored_itself
        from aforesaid.layers.branched.links import remove_links
        from aforesaid.retention.erasure import erase
        from aforesaid.retention.receipts import combined

        self._refuse_participant()
        # Without the branched layer, which would move words to branches that still show them.
        scope = replace(self.scope, store=stored_itself(self.store))
        if conversation_id is None:
            receipt = await erase(scope)
        else:
            erased = parse_uuid(conversation_id, field="conversation_id")
            family = await family_of(self.store, erased)
            receipts = [await erase(scope, one) for one in family]
            receipt = combined(receipts, erased)
            if isinstance(self.store, BranchedStore):
                for one in family:
                    await remove_links(scope.store, one)
            await self._lifetimes.change(lambda rules: rules.without(family))
        events.erased(receipt.erased.get("conversations", 0), conversation_id)
        return receipt

    def _refuse_participant(self) -> None:
        if participant_of(self.store) is not None:
            raise NotAllowed("a participant has no access to the data of the owner")

    def archives(self) -> "OwnerArchives":
        """Return this owner's archives. Raise `InvalidSetting` where the memory has none."""
        if self.scope.archives is None:
            raise InvalidSetting(
                "archives need a folder: set AFORESAID_ARCHIVE_FOLDER, or `archives` of `Retention`",
                field="archives",
            )
        return self.scope.archives

    async def _gone(
        self,
        conversation_id: str,
        reason: Reason,
        *,
        message_id: str | None = None,
        images: Iterable[str] = (),
    ) -> None:
        """Remove what is derived from words that left the log: index, images, archive, notes."""
        if reason == "redacted":
            # The index and vectors in memory still contain the words, so they are rebuilt.
            await self._searcher.resources.remove_copies(self.scope.owner, conversation_id)
            self._searcher.enqueue_indexing(conversation_id)
            await self._remove_images(conversation_id, images)
        else:
            if reason != "archived":
                await self._unstored.remove_copies(self.scope.owner, conversation_id)
            self._searcher.forget(conversation_id)
            if reason != "archived":  # archiving has moved the images into the archive
                await self._images.forget(conversation_id)
        await self._remove_archive(conversation_id, reason)
        if message_id is not None:
            await remove_notes_from(self.store, conversation_id, message_id)
            self._notes_cache.drop(self.scope.owner)

    async def _remove_archive(self, conversation_id: str, reason: Reason) -> None:
        """Remove an archive that still contains the words; a crash while archiving can leave one."""
        if self.scope.archives is None or reason == "archived":
            return
        from aforesaid.transfer.archives.moves import forget_copy

        # After a deletion no conversation is left to compare with. After a change the store has the
        # conversation, so an archive of it is a leftover.
        if reason == "deleted":
            await self.scope.archives.forget(conversation_id)
        else:
            await forget_copy(self.store, self.scope.archives, conversation_id)

    async def _remove_images(self, conversation_id: str, digests: Iterable[str]) -> None:
        """Remove images that no message of the conversation refers to any more."""
        unused = set(digests)
        if self.scope.blobs is None or not unused:
            return
        whole = await self.store.authoritative()
        offset = 0
        while unused and (entries := await whole.page(conversation_id, limit=PAGE, offset=offset)):
            unused -= {digest for entry in entries for digest in references_in(entry.message)}
            offset += len(entries)
        for digest in unused:
            await self.scope.blobs.remove(conversation_id, digest)


# Forget a content wherever it is repeated.


class Forgetting:
    """Removes notes or a message of one owner, with everything that repeats their content."""

    def __init__(self, manager: "Forgettable", scope: OwnerScope, unstored: UnstoredTurns) -> None:
        self._manager = manager
        self._scope = scope
        self._unstored = unstored

    async def _whole(self, search: Callable[[], Awaitable["ForgetPreview"]]) -> "ForgetPreview":
        """Return what a search of all data finds. Raise `StoreUnavailable` where a part of it is missing."""
        await self._unstored.catch_up(self._scope.owner)
        await self._scope.authoritative()
        with noting_freshness() as seen:
            found = await search()
        if seen.degraded:
            raise StoreUnavailable(
                "the store became unavailable during the search, so repetitions may be missing; the operation"
                " changed nothing"
            )
        return found

    async def preview_forget(self, what: str) -> "ForgetPreview":
        """Return what `forget_everywhere` would remove: notes, and the messages that repeat them."""
        from aforesaid.retention.repetitions import named_content

        return await self._whole(lambda: named_content(self._manager, what))

    async def forget_everywhere(
        self, what: str, *, keep: Collection[str] = (), scrub: bool = False
    ) -> "ForgetReceipt":
        """Remove the notes that `what` names, as `forget` does, and redact all messages that repeat them:
        questions, calls, results and answers. Summaries, vectors and kept requests with them go, too.

        Notes and messages whose ids are in `keep` stay, except a note whose message is redacted.
        """
        from aforesaid.retention.repetitions import forget_all

        found = (await self.preview_forget(what)).without(keep)
        return await forget_all(self._manager, found, scrub=scrub)

    async def preview_redact(self, conversation_id: str, message_id: str) -> "ForgetPreview":
        """Return what `redact_everywhere` would remove. Raise `MessageNotFound`."""
        from aforesaid.retention.repetitions import message_content

        return await self._whole(lambda: message_content(self._manager, conversation_id, message_id))

    async def redact_everywhere(
        self, conversation_id: str, message_id: str, *, keep: Collection[str] = (), scrub: bool = False
    ) -> "ForgetReceipt":
        """Redact a message and all messages that repeat its content, and remove the notes that do. Raise
        `MessageNotFound`.

        Notes and messages whose ids are in `keep` stay, except a note whose message is redacted.
        """
        from aforesaid.retention.repetitions import forget_all

        if message_id in keep:
            raise InvalidInput("keep contains the message to redact", field="keep", value=message_id)
        found = (await self.preview_redact(conversation_id, message_id)).without(keep)
        return await forget_all(self._manager, found, scrub=scrub, by_message=True)


# Copies of an owner's data outside the store: archives and exported folders.


class OwnerCopies:
    """One owner's archives and exports."""

    def __init__(self, scope: OwnerScope, removal: Removal, unstored: UnstoredTurns) -> None:
        self._scope = scope
        self._removal = removal
        self._unstored = unstored

    async def restore(self, conversation_id: str) -> Conversation:
        """Move a conversation back from its archive, unchanged. Raise `ArchiveNotFound`."""
        from aforesaid.transfer.archives.moves import restore

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

        await self._unstored.catch_up(self._scope.owner)
        return await export_owner(self._scope, Path(folder))

    async def import_(self, folder: str | Path) -> "Manifest":
        """Import an exported folder as this owner's data."""
        from aforesaid.transfer.folders import import_owner

        return await import_owner(self._scope, Path(folder))
