"""Erasure: what an owner has, or one conversation, goes from everywhere, and a receipt says so.

It is noted before it begins, durably and without content, under an owner of its own (`JOURNAL`). So an
erasure that was cut short, by a crash or a store that failed, is known, and `resume` goes on with it:
when a memory is opened, and at every sweep. Each step may be done twice.

    noted      the journal says what shall go
    held       copies outside the store: spools before the store, or they would bring it back
    removed    the store's own rows, and with them what is derived from them
    blobs      pictures
    held again caches after the store, or they would be filled again
    scrubbed   what was deleted leaves the store's files
    done       the journal forgets it

Below: contracts, blobs. Above: the manager and the memory.
"""

import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from recollect.blobs import owner_key
from recollect.contracts import JOURNAL, Backend, ConversationStore, Document, Erasing, note
from recollect.conversations import Conversation, Query
from recollect.errors import ConversationNotFound, RecollectError, StoreDamaged
from recollect.ids import parse_uuid
from recollect.notes import forget_said_in
from recollect.premises import Premises
from recollect.telemetry import told

log = logging.getLogger("recollect.erasure")

KIND = "erasures"
PAGE = 100

Told = Callable[[str], None]
"""Hears of every step that is done."""


class Receipt(Struct, frozen=True, kw_only=True):
    """What was erased: how much of each kind, when, and nothing of what it said."""

    owner: str
    """The SHA-256 of the owner's name."""
    conversation_id: str | None
    """None: everything that the owner had."""
    erased: dict[str, int]
    """How much of each kind."""
    started_at: datetime
    finished_at: datetime
    remains: tuple[str, ...] = ()
    """What could not be done, in words; empty when nothing is left."""
    digest: str = ""
    """The SHA-256 of all the rest of the receipt."""


class Intent(Struct, frozen=True, kw_only=True):
    """An erasure that has begun, as the journal keeps it."""

    owner: str
    conversation_id: str | None
    started_at: datetime
    counted: dict[str, int] = {}
    """What there was when it began, for the receipt of whoever finishes it."""

    @property
    def key(self) -> str:
        return f"{owner_key(self.owner)}/{self.conversation_id or 'everything'}"


async def erase(
    premises: Premises, conversation_id: str | None = None, *, told: Told | None = None
) -> Receipt:
    """Erase one conversation, or everything that the owner has. What is not there is no error."""
    if conversation_id is not None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
    intent = Intent(
        owner=premises.owner,
        conversation_id=conversation_id,
        started_at=premises.store.now(),
        counted=await _inventory(premises, conversation_id),
    )
    if premises.journal is not None:
        await premises.journal.put_document(KIND, intent.key, msgspec.json.encode(intent))
    return await _Erasing(premises, intent, told=told).run()


async def resume(backend: Backend, premises_of: Callable[[str], Premises]) -> list[Receipt]:
    """Go on with every erasure that was cut short. One that fails again stays noted, and is logged.

    What was made since an erasure began is not part of it.
    """
    receipts: list[Receipt] = []
    after: str | None = None
    while noted := await backend.of(JOURNAL).documents(KIND, after=after, limit=PAGE):
        for document in noted:
            receipt = await _resumed(document, premises_of)
            receipts += [] if receipt is None else [receipt]
        after = noted[-1].key
    return receipts


async def _resumed(document: Document, premises_of: Callable[[str], Premises]) -> Receipt | None:
    try:
        intent = _intent(document)
        receipt = await _Erasing(premises_of(intent.owner), intent, again=True).run()
    except RecollectError as error:
        log.warning(
            "an erasure that was cut short did not come to its end, and is tried again: %s", told(error)
        )
        return None
    log.info("an erasure that was cut short came to its end: %s", receipt.digest)
    return receipt


def _intent(document: Document) -> Intent:
    try:
        return msgspec.json.decode(document.data, type=Intent)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the note of an erasure cannot be read: {error}") from error


class _Erasing:
    """One erasure under way."""

    def __init__(
        self, premises: Premises, intent: Intent, *, told: Told | None = None, again: bool = False
    ) -> None:
        self._premises = premises
        self._intent = intent
        self._told = told or (lambda step: None)
        self._again = again
        self._erased: dict[str, int] = {}
        self._remains: tuple[str, ...] = ()

    async def run(self) -> Receipt:
        self._told("noted")
        for name, step in (
            ("held", self._forget_held),
            ("removed", self._remove),
            ("blobs", self._remove_blobs),
            ("held again", self._forget_held),
            ("scrubbed", self._scrub),
            ("done", self._forget_intent),
        ):
            await step()
            self._told(name)
        receipt = self._receipt()
        erased = sum(receipt.erased.values())
        await note(self._premises.store, "erase", self._intent.conversation_id or "", count=erased)
        return receipt

    async def _forget_held(self) -> None:
        intent = self._intent
        # What a resumed erasure finds of the whole owner may have been made since it began.
        until = intent.started_at if self._again and intent.conversation_id is None else None
        for holder in self._premises.holders:
            self._count(await holder.forgets(intent.owner, intent.conversation_id, until=until))

    async def _remove(self) -> None:
        store, intent = self._premises.store, self._intent
        if intent.conversation_id is not None:
            self._count(await _counts_of(store, intent.conversation_id))
            await store.delete(intent.conversation_id)
            self._count({"notes": await forget_said_in(store, intent.conversation_id)})
        elif self._again:
            self._count(await _clear_older(store, intent.started_at))
        else:
            cleared = await store.clear()
            self._count(msgspec.structs.asdict(cleared))

    async def _remove_blobs(self) -> None:
        blobs, one = self._premises.blobs, self._intent.conversation_id
        if blobs is None:
            return
        for conversation_id in await blobs.conversations() if one is None else [one]:
            if self._again and await self._premises.store.get(conversation_id) is not None:
                continue  # made since
            self._count({"blobs": len(await blobs.list(conversation_id))})
            await blobs.delete(conversation_id)

    async def _scrub(self) -> None:
        if isinstance(self._premises.backend, Erasing):
            self._remains = await self._premises.backend.scrub(self._intent.owner)
        for remains in self._remains:
            log.warning("an erasure leaves something behind: %s", remains)

    async def _forget_intent(self) -> None:
        if self._premises.journal is not None:
            await self._premises.journal.delete_document(KIND, self._intent.key)

    def _count(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            self._erased[kind] = self._erased.get(kind, 0) + count

    def _receipt(self) -> Receipt:
        # What went before a crash was counted when the erasure began.
        kinds = {*self._erased, *self._intent.counted}
        erased = {
            kind: max(self._erased.get(kind, 0), self._intent.counted.get(kind, 0)) for kind in sorted(kinds)
        }
        receipt = Receipt(
            owner=owner_key(self._intent.owner),
            conversation_id=self._intent.conversation_id,
            erased={kind: count for kind, count in erased.items() if count},
            started_at=self._intent.started_at,
            finished_at=self._premises.store.now(),
            remains=self._remains,
        )
        return replace(receipt, digest=digest_of(receipt))


def digest_of(receipt: Receipt) -> str:
    """What a receipt's digest must be, if nobody changed it."""
    bare = replace(receipt, digest="")
    return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()


async def _clear_older(store: ConversationStore, moment: datetime) -> dict[str, int]:
    """Remove what the owner had at that moment."""
    counts = {"conversations": await store.purge_expired(), "messages": 0, "documents": 0}
    for record in [record async for record in _records(store) if record.created_at <= moment]:
        await store.delete(record.id)
        counts["conversations"] += 1
        counts["messages"] += record.message_count
    for kind in await store.document_kinds():
        for document in await _all_documents(store, kind):
            if document.updated_at <= moment:
                counts["documents"] += await store.delete_document(kind, document.key)
    return counts


async def _records(store: ConversationStore) -> AsyncIterator[Conversation]:
    after: str | None = None
    while True:
        page = await store.find(Query(limit=PAGE, after=after))
        for record in page.conversations:
            yield record
        after = page.next
        if after is None:
            return


async def _inventory(premises: Premises, conversation_id: str | None) -> dict[str, int]:
    """What there is, for a receipt that is written after a crash."""
    store = premises.store
    if conversation_id is not None:
        return await _counts_of(store, conversation_id)
    records: Sequence[Conversation] = [record async for record in _records(store)]
    return {
        "conversations": len(records),
        "messages": sum(record.message_count for record in records),
    }


async def _counts_of(store: ConversationStore, conversation_id: str) -> dict[str, int]:
    record = await store.get(conversation_id)
    if record is None:
        return {}
    try:
        kinds = await store.document_kinds(conversation_id=conversation_id)
        documents = [
            len(await _all_documents(store, kind, conversation_id=conversation_id)) for kind in kinds
        ]
    except ConversationNotFound:  # it went this moment
        documents = []
    return {"conversations": 1, "messages": record.message_count, "documents": sum(documents)}


async def _all_documents(
    store: ConversationStore, kind: str, *, conversation_id: str | None = None
) -> list[Document]:
    found: list[Document] = []
    after: str | None = None
    while page := await store.documents(kind, conversation_id=conversation_id, after=after, limit=PAGE):
        found += page
        after = page[-1].key
    return found
