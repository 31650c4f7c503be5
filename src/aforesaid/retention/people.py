"""Erase a person: what they wrote in every conversation of an owner, and their name in the records.

Every step can be repeated, so an erasure that was interrupted continues when it is called again.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from aforesaid.contracts import (
    ConversationStore,
    Document,
    Scrubbable,
    audit_action,
    capability,
)
from aforesaid.contracts.listing import all_documents, all_records
from aforesaid.errors import ConversationNotFound, RevisionConflict
from aforesaid.model.conversations import Changes
from aforesaid.model.participants import PARTICIPANT_STATE, parse_participant_id, participant_in
from aforesaid.model.webhooks import WEBHOOKS
from aforesaid.retention.receipts import Receipt, with_digest
from aforesaid.stores.blobs import owner_key
from aforesaid.transfer.owner_scope import OwnerScope

PAGE = 200

Redact = Callable[[str, str], Awaitable[object]]
"""Removes the words of a message, and what was derived from them, by conversation and message id."""


async def erase_person(scope: OwnerScope, participant_id: str, redact: Redact) -> Receipt:
    """Remove a person's messages, name, read markers and assignments from all conversations of the owner.

    A mark without the author stays at the place of each message. Afterwards the store's files are cleaned.
    """
    parse_participant_id(participant_id)
    whole = await scope.authoritative()
    started_at = whole.store.now()
    erasure = _PersonErasure(scope.store, whole.store, participant_id, redact)
    # Listed before anything changes: a change moves a conversation to the front of the listing.
    for record in [record async for record in all_records(whole.store)]:
        await erasure.erase_from(record.id)
    if await scope.store.delete_document(WEBHOOKS, participant_id):
        erasure.erased["other_documents"] += 1
    if scope.archives is not None:
        await _erase_from_archives(scope, erasure)
    await audit_action(scope.store, "erase", count=erasure.erased["messages"])
    scrubbable = capability(scope.backend, Scrubbable)
    remains = () if scrubbable is None else await scrubbable.scrub(scope.owner)
    return with_digest(
        Receipt(
            owner=owner_key(scope.owner),
            conversation_id=None,
            erased=dict(erasure.erased),
            started_at=started_at,
            finished_at=whole.store.now(),
            remains=(*remains, *erasure.remains),
        )
    )


async def _erase_from_archives(scope: OwnerScope, erasure: "_PersonErasure") -> None:
    """Restore every archived conversation that names the person, erase, and archive it again."""
    from aforesaid.transfer.archives.files import unpack
    from aforesaid.transfer.archives.moves import archive, restore

    assert scope.archives is not None, "the caller checks"
    named = [json.dumps(erasure.participant_id, ensure_ascii=only).encode() for only in (True, False)]
    for found in await scope.archives.list():
        _, content = await scope.archives.read(found.conversation_id)
        lines, _ = await asyncio.to_thread(unpack, content)
        if any(name in lines for name in named):
            await restore(scope.store, scope.archives, found.conversation_id, blobs=scope.blobs)
            await erasure.erase_from(found.conversation_id)
            await archive(scope.store, scope.archives, found.conversation_id, blobs=scope.blobs)


class _PersonErasure:
    """One person's erasure in progress, and what it has removed."""

    def __init__(
        self, store: ConversationStore, whole: ConversationStore, participant_id: str, redact: Redact
    ) -> None:
        self._store = store
        self._whole = whole
        self._redact = redact
        self.participant_id = participant_id
        self._named = msgspec.json.encode(participant_id)
        self.erased: Counter[str] = Counter()
        self.remains: tuple[str, ...] = ()

    async def erase_from(self, conversation_id: str) -> None:
        """Erase the person from one conversation. Do nothing if they do not take part."""
        record = await self._whole.get(conversation_id)
        if record is None or participant_in(record.participants, self.participant_id) is None:
            return
        try:
            await self._redact_messages(conversation_id)
            await self._forget_state(conversation_id)
            await self._forget_participant(conversation_id)
        except ConversationNotFound:
            return  # removed meanwhile, with all of it

    async def _redact_messages(self, conversation_id: str) -> None:
        offset = 0
        while entries := await self._whole.page(conversation_id, limit=PAGE, offset=offset):
            offset += len(entries)
            for entry in entries:
                if entry.message.author != self.participant_id:
                    continue
                if entry.message.message_id is None:
                    place = f"message {entry.sequence} of conversation {conversation_id}"
                    self.remains += (f"{place} has no id and cannot be replaced",)
                    continue
                await self._redact(conversation_id, entry.message.message_id)
                self.erased["messages"] += 1

    async def _forget_state(self, conversation_id: str) -> None:
        for kind in await self._whole.document_kinds(conversation_id=conversation_id):
            if not kind.startswith(PARTICIPANT_STATE):
                continue
            found = all_documents(self._whole, kind, conversation_id=conversation_id)
            for document in [document async for document in found if self._concerns(document)]:
                await self._store.delete_document(kind, document.key, conversation_id=conversation_id)
                self.erased["other_documents"] += 1

    def _concerns(self, document: Document) -> bool:
        """Return whether the document is the participant's, or names them in its data, as presence does."""
        return document.key == self.participant_id or self._named in document.data

    async def _forget_participant(self, conversation_id: str) -> None:
        while True:
            record = await self._whole.get(conversation_id)
            if record is None or participant_in(record.participants, self.participant_id) is None:
                return
            left = tuple(one for one in record.participants if one.id != self.participant_id)
            assigned = {"assigned_to": None} if record.assigned_to == self.participant_id else {}
            changes = Changes(participants=left, **assigned)  # type: ignore[arg-type]
            try:
                await self._store.update(conversation_id, changes, expected_revision=record.revision)
            except RevisionConflict:
                continue
            self.erased["participants"] += 1
            return
