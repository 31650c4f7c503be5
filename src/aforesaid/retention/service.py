"""What an owner decides about what is kept: how long, in which form, and that it goes. A part of the manager.

Retention, archives, erasure, export and redaction as calls of `ConversationManager`, which is made of this
and of all that says and reads. Below: lifetimes, archives, erasure, moving. Above: the manager.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Erasing
from aforesaid.contracts.listing import every_record
from aforesaid.dialects import references_in
from aforesaid.dialects.blanks import MARK, TAG, blanked
from aforesaid.errors import (
    ConversationNotFound,
    DocumentConflict,
    InvalidInput,
    InvalidSetting,
    MessageNotFound,
    StoreError,
    shown,
)
from aforesaid.intake.images import Pictures
from aforesaid.intake.messages import Intake
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.model.conversations import Changes, Conversation, check_span
from aforesaid.model.ids import parse_uuid
from aforesaid.model.lifetimes import (
    DOCUMENT_KEY,
    DOCUMENT_KIND,
    Applied,
    Lifetime,
    RetentionRules,
    decode_rules,
    encode_rules,
    lifetime_of,
    spoken_span,
)
from aforesaid.model.messages import Message
from aforesaid.notes.records import KnownNotes, forget_said_in, purge_notes
from aforesaid.stores.owner_scope import OwnerScope
from aforesaid.telemetry import describe, events

if TYPE_CHECKING:
    from aforesaid.retention.receipts import Receipt
    from aforesaid.search.searcher import Searcher
    from aforesaid.transfer.archives import Archive, OwnerArchives
    from aforesaid.transfer.folders import Manifest

log = logging.getLogger("aforesaid.keeping")

PAGE = 100
AT_MOST = 10_000
"""Conversations that one look at what expires shows."""


class Expiring(Struct, frozen=True, kw_only=True):
    """A conversation that a purge will remove, and why; without what was said in it."""

    conversation_id: str
    expires_at: datetime
    last_activity: datetime
    messages: int
    why: str


class Keeping:
    """The part of a manager that decides what is kept."""

    store: ConversationStore
    intake: Intake
    pictures: Pictures
    scope: OwnerScope
    searcher: "Searcher"
    known_notes: KnownNotes
    unstored: UnstoredTurns
    _ttl: Lifetime

    @property
    def owner(self) -> str:
        """Whose handle this is."""
        return self.scope.owner

    # Retention

    async def purge_expired(self) -> int:
        """Remove this owner's expired conversations, and notes; returns how many conversations."""
        whole = await self.store.authoritative()
        purged = await whole.purge_expired()
        await purge_notes(whole)
        await self.pictures.purge(whole)
        events.conversations_expired(purged)
        return purged

    async def retention(self) -> RetentionRules:
        """This owner's own rules of how long conversations are kept."""
        return (await self._rules())[0]

    async def set_retention(self, rules: RetentionRules, *, inherit: Collection[str] = ()) -> int:
        """Set the rules and apply them; returns how many conversations got another lifetime.

        Rules for single conversations stay, unless these rules name them, or `inherit` does: such a
        conversation follows the general rules again. A lifetime that changes counts from now.
        """
        if not isinstance(rules, RetentionRules):
            raise InvalidInput(f"rules must be RetentionRules; got {shown(rules)}", field="rules")
        if isinstance(inherit, str) or not isinstance(inherit, Collection):
            raise InvalidInput(f"inherit must be a list of ids; got {shown(inherit)}", field="inherit")
        inheriting = {parse_uuid(one, field="inherit") for one in inherit}
        await self._change_rules(
            lambda known: replace(
                rules, conversations={**known.without(inheriting).conversations, **rules.conversations}
            )
        )
        return await self.apply_retention()

    async def apply_retention(self) -> int:
        """Give every conversation the lifetime that the rules say; returns how many had another."""
        records = await self._every_record()
        rules = await self.retention()
        changed = 0
        for record in records:
            changed += await self._apply(record, rules) is not record
        return changed

    async def lifetime(self, conversation_id: str) -> Applied:
        """Which lifetime the rules give a conversation, and why. Raises `ConversationNotFound`."""
        record = await self.store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return self._lifetime(record, await self.retention())

    async def expiring(self, within: timedelta = timedelta(0), *, limit: int = AT_MOST) -> list[Expiring]:
        """What a purge would remove now, or will after some time, and why: a dry run."""
        if within:
            check_span(within, field="within")
        by = self.store.now() + within
        whole = await self.store.authoritative()
        rules = await self.retention()
        return [self._expiring(record, rules) for record in await whole.expired(by=by, limit=limit)]

    def _expiring(self, record: Conversation, rules: RetentionRules) -> Expiring:
        assert record.expires_at is not None
        applied = self._lifetime(record, rules)
        why = applied.why if applied.ttl == record.ttl else f"{_spoken(record.ttl)}, as it was stored"
        return Expiring(
            conversation_id=record.id,
            expires_at=record.expires_at,
            last_activity=record.last_activity,
            messages=record.message_count,
            why=why,
        )

    def _lifetime(self, record: Conversation, rules: RetentionRules) -> Applied:
        return lifetime_of(record, rules, given=self.scope.rules, default=self._ttl)

    async def _rules(self) -> tuple[RetentionRules, int]:
        document = await self.store.get_document(DOCUMENT_KIND, DOCUMENT_KEY)
        return (RetentionRules(), 0) if document is None else (decode_rules(document.data), document.version)

    async def _change_rules(self, change: Any) -> None:
        """Change the rules; somebody else's change in between is not lost."""
        while True:
            known, version = await self._rules()
            gone = [one for one in known.conversations if await self.store.get(one) is None]
            rules = change(known.without(gone))
            if rules == known:
                return
            try:
                await self.store.put_document(
                    DOCUMENT_KIND, DOCUMENT_KEY, encode_rules(rules), expected_version=version
                )
            except DocumentConflict:
                continue
            return

    async def _ruled(self, record: Conversation) -> Conversation:
        """A new conversation by the owner's rules. A store that fails over them must not keep anybody from
        speaking: the conversation then has the lifetime that it was made with."""
        try:
            return await self._apply(record, await self.retention())
        except StoreError as error:
            log.warning(
                "conversation %s does not follow the retention rules yet: %s", record.id, describe(error)
            )
            return record

    async def _apply(self, record: Conversation, rules: RetentionRules) -> Conversation:
        """The record with the lifetime that the rules give it."""
        ttl = self._lifetime(record, rules).ttl
        if ttl == record.ttl:
            return record
        try:
            return await self.store.update(record.id, Changes(ttl=ttl))
        except ConversationNotFound:  # it went meanwhile
            return record

    async def _with_lifetime(self, conversation_id: str, changes: dict[str, Any]) -> dict[str, Any]:
        """The changes, with the lifetime that follows from them: a tag or a channel may have a rule."""
        if "ttl" in changes or not {"tags", "channel"} & changes.keys():
            return changes
        rules = await self.retention()
        if not rules and not self.scope.rules:
            return changes
        record = await self.store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        labels = {name: changes[name] for name in ("tags", "channel") if name in changes}
        ttl = self._lifetime(replace(record, **labels), rules).ttl
        return changes if ttl == record.ttl else {**changes, "ttl": ttl}

    async def _remember_lifetime(self, conversation_id: str, ttl: Lifetime) -> None:
        """A lifetime that was set for one conversation goes before every other rule from then on."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        await self._change_rules(lambda known: known.for_conversation(conversation_id, ttl))

    async def _every_record(self) -> list[Conversation]:
        return [record async for record in every_record(self.store)]

    # Archives

    async def archive(self, conversation_id: str) -> "Archive":
        """Move a conversation into an archive file. Done twice, it is done once."""
        from aforesaid.transfer.archives import archive

        archives = self._archives()
        await self.unstored.flush(self.owner, conversation_id)
        moved = await archive(self.store, archives, conversation_id, blobs=self.scope.blobs)
        events.conversation_ended(conversation_id, "archived")
        return moved

    async def restore(self, conversation_id: str) -> Conversation:
        """Move a conversation back out of its archive, as it was. Raises `ArchiveNotFound`."""
        from aforesaid.transfer.archives import restore

        archives = self._archives()
        back = await restore(self.store, archives, conversation_id, blobs=self.scope.blobs)
        events.conversation_changed("conversation_restored", "a conversation was restored", back.id)
        return back

    async def archives(self) -> list["Archive"]:
        """What is archived, the most recently active first: nothing of what was said."""
        return await self._archives().list()

    async def _forget_copy(self, conversation_id: str) -> None:
        """Nothing that a conversation said before is left in an archive beside it."""
        if self.scope.archives is not None:
            from aforesaid.transfer.archives import forget_copy

            await forget_copy(self.store, self.scope.archives, conversation_id)

    def _archives(self) -> "OwnerArchives":
        if self.scope.archives is None:
            raise InvalidSetting(
                "archives need a place: aforesaid.open(archives='some/folder')", field="archives"
            )
        return self.scope.archives

    # Erasure and export

    async def erase(self, conversation_id: str | None = None) -> "Receipt":
        """Erase a conversation, or without one everything that this owner has, from everywhere, for good.

        Rows, index, vectors, summaries, notes, cached copies, pictures, spools and archives go, and leave
        the store's files; with a conversation, the notes that were made from it. An erasure that is cut
        short goes on when the store is opened again.
        """
        from aforesaid.retention.erasure import erase

        receipt = await erase(self.scope, conversation_id)
        if conversation_id is not None:
            await self._change_rules(lambda known: known.without([parse_uuid(conversation_id, field="id")]))
        events.erased(receipt.erased.get("conversations", 0), conversation_id)
        return receipt

    async def export(self, folder: str | Path) -> "Manifest":
        """Write everything that is held about this owner into a new folder: for people and for programs."""
        from aforesaid.transfer.folders import export_owner

        await self.unstored.flush(self.owner)
        return await export_owner(self.scope, Path(folder))

    async def import_(self, folder: str | Path) -> "Manifest":
        """Bring what such a folder holds into the store, as this owner's."""
        from aforesaid.transfer.folders import import_owner

        return await import_owner(self.scope, Path(folder))

    # Redaction

    async def redact(
        self, conversation_id: str, message_id: str, *, mark: str = MARK, scrub: bool = False
    ) -> Message:
        """Take the words out of a message; a mark stays in its place, and what ties it to tool calls.

        Id, time and place stay; what is derived from the conversation is forgotten, and so are notes that
        were made from this message. With `scrub` the
        words leave the store's files at once also where that costs a rewrite of tables or files.
        """
        entry = await self.store.entry(conversation_id, message_id)
        if entry is None:
            raise MessageNotFound(parse_uuid(conversation_id, field="conversation_id"), message_id)
        if entry.unreadable is None:
            blank = blanked(entry.message, mark=mark)
        else:
            blank = Message(role="system", content=mark, message_id=message_id, tags=(TAG,))
        (counted,) = await self.intake.counted([blank])
        replaced = await self.store.replace(conversation_id, counted)
        await self.searcher.resources.forgets(self.owner, replaced.conversation_id)
        self.searcher.noted(replaced.conversation_id)
        await self._forget_pictures(replaced.conversation_id, references_in(entry.message))
        await self._forget_copy(replaced.conversation_id)
        await forget_said_in(self.store, replaced.conversation_id, message_id)
        self.known_notes.drop(self.owner)
        if scrub and isinstance(self.scope.backend, Erasing):
            await self.scope.backend.scrub(self.owner)
        return replaced.message

    async def _forget_pictures(self, conversation_id: str, digests: Iterable[str]) -> None:
        """Remove pictures that nothing in the conversation refers to any more."""
        gone = set(digests)
        if self.scope.blobs is None or not gone:
            return
        whole = await self.store.authoritative()
        offset = 0
        while gone and (entries := await whole.page(conversation_id, limit=PAGE, offset=offset)):
            gone -= {digest for entry in entries for digest in references_in(entry.message)}
            offset += len(entries)
        for digest in gone:
            await self.scope.blobs.remove(conversation_id, digest)


def _spoken(ttl: Lifetime) -> str:
    return "keep" if ttl is None else spoken_span(ttl)
