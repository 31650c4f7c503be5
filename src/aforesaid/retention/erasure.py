"""Erasure: remove an owner's data, or one conversation, from everywhere, and return a receipt.

The journal (`JOURNAL`) durably records an erasure before it begins, without content. `resume` continues an
erasure that was interrupted by a crash or a store failure; opening a memory and every sweep call it. Each
step is idempotent. A removal that the journal records as done is not repeated, because data imported or
restored since looks as old.

The journal also contains how much of each kind existed and, after each step, how much was removed, so that
the receipt of a resumed erasure is complete. Every erasure has an entry of its own: of two concurrent
erasures of one owner, neither removes the entry that the other one needs to be resumed.

    noted      the journal contains the intent
    held       copies outside the store are removed: spools before the store, or they would restore the data
    removed    the store's rows and the data derived from them
    blobs      images
    held again caches are emptied after the store, or they would be filled again
    unnamed    the owner's name is removed from the journal, so that the next step removes it from the files
    scrubbed   deleted data is removed from the store's files
    done       the intent is removed from the journal
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.analytics.collection import forget
from aforesaid.contracts import (
    JOURNAL,
    Backend,
    ConversationStore,
    Document,
    Entry,
    Scrubbable,
    Tally,
    audit_action,
    capability,
)
from aforesaid.contracts.listing import all_documents, all_records
from aforesaid.dialects import references_in
from aforesaid.errors import AforesaidError, DocumentConflict, StoreDamaged, StoreUnavailable
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.ids import new_id, parse_uuid
from aforesaid.model.webhooks import WEBHOOK_OWNERS, WEBHOOKS
from aforesaid.notes.records import notes_from, remove_notes_from
from aforesaid.retention.receipts import Receipt, counts_of, larger_counts, with_digest
from aforesaid.stores.blobs import BlobStore, owner_key
from aforesaid.telemetry import describe
from aforesaid.transfer.owner_scope import OwnerScope

log = logging.getLogger("aforesaid.erasure")

KIND = "erasures"
PAGE = 100
# Steps that are not repeated once they are done.
_ONCE = ("removed", "blobs")
# Steps that remain after the owner's name was removed from the journal.
_WITHOUT_NAME = ("scrubbed", "done")
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
# Empties every field of a record that may contain personal data.
_BLANK = Changes(client_id=None, client_name=None, subject=None, assigned_to=None, tags=(), notes=None)

OnStep = Callable[[str], None]
"""Called with the name of every completed step."""


class Intent(Struct, frozen=True, kw_only=True):
    """An erasure in progress, as the journal stores it."""

    id: str = ""
    """Unique for each erasure. Empty in entries of versions in which concurrent erasures shared one entry."""
    owner: str | None
    """The owner's name; None once only scrubbing is left. The name leaves the journal before that, because a
    row deleted afterwards would stay in a server's files with the name.
    """
    digest: str = ""
    """The SHA-256 of the name, as in the receipt, once the name is removed."""
    conversation_id: str | None
    started_at: datetime
    found: dict[str, int] = {}
    """How much of each kind existed at the start."""
    erased: dict[str, int] = {}
    """How much was removed since."""
    left: dict[str, int] = {}
    """How much of it stays: data that cannot be decrypted, and the keys of newer data."""
    done: tuple[str, ...] = ()
    """The completed steps."""

    @property
    def owner_digest(self) -> str:
        return self.digest if self.owner is None else owner_key(self.owner)

    @property
    def key(self) -> str:
        scope = f"{self.owner_digest}/{self.conversation_id or 'everything'}"
        return f"{scope}/{self.id}" if self.id else scope

    def without_name(self) -> "Intent":
        return replace(self, owner=None, digest=self.owner_digest)


async def erase(
    scope: OwnerScope, conversation_id: str | None = None, *, on_step: OnStep | None = None
) -> Receipt:
    """Erase one conversation, or everything that the owner has. Missing data is not an error.

    Raise `StoreUnavailable` and change nothing while the store lacks acknowledged turns. Once the journal
    contains the intent, the erasure has begun: a later error says so, and the next sweep continues.
    """
    if conversation_id is not None:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
    whole = await scope.authoritative()
    found = await _inventory(whole, conversation_id)
    intent = Intent(
        id=new_id(),
        owner=whole.owner,
        conversation_id=conversation_id,
        started_at=whole.store.now(),
        found=found,
    )
    with _running_here(intent):
        await _write_intent(whole, intent)
        return await _Erasure(whole, intent, on_step=on_step).run()


# The ids of the erasures that run in this process.
_running: set[str] = set()


@contextmanager
def _running_here(intent: Intent) -> Iterator[None]:
    _running.add(intent.id)
    try:
        yield
    finally:
        _running.discard(intent.id)


async def resume(
    backend: Backend,
    scope_of: Callable[[str], OwnerScope],
    *,
    name_of: Callable[[str], str | None] = lambda digest: None,
) -> list[Receipt]:
    """Continue every interrupted erasure. One that fails again is logged and stays in the journal.

    Data created after the start of an erasure is not part of it. `name_of` returns the name of an owner with
    this digest whose data this process has copies of.
    """
    receipts: list[Receipt] = []
    journal = await backend.of(JOURNAL).authoritative()
    async for document in all_documents(journal, KIND):
        receipt = await _resume_one(document, backend, scope_of, name_of)
        receipts += [] if receipt is None else [receipt]
    return receipts


async def _resume_one(
    document: Document,
    backend: Backend,
    scope_of: Callable[[str], OwnerScope],
    name_of: Callable[[str], str | None],
) -> Receipt | None:
    try:
        intent = _intent(document)
        if intent.id and intent.id in _running:
            return None  # it is not interrupted
        name = name_of(intent.digest) if intent.owner is None else intent.owner
        if name is None:
            scope = OwnerScope(owner=JOURNAL, store=backend.of(JOURNAL), backend=backend)
        else:
            scope = scope_of(name)
        whole = await scope.authoritative()
        receipt = await _Erasure(whole, intent, again=True).run()
    except AforesaidError as error:
        log.warning("an interrupted erasure failed again and will be retried: %s", describe(error))
        return None
    log.info("an interrupted erasure is complete: %s", receipt.digest)
    return receipt


async def _write_intent(scope: OwnerScope, intent: Intent) -> None:
    if scope.journal is not None:
        journal = await scope.journal.authoritative()
        await journal.put_document(KIND, intent.key, msgspec.json.encode(intent))


def _intent(document: Document) -> Intent:
    try:
        return msgspec.json.decode(document.data, type=Intent)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the journal entry of an erasure cannot be read: {error}") from error


class _Erasure:
    """One erasure in progress."""

    def __init__(
        self, scope: OwnerScope, intent: Intent, *, on_step: OnStep | None = None, again: bool = False
    ) -> None:
        self._scope = scope
        self._owner = intent.owner
        self._intent = intent
        self._on_step = on_step or (lambda step: None)
        self._again = again
        self._erased = Counter(intent.erased)
        self._remains: tuple[str, ...] = ()

    async def run(self) -> Receipt:
        try:
            return await self._run()
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"the erasure has begun and is not complete; the next sweep continues it: {error}"
            ) from error

    async def _run(self) -> Receipt:
        self._on_step("noted")
        for name, step in (
            ("held", self._remove_copies),
            ("removed", self._remove),
            ("blobs", self._remove_blobs),
            ("held again", self._remove_copies),
            ("unnamed", self._drop_name),
            ("scrubbed", self._scrub),
            ("done", self._forget_intent),
        ):
            if not self._is_done(name):
                await step()
                await self._record_progress(name)
                self._on_step(name)
        return self._receipt()

    def _is_done(self, step: str) -> bool:
        if self._owner is None:
            # The scope has a name if this process has copies of the owner's data in memory: they go too.
            has_copies = self._scope.owner != JOURNAL
            return step not in _WITHOUT_NAME and not (step == "held again" and has_copies)
        return step in _ONCE and step in self._intent.done

    async def _remove_copies(self) -> None:
        owner, intent, until = self._scope.owner, self._intent, self._until()
        for holder in self._scope.holders:
            self._erased.update(await holder.remove_copies(owner, intent.conversation_id, until=until))

    def _until(self) -> datetime:
        """Return the time before which copies are removed; copies of newer data that exist nowhere
        else stay.
        """
        if self._again and "held again" in self._intent.done:
            return _BEFORE_ALL  # the holders are done, only copies of this process are left
        return self._intent.started_at

    async def _remove(self) -> None:
        store, intent = self._scope.store, self._intent
        if intent.conversation_id is not None:
            await forget(store, intent.conversation_id)
            # A resumed erasure may run much later: data stored since its start is not part of it.
            if self._again:
                gone = await _delete_older(store, intent.conversation_id, intent.started_at)
            else:
                gone = await store.delete(intent.conversation_id)
            self._erased.update(notes=await remove_notes_from(store, intent.conversation_id))
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
            stored = await blobs.list(conversation_id)
            if self._again and await self._scope.store.get(conversation_id) is not None:
                # Turns stored since the erasure began may refer to the same images.
                used = await _pictures_in(self._scope.store, conversation_id)
                gone = [digest for digest in stored if digest not in used]
                for digest in gone:
                    await blobs.remove(conversation_id, digest)
                self._erased.update(blobs=len(gone))
            else:
                self._erased.update(blobs=len(stored))
                await blobs.delete(conversation_id)

    async def _drop_name(self) -> None:
        """Remove the owner's name from the journal, after recording the erasure in the audit trail."""
        erased = sum(self._receipt().erased.values())
        await audit_action(self._scope.store, "erase", self._intent.conversation_id or "", count=erased)
        if self._intent.conversation_id is None:
            await self._unlist_webhooks()
        self._intent = self._intent.without_name()

    async def _unlist_webhooks(self) -> None:
        """Remove the owner from the journal's list of owners with webhooks, unless there is a new one."""
        if self._scope.journal is None:
            return
        journal = await self._scope.journal.authoritative()
        # The version first: a webhook that is set meanwhile lists its owner again, and the entry stays.
        listed = await journal.get_document(WEBHOOK_OWNERS, owner_key(self._scope.owner))
        if listed is None or await self._scope.store.documents(WEBHOOKS, limit=1):
            return
        with suppress(DocumentConflict):
            await journal.delete_document(WEBHOOK_OWNERS, listed.key, expected_version=listed.version)

    async def _scrub(self) -> None:
        scrubbable = capability(self._scope.backend, Scrubbable)
        if scrubbable is not None:
            self._remains = await scrubbable.scrub(self._owner)
        self._remains += _unopened(self._intent.left)
        for remains in self._remains:
            log.warning("an erasure is incomplete: %s", remains)

    async def _forget_intent(self) -> None:
        if self._scope.journal is not None:
            journal = await self._scope.journal.authoritative()
            await journal.delete_document(KIND, self._intent.key)

    async def _record_progress(self, step: str) -> None:
        """Write the completed step to the journal, except for the last one."""
        if step != "done":
            done = tuple(dict.fromkeys((*self._intent.done, step)))
            self._intent = replace(self._intent, erased=dict(+self._erased), done=done)
            await _write_intent(self._scope, self._intent)

    def _receipt(self) -> Receipt:
        receipt = Receipt(
            owner=self._intent.owner_digest,
            conversation_id=self._intent.conversation_id,
            # A step interrupted before it was recorded counts with what the inventory found.
            erased=larger_counts(self._erased, Counter(self._intent.found) - Counter(self._intent.left)),
            started_at=self._intent.started_at,
            finished_at=self._scope.store.now(),
            remains=self._remains,
        )
        return with_digest(receipt)


async def _clear_older(store: ConversationStore, moment: datetime) -> tuple[Tally, Counter[str]]:
    """Remove what the owner had at that moment; return what was removed and what could not be read."""
    gone = Tally()
    while expired := await store.expired(by=store.now(), limit=PAGE):
        gone += await _deleted(store, expired)
    gone += Tally(conversations=await store.purge_expired())  # those with unreadable records
    # Lists before deletions: removing rows while paging would skip others.
    for record in [record async for record in all_records(store) if record.created_at <= moment]:
        gone += await _delete_older(store, record.id, moment)
    for kind in await store.document_kinds():
        for document in [document async for document in all_documents(store, kind)]:
            if document.updated_at <= moment and await store.delete_document(kind, document.key):
                gone += Tally(documents={kind: 1})
    left = await store.tally()
    since = await _readable(store)
    if left != Tally() and since == Tally():
        gone += await store.clear()  # unreadable data, and keys that no readable data needs
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
    """Count what can be read. Data that cannot be decrypted is in a tally but not in a listing."""
    found = sum([await store.tally(record.id) async for record in all_records(store)], Tally())
    for kind in await store.document_kinds():
        if count := len([document async for document in all_documents(store, kind)]):
            found += Tally(documents={kind: count})
    return found


def _unopened(left: Mapping[str, int]) -> tuple[str, ...]:
    counts = ", ".join(f"{kind}: {count}" for kind, count in left.items() if kind != "keys")
    return (f"data that cannot be decrypted remains, next to newer data ({counts})",) if counts else ()


async def _deleted(store: ConversationStore, records: Iterable[Conversation]) -> Tally:
    return sum([await store.delete(record.id) for record in records], Tally())


async def _inventory(scope: OwnerScope, conversation_id: str | None) -> dict[str, int]:
    """Count the data in store, blobs and archives, for an erasure that is resumed after a crash."""
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
        counts.update(notes=len(await notes_from(store, conversation_id)))
    return dict(counts)


async def _with_blobs(blobs: BlobStore, conversation_id: str | None) -> list[str]:
    return await blobs.conversations() if conversation_id is None else [conversation_id]
