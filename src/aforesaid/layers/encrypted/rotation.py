"""Rotate keys while the store is in use; verify and repair encrypted logs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Document, Entry, Sealable
from aforesaid.contracts.listing import all_records, document_pages, every_record
from aforesaid.encryption import KEYS_KIND
from aforesaid.errors import Conflict, ConversationNotFound, StoreDamaged
from aforesaid.layers.branched import settle
from aforesaid.layers.encrypted import EncryptedBackend, EncryptedStore, records, resealed, seals
from aforesaid.layers.encrypted.heads import key_id_of_head, open_head, seal_head
from aforesaid.layers.encrypted.seals import DataKeys, InvalidSeal, LogId
from aforesaid.model.conversations import Changes, Conversation, Query

# Rotate keys while the store is in use.
#
# A new master key only re-wraps the data keys; no message changes. A new data key (`deep`) seals new
# writes, and older data are resealed in bounded steps; until then the old key opens them. An interrupted
# rotation continues where it stopped. The old key is removed when no data need it and every process has had
# time to load the new one.


# Messages or documents that are resealed in one step.
CHUNK = 200
# How long an old key is kept at least. Every process reads the keys again each minute.
GRACE = timedelta(minutes=5)


class Rotation(Struct, frozen=True, kw_only=True):
    """The result of a rotation."""

    owners: int = 0
    rewrapped: int = 0
    """Owners whose data keys were wrapped with the new master key."""
    messages: int = 0
    documents: int = 0
    records: int = 0
    """Resealed messages, documents and records."""
    unreadable: int = 0
    """Messages and documents that could not be decrypted, and were left unchanged."""
    retired: int = 0
    """Owners whose old data key was deleted."""
    waiting: int = 0
    """Owners whose old data key is still needed: run the rotation again later."""
    archives: int = 0
    """Archives whose key was wrapped with the new master key; `ArchiveFolder.rewrap` does that."""
    archives_left: int = 0
    """Archives that still need another master key, or cannot be read."""


Progress = Callable[[Rotation], None]


async def rotate(
    backend: EncryptedBackend,
    *,
    owner: str | None = None,
    deep: bool = False,
    grace: timedelta = GRACE,
    progress: Progress | None = None,
) -> Rotation:
    """Wrap the data keys of one owner, or of all, with the current master key; `deep` also replaces them."""
    done = Rotation()
    async for name in _owners(backend, owner):
        whole = await backend.of(name).authoritative()
        rewrapped = await backend.keyring.rewrap(name)
        done = replace(done, owners=done.owners + 1, rewrapped=done.rewrapped + rewrapped)
        if deep:
            done = await _deep(backend, name, whole, done, grace)
        if progress is not None:
            progress(done)
    return done


async def count_owners(backend: EncryptedBackend) -> int:
    """Return the number of owners whose keys `rotate` visits."""
    return len([name async for name in _owners(backend, None)])


async def _owners(backend: EncryptedBackend, owner: str | None) -> AsyncIterator[str]:
    if owner is not None:
        yield owner
        return
    async for name in (backend.encryption.keyring or backend.inner).owners():
        yield name


async def _deep(
    backend: EncryptedBackend, owner: str, whole: EncryptedStore, done: Rotation, grace: timedelta
) -> Rotation:
    await backend.keyring.add(owner)
    open_keys = await backend.keyring.refresh(owner)
    if open_keys is None:
        return done
    if len(open_keys.keys) == 1:  # another rotation runs at the same time
        return replace(done, waiting=done.waiting + 1)
    await settle(whole)  # expired conversations are not listed, but branches may show messages of them
    work = _Resealing(whole, owner, open_keys.keys, seals_records=backend.encryption.records)
    await work.all()
    done = replace(
        done,
        messages=done.messages + work.messages,
        documents=done.documents + work.documents,
        records=done.records + work.records,
        unreadable=done.unreadable + work.unreadable,
    )
    if work.left or backend.inner.of(owner).now() - open_keys.made_at < grace:
        return replace(done, waiting=done.waiting + 1)
    # Delete only the keys that this pass began with: another rotation may have added a key since, and data
    # that it has not resealed yet need the key that was current here.
    if await backend.keyring.retire(owner, open_keys):
        return replace(done, retired=done.retired + 1)
    return replace(done, waiting=done.waiting + 1)


class _Resealing:
    """One pass over all that an owner has."""

    def __init__(self, outer: EncryptedStore, owner: str, keys: DataKeys, *, seals_records: bool) -> None:
        self._owner = owner
        self._keys = keys
        self._store = outer.inner
        self._log = outer.inner_capability(Sealable)
        self._outer = outer
        self._seals_records = seals_records
        self.messages = self.documents = self.records = self.unreadable = 0
        # What changed under our hands, and must be looked at again.
        self.left = 0

    async def all(self) -> None:
        await self._documents(None)
        async for record in all_records(self._store):
            try:
                await self._conversation(record)
            except ConversationNotFound:
                continue  # it is gone, and what was sealed of it

    async def _conversation(self, record: Conversation) -> None:
        if self._seals_records and not records.is_sealed_by(record, self._keys.current.id):
            await self._record(record)
        if not records.lineage_is_sealed_by(record, self._keys.current.id):
            await self._lineage(record.id)
        await self._documents(record.id)
        before = None
        while entries := await self._store.tail(record.id, limit=CHUNK, before=before):
            await self._entries(record.id, entries)
            before = entries[0].position
            await asyncio.sleep(0)
        await self._head(record.id)

    async def _head(self, conversation_id: str) -> None:
        """Seal the head of the log with the current key."""
        end = await self._log.log_end(conversation_id)
        if end is None or end.head is None or key_id_of_head(end.head) == self._keys.current.id:
            return
        log_id = LogId(self._owner, conversation_id)
        try:
            head = open_head(end.head, self._keys, log_id)
        except InvalidSeal:
            self.unreadable += 1
            return
        again = seal_head(head, self._keys.current, log_id)
        self.left += not await self._log.exchange_head(conversation_id, end.head, again)

    async def _entries(self, conversation_id: str, entries: Sequence[Entry]) -> None:
        current = self._keys.current.id
        old = [entry for entry in entries if seals.key_id_of(entry.message) not in (current, None)]
        if not old:
            return
        again = resealed(old, self._keys, LogId(self._owner, conversation_id))
        exchanged = await self._log.reseal(conversation_id, again)
        self.messages += exchanged
        self.unreadable += len(old) - len(again)
        self.left += len(again) - exchanged

    async def _record(self, record: Conversation) -> None:
        try:
            opened = records.open_record(record, self._keys, self._owner)
        except StoreDamaged:
            self.unreadable += 1
            return
        fields = records.SEALED_FIELDS
        changes = Changes(**{field: getattr(opened, field) for field in fields})
        try:
            await self._outer.update(record.id, changes, expected_revision=record.revision)
            self.records += 1
        except Conflict:
            self.left += 1

    async def _lineage(self, conversation_id: str) -> None:
        """Seal the lineage of a branch with the current key."""
        try:
            record = await self._outer.get(conversation_id)
        except StoreDamaged:
            self.unreadable += 1
            return
        if record is None:
            return
        try:
            await self._outer.restore(record, [], expected_revision=record.revision)
            self.records += 1
        except Conflict:
            self.left += 1

    async def _documents(self, conversation_id: str | None) -> None:
        for kind in await self._store.document_kinds(conversation_id=conversation_id):
            if kind != KEYS_KIND:
                await self._documents_of(kind, conversation_id)

    async def _documents_of(self, kind: str, conversation_id: str | None) -> None:
        pages = document_pages(self._store, kind, conversation_id=conversation_id, limit=CHUNK)
        async for page in pages:
            for document in page:
                await self._document(document)
            await asyncio.sleep(0)

    async def _document(self, document: Document) -> None:
        try:
            if seals.sealed_by(document.data) == self._keys.current.id:
                return
            data = self._outer.open_data(document, self._keys)
        except InvalidSeal:
            self.unreadable += 1
            return
        try:
            await self._outer.put_document(
                document.kind,
                document.key,
                data,
                conversation_id=document.conversation_id,
                expected_version=document.version,
            )
            self.documents += 1
        except Conflict:
            self.left += 1


# Compare encrypted logs with their heads, and repair those that were altered.


class Violated(Struct, frozen=True, kw_only=True):
    """A conversation whose log is not as it was written."""

    owner: str
    conversation_id: str
    readable: int
    violations: int
    repaired: bool = False


class Verification(Struct, frozen=True, kw_only=True):
    """What a verification found."""

    owners: int = 0
    conversations: int = 0
    violated: tuple[Violated, ...] = ()


async def verify(
    backend: EncryptedBackend, *, owner: str | None = None, repair: bool = False
) -> Verification:
    """Read every log of one owner, or of all, and compare it with its head.

    `repair` keeps the messages that are proven, in new places, and removes everything else of the log. A log
    of which nothing is proven is left as it is: a backup may have its head.
    """
    owners = conversations = 0
    violated: list[Violated] = []
    names = [owner] if owner is not None else [name async for name in backend.owners()]
    for name in names:
        owners += 1
        async for record in every_record(backend.of(name)):
            conversations += 1
            store: EncryptedStore = await backend.of(name).authoritative()
            found = await _verified(store, name, record.id, repair=repair)
            violated += [] if found is None else [found]
    return Verification(owners=owners, conversations=conversations, violated=tuple(violated))


async def verify_sample(backend: EncryptedBackend, *, owners: int, messages: int) -> Verification:
    """Compare the end of the latest conversation of some owners with its head.

    The cost is bounded: at most `owners` conversations, and of each the last `messages`. Only a log that
    fails is read completely.
    """
    sampled = conversations = 0
    violated: list[Violated] = []
    async for owner in backend.owners():
        if sampled == owners:
            break
        sampled += 1
        store = backend.of(owner)
        for record in (await store.find(Query(limit=1))).conversations:
            conversations += 1
            entries = await store.tail(record.id, limit=messages)
            readable = sum(entry.unreadable is None for entry in entries)
            if readable < len(entries):
                violated.append(
                    Violated(
                        owner=owner,
                        conversation_id=record.id,
                        readable=readable,
                        violations=len(entries) - readable,
                    )
                )
    return Verification(owners=sampled, conversations=conversations, violated=tuple(violated))


async def _verified(
    store: EncryptedStore, owner: str, conversation_id: str, *, repair: bool
) -> Violated | None:
    record = await store.get(conversation_id)
    whole = await store.whole(conversation_id)
    if record is None or not whole.violations:
        return None
    proven = [entry.message for entry in whole.entries if entry.unreadable is None]
    if repair and proven:
        await store.rewrite(conversation_id, proven, expected_revision=record.revision)
    return Violated(
        owner=owner,
        conversation_id=conversation_id,
        readable=len(proven),
        violations=whole.violations,
        repaired=repair and bool(proven),
    )
