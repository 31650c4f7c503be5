"""Erasure: what an owner has, or one conversation, goes from everywhere, and a receipt says so.

It is noted before it begins, durably and without content, under an owner of its own (`JOURNAL`). So an
erasure that was cut short, by a crash or a store that failed, is known, and `resume` goes on with it:
when a memory is opened, and at every sweep. Each step may be done twice; what the journal knows to be gone is
not removed again, for what was imported or restored since looks as old.

The journal also says how much of each kind there was, and after each step how much went, so that the
receipt of whoever finishes is about the whole of it.

    noted      the journal says what shall go
    held       copies outside the store: spools before the store, or they would bring it back
    removed    the store's own rows, and with them what is derived from them
    blobs      pictures
    held again caches after the store, or they would be filled again
    unnamed    the journal forgets the owner's name, so that the next step removes it from the files
    scrubbed   what was deleted leaves the store's files
    done       the journal forgets it

Below: contracts, receipts, blobs. Above: the manager and the memory.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import (
    JOURNAL,
    Backend,
    ConversationStore,
    Document,
    Entry,
    Scrubbable,
    Tally,
    audit_action,
)
from aforesaid.contracts.listing import all_records
from aforesaid.dialects import references_in
from aforesaid.errors import AforesaidError, StoreDamaged, StoreUnavailable
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.ids import parse_uuid
from aforesaid.notes.records import forget_said_in, said_in
from aforesaid.retention.receipts import Receipt, counts_of, more_of, signed
from aforesaid.stores.blobs import BlobStore, owner_key
from aforesaid.stores.owner_scope import OwnerScope
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.erasure")

KIND = "erasures"
PAGE = 100
_ONCE = ("removed", "blobs")
"""Steps that are not taken again once they are done."""
_WITHOUT_NAME = ("scrubbed", "done")
"""Steps that are left when the journal has forgotten the owner's name."""
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
_BLANK = Changes(client_id=None, client_name=None, subject=None, assigned_to=None, tags=(), notes=None)
"""Empties everything in a record that says something."""

Told = Callable[[str], None]
"""Hears of every step that is done."""


class Intent(Struct, frozen=True, kw_only=True):
    """An erasure that has begun, as the journal keeps it."""

    owner: str | None
    """The owner's name; None once nothing is left to do but to scrub the files. The name leaves the journal
    before that, for a row that is deleted afterwards would stay in the files of a server, name and all."""
    digest: str = ""
    """The SHA-256 of the name, as in the receipt, once the name is gone."""
    conversation_id: str | None
    started_at: datetime
    found: dict[str, int] = {}
    """How much of each kind there was when it began."""
    erased: dict[str, int] = {}
    """How much is known to have gone since."""
    left: dict[str, int] = {}
    """How much of it stays: what cannot be opened, and the keys of what came since."""
    done: tuple[str, ...] = ()
    """The steps that came to their end."""

    @property
    def owner_digest(self) -> str:
        return self.digest if self.owner is None else owner_key(self.owner)

    @property
    def key(self) -> str:
        return f"{self.owner_digest}/{self.conversation_id or 'everything'}"

    def without_name(self) -> "Intent":
        return replace(self, owner=None, digest=self.owner_digest)


async def erase(
    scope: OwnerScope, conversation_id: str | None = None, *, describe: Told | None = None
) -> Receipt:
    """Erase one conversation, or everything that the owner has. What is not there is no error.

    Raises `StoreUnavailable` and changes nothing while the store does not have every acknowledged turn. Once
    the erasure is noted it has begun: an error then says so, and the next sweep goes on with it.
    """
    if conversation_id is not None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
    whole = await scope.authoritative()
    found = await _inventory(whole, conversation_id)
    intent = Intent(
        owner=whole.owner, conversation_id=conversation_id, started_at=whole.store.now(), found=found
    )
    await _note_intent(whole, intent)
    return await _Erasing(whole, intent, describe=describe).run()


async def resume(backend: Backend, premises_of: Callable[[str], OwnerScope]) -> list[Receipt]:
    """Go on with every erasure that was cut short. One that fails again stays noted, and is logged.

    What was made since an erasure began is not part of it.
    """
    receipts: list[Receipt] = []
    after: str | None = None
    journal = await backend.of(JOURNAL).authoritative()
    while noted := await journal.documents(KIND, after=after, limit=PAGE):
        for document in noted:
            receipt = await _resumed(document, backend, premises_of)
            receipts += [] if receipt is None else [receipt]
        after = noted[-1].key
    return receipts


async def _resumed(
    document: Document, backend: Backend, premises_of: Callable[[str], OwnerScope]
) -> Receipt | None:
    try:
        intent = _intent(document)
        if intent.owner is None:
            scope = OwnerScope(owner=JOURNAL, store=backend.of(JOURNAL), backend=backend)
        else:
            scope = premises_of(intent.owner)
        whole = await scope.authoritative()
        receipt = await _Erasing(whole, intent, again=True).run()
    except AforesaidError as error:
        log.warning(
            "an erasure that was cut short did not come to its end, and is tried again: %s", describe(error)
        )
        return None
    log.info("an erasure that was cut short came to its end: %s", receipt.digest)
    return receipt


async def _note_intent(scope: OwnerScope, intent: Intent) -> None:
    if scope.journal is not None:
        journal = await scope.journal.authoritative()
        await journal.put_document(KIND, intent.key, msgspec.json.encode(intent))


def _intent(document: Document) -> Intent:
    try:
        return msgspec.json.decode(document.data, type=Intent)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the note of an erasure cannot be read: {error}") from error


class _Erasing:
    """One erasure under way."""

    def __init__(
        self, scope: OwnerScope, intent: Intent, *, describe: Told | None = None, again: bool = False
    ) -> None:
        self._scope = scope
        self._owner = intent.owner
        self._intent = intent
        self._told = describe or (lambda step: None)
        self._again = again
        self._erased = Counter(intent.erased)
        self._remains: tuple[str, ...] = ()

    async def run(self) -> Receipt:
        try:
            return await self._run()
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"the erasure has begun and is not complete; the next sweep goes on with it: {error}"
            ) from error

    async def _run(self) -> Receipt:
        self._told("noted")
        for name, step in (
            ("held", self._forget_held),
            ("removed", self._remove),
            ("blobs", self._remove_blobs),
            ("held again", self._forget_held),
            ("unnamed", self._drop_name),
            ("scrubbed", self._scrub),
            ("done", self._forget_intent),
        ):
            if not self._is_over(name):
                await step()
                await self._note_progress(name)
                self._told(name)
        return self._receipt()

    def _is_over(self, step: str) -> bool:
        if self._owner is None:
            return step not in _WITHOUT_NAME
        return step in _ONCE and step in self._intent.done

    async def _forget_held(self) -> None:
        owner, intent, until = self._scope.owner, self._intent, self._until()
        for holder in self._scope.holders:
            self._erased.update(await holder.remove_copies(owner, intent.conversation_id, until=until))

    def _until(self) -> datetime:
        """What holders have from after this moment, and nobody else has, stays."""
        if self._again and "held again" in self._intent.done:
            return _BEFORE_ALL  # they did their part: the copies of this process are left
        return self._intent.started_at

    async def _remove(self) -> None:
        store, intent = self._scope.store, self._intent
        if intent.conversation_id is not None:
            if self._again:
                gone = await _delete_older(store, intent.conversation_id, intent.started_at)
            else:
                gone = await store.delete(intent.conversation_id)
            self._erased.update(notes=await forget_said_in(store, intent.conversation_id))
        elif self._again:
            gone, left = await _clear_older(store, intent.started_at)
            self._intent = replace(intent, left=dict(left))
        else:
            gone = await store.clear()
        self._erased.update(counts_of(gone))

    async def _remove_blobs(self) -> None:
        blobs = self._scope.blobs
        if blobs is None:
            return
        for conversation_id in await _with_blobs(blobs, self._intent.conversation_id):
            held = await blobs.list(conversation_id)
            if self._again and await self._scope.store.get(conversation_id) is not None:
                used = await _pictures_in(self._scope.store, conversation_id)  # of turns that came since
                gone = [digest for digest in held if digest not in used]
                for digest in gone:
                    await blobs.remove(conversation_id, digest)
                self._erased.update(blobs=len(gone))
            else:
                self._erased.update(blobs=len(held))
                await blobs.delete(conversation_id)

    async def _drop_name(self) -> None:
        """Take the owner's name out of the journal, and before that note the erasure in the audit trail."""
        erased = sum(self._receipt().erased.values())
        await audit_action(self._scope.store, "erase", self._intent.conversation_id or "", count=erased)
        self._intent = self._intent.without_name()

    async def _scrub(self) -> None:
        if isinstance(self._scope.backend, Scrubbable):
            self._remains = await self._scope.backend.scrub(self._owner)
        self._remains += _unopened(self._intent.left)
        for remains in self._remains:
            log.warning("an erasure leaves something behind: %s", remains)

    async def _forget_intent(self) -> None:
        if self._scope.journal is not None:
            journal = await self._scope.journal.authoritative()
            await journal.delete_document(KIND, self._intent.key)

    async def _note_progress(self, step: str) -> None:
        """What is done is in the journal before the next step, unless this was the last."""
        if step != "done":
            done = tuple(dict.fromkeys((*self._intent.done, step)))
            self._intent = replace(self._intent, erased=dict(+self._erased), done=done)
            await _note_intent(self._scope, self._intent)

    def _receipt(self) -> Receipt:
        receipt = Receipt(
            owner=self._intent.owner_digest,
            conversation_id=self._intent.conversation_id,
            # What went just before a crash, or before an answer that was lost, was found when it began.
            erased=more_of(self._erased, Counter(self._intent.found) - Counter(self._intent.left)),
            started_at=self._intent.started_at,
            finished_at=self._scope.store.now(),
            remains=self._remains,
        )
        return signed(receipt)


async def _clear_older(store: ConversationStore, moment: datetime) -> tuple[Tally, Counter[str]]:
    """Remove what the owner had at that moment; returns what went, and what of it could not be found."""
    gone = Tally()
    while expired := await store.expired(by=store.now(), limit=PAGE):
        gone += await _deleted(store, expired)
    gone += Tally(conversations=await store.purge_expired())  # those whose records cannot be opened
    for record in [record async for record in all_records(store) if record.created_at <= moment]:
        gone += await _delete_older(store, record.id, moment)
    for kind in await store.document_kinds():
        for document in await _all_documents(store, kind):
            if document.updated_at <= moment and await store.delete_document(kind, document.key):
                gone += Tally(documents={kind: 1})
    left = await store.tally()
    since = await _readable(store)
    if left != Tally() and since == Tally():
        gone += await store.clear()  # what cannot be opened, and keys, which seal nothing any more
        left = since
    return gone, Counter(counts_of(left)) - Counter(counts_of(since))


async def _delete_older(store: ConversationStore, conversation_id: str, moment: datetime) -> Tally:
    """Delete a conversation; keep the turns that were stored after the erasure began."""
    record = await store.get(conversation_id)
    entries = [] if record is None else await _entries(store, conversation_id)
    newer = [entry.message for entry in entries if entry.stored_at > moment]
    if record is None or not newer:
        return await store.delete(conversation_id)
    before = await store.tally(conversation_id)
    await store.rewrite(conversation_id, newer, expected_revision=record.revision)
    await store.update(conversation_id, _BLANK)
    after = await store.tally(conversation_id)
    return Tally(
        messages=before.messages - len(newer),
        index_entries=max(0, before.index_entries - after.index_entries),
        documents=dict(Counter(before.documents) - Counter(after.documents)),
    )


async def _entries(store: ConversationStore, conversation_id: str) -> list[Entry]:
    found: list[Entry] = []
    while page := await store.page(conversation_id, limit=PAGE, offset=len(found)):
        found += page
    return found


async def _pictures_in(store: ConversationStore, conversation_id: str) -> set[str]:
    entries = await _entries(store, conversation_id)
    return {digest for entry in entries for digest in references_in(entry.message)}


async def _readable(store: ConversationStore) -> Tally:
    """All that a store tells of: what cannot be opened is not listed, and still counted in its tally."""
    found = sum([await store.tally(record.id) async for record in all_records(store)], Tally())
    for kind in await store.document_kinds():
        if documents := await _all_documents(store, kind):
            found += Tally(documents={kind: len(documents)})
    return found


def _unopened(left: Mapping[str, int]) -> tuple[str, ...]:
    counts = ", ".join(f"{kind}: {count}" for kind, count in left.items() if kind != "keys")
    return (f"what cannot be opened is there still, beside what came since ({counts})",) if counts else ()


async def _deleted(store: ConversationStore, records: Iterable[Conversation]) -> Tally:
    return sum([await store.delete(record.id) for record in records], Tally())


async def _inventory(scope: OwnerScope, conversation_id: str | None) -> dict[str, int]:
    """How much there is of what only stores, blobs and archives hold, for whoever finishes after a crash."""
    found = Counter(await _stored(scope.store, conversation_id))
    if scope.blobs is not None:
        for one in await _with_blobs(scope.blobs, conversation_id):
            found.update(blobs=len(await scope.blobs.list(one)))
    if scope.archives is not None:
        found.update(archives=await scope.archives.count(conversation_id))
    return dict(+found)


async def _stored(store: ConversationStore, conversation_id: str | None) -> dict[str, int]:
    counts = Counter(counts_of(await store.tally(conversation_id)))
    if conversation_id is not None:
        counts.update(notes=len(await said_in(store, conversation_id)))
    return dict(counts)


async def _with_blobs(blobs: BlobStore, conversation_id: str | None) -> list[str]:
    return await blobs.conversations() if conversation_id is None else [conversation_id]


async def _all_documents(store: ConversationStore, kind: str) -> list[Document]:
    found: list[Document] = []
    after: str | None = None
    while page := await store.documents(kind, after=after, limit=PAGE):
        found += page
        after = page[-1].key
    return found
