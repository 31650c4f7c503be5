"""The encrypted backend and its stores."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from aforesaid._internal.tasks import within
from aforesaid.contracts import (
    Appended,
    Backend,
    ConversationStore,
    Document,
    Entry,
    Listing,
    LogEnd,
    LogSnapshot,
    Reindexable,
    Scrubbable,
    SnapshotReader,
    Spooling,
    Tally,
    capability,
)
from aforesaid.encryption import KEYS_KIND
from aforesaid.errors import KeyUnavailable, StoreDamaged, StoreUnavailable
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.base import Encryption, SharedState
from aforesaid.layers.encrypted.documents import SealedConversations, SealedDocuments
from aforesaid.layers.encrypted.keyring import Keyring, MasterKeyCheck, check_master_key
from aforesaid.layers.encrypted.log_reads import violations_logged
from aforesaid.layers.encrypted.log_writes import SealedLogs
from aforesaid.layers.encrypted.records import (
    OpenedEntries,
    can_be_shared,
    known_entries,
    open_lineage,
    turn_of,
)
from aforesaid.layers.encrypted.seals import DataKeys, InvalidSeal, LogId, warm
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.lineages import Lineage
from aforesaid.model.messages import Message

# One owner's encrypted store, and the store that seals replayed turns.
#
# The wrapped store returns the same snapshot object until something changes. The decrypted snapshot is
# cached in it, so that a repeated window costs no more than in a plain store.


_OPENED = "opened"


class EncryptedStore(SealedLogs, SealedConversations, SealedDocuments):
    """One owner's encrypted store. The wrapped store must be `Sealable`."""

    # Retention

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        found = await self.inner.expired(by=by, limit=limit)
        sealed = self._seals_records or any(record.lineage for record in found)
        return self._readable(found, await self._keys()) if sealed else found

    async def clear(self) -> Tally:
        """Remove the owner's data and keys. Without the keys, backups of the data are unreadable."""
        self._shared.keyring.evict(self._owner)
        # Keys in the same store are cleared with the data. Keys in a separate keyring are deleted before the
        # data: a conversation that begins after the clear creates a new key, which must stay.
        dropped = False if self._keys_are_inside else await self._shared.keyring.drop(self._owner)
        gone = await self.inner.clear()
        self._shared.keyring.evict(self._owner)
        self._shared.forget_owner(self._owner)
        return _with_keys_apart(gone) + Tally(keys=dropped)

    async def tally(self, conversation_id: str | None = None) -> Tally:
        held = _with_keys_apart(await self.inner.tally(conversation_id))
        if conversation_id is not None or self._keys_are_inside:
            return held
        return held + Tally(keys=await self._shared.keyring.has(self._owner))

    # Snapshots, where the wrapped store is a `SnapshotReader`

    async def read_snapshot(
        self, conversation_id: str, *, front: int, tail: int, documents: Listing
    ) -> LogSnapshot:
        reading = self.inner_capability(SnapshotReader).read_snapshot(
            conversation_id, front=front, tail=tail, documents=documents
        )
        seen = await self._read(reading)
        mark = _OPENED, await self._keys()
        known: LogSnapshot | None = seen.cached(mark)
        if known is not None:
            return known
        log_id = self._log_id(conversation_id)
        opened = self._shared.opened(log_id)
        first, last = await self._verified_ends(log_id, seen, front, tail, opened)
        snapshot = LogSnapshot(
            message_count=seen.message_count,
            front=first,
            tail=last,
            documents=await self._snapshot_documents(seen.documents, documents),
            lineage=await self._snapshot_lineage(log_id, seen.lineage),
        )
        if can_be_shared(first, opened) and can_be_shared(last, opened):
            seen.cache(mark, snapshot)
        return snapshot

    async def _verified_ends(
        self, log_id: LogId, seen: LogSnapshot, front: int, tail: int, opened: OpenedEntries
    ) -> tuple[list[Entry], list[Entry]]:
        """Return the first and the last entries, compared with the head that was read with them."""
        head = await self._head_or_none(log_id, LogEnd(0, 1, None, seen.head))
        first, last = known_entries(seen.front, opened), known_entries(seen.tail, opened)
        if isinstance(head, InvalidSeal) or (
            head is not None
            and not (
                head.holds(last, head.tail(tail), opened) and head.holds(first, head.page(0, front), opened)
            )
        ):
            entries = (await self._whole(log_id)).entries
            return entries[:front], entries[-tail:] if tail else []
        away = head is None
        opened_last = violations_logged(log_id, await self._open_entries(log_id, last, opened, spooled=away))
        return await self._open_entries(log_id, first, opened, spooled=away), opened_last

    async def _snapshot_lineage(self, log_id: LogId, lineage: Lineage) -> Lineage:
        if not lineage:
            return ()
        at = self.now()
        record = Conversation(id=log_id.conversation_id, created_at=at, updated_at=at, lineage=lineage)
        return open_lineage(record, await self._keys(), self._owner).lineage

    async def _snapshot_documents(self, found: Sequence[Document], listing: Listing) -> list[Document]:
        if listing.kind == KEYS_KIND:
            return []
        opened = await self._open_documents(found)
        if len(opened) == len(found):
            return opened
        # Unreadable documents are left out, so read on until the page is full.
        return await self.documents(listing.kind, after=listing.after, limit=listing.limit)

    async def append_spooled(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store a turn that was sealed without a place during an outage. Return the entries as stored."""
        log_id = self._log_id(conversation_id)
        keys = await self._keys(filter(None, map(seals.key_id_of, messages)))
        if keys is None:
            keys = await self._keys_to_write(log_id)
        turn = turn_of([_opened(message, keys, log_id) for message in messages])
        # Without the lock of the conversation: a caller that holds it may wait for this replay.
        return await self._stored(log_id, turn, keys, expected_revision, afresh=False)


class ReplayStore(StoreWrapper):
    """An encrypted store for the replay of spooled turns. It returns their entries as stored, not decrypted.

    A turn that was accepted during an outage is sealed without a place, because other processes may write
    meanwhile. The resilient layer replays it through this store, which decrypts the turn and stores it like
    any other.
    """

    def __init__(self, inner: EncryptedStore) -> None:
        super().__init__(inner)
        self._encrypted = inner

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self._encrypted.append_spooled(
            conversation_id, messages, expected_revision=expected_revision
        )


def _opened(message: Message, keys: DataKeys, log_id: LogId) -> Message:
    try:
        return seals.unseal(message, 0, 0, keys, log_id, spooled=True)
    except InvalidSeal as error:
        raise StoreDamaged(
            f"a spooled message of {log_id.conversation_id} cannot be read: {error}"
        ) from error


def _with_keys_apart(tally: Tally) -> Tally:
    """Count key documents as keys instead of documents."""
    documents = dict(tally.documents)
    return replace(tally, keys=documents.pop(KEYS_KIND, 0), documents=documents)


# How long opening a store may take longer to check the master key.
CHECK_SECONDS = 5.0


class EncryptedBackend(BackendWrapper):
    """A backend whose `inner` sees only ciphertext."""

    adds = (Scrubbable,)
    # An index of ciphertext finds nothing, and the spool already replays through this layer.
    hides = (Reindexable, Spooling)

    def __init__(self, inner: Backend, encryption: Encryption) -> None:
        super().__init__(inner)
        self.encryption = encryption
        keys_in = encryption.keyring or inner
        self.keyring = Keyring(encryption.master, keys_in.of, before_first_key=self._verify_master_key)
        self.shared = SharedState(inner, encryption, self.keyring)
        spooling = capability(inner, Spooling)
        if spooling is not None:
            spooling.replay_turns_through(self._replay_store)

    def _replay_store(self, owner: str, inner: ConversationStore) -> ReplayStore:
        return ReplayStore(EncryptedStore(self.shared, owner, inner))

    async def open(self) -> None:
        warming = asyncio.ensure_future(asyncio.to_thread(warm))
        try:
            await self.inner.open()
        finally:
            await warming
        if self.encryption.keyring is not None:
            await self.encryption.keyring.open()
        try:
            await self._refuse_wrong_master_key()
        except BaseException:
            await self.close()
            raise

    async def check_master_key(self, *, all_of_them: bool = False) -> MasterKeyCheck:
        """Whether the master key opens the data keys in this store. Raises `StoreUnavailable`."""
        keys_in: Backend = self.encryption.keyring or self.inner
        # Below the spool: what is read for this check must not count as known in an outage.
        spooling = capability(keys_in, Spooling)
        below = keys_in if spooling is None else spooling.inner
        return await check_master_key(self.keyring, keys_in.owners, below.of, all_of_them=all_of_them)

    async def _refuse_wrong_master_key(self) -> None:
        """Raise `KeyUnavailable` if the store is sealed with another master key.

        An unavailable or slow store is opened unchecked; `/ready` and `doctor` check again.
        """
        with suppress(StoreUnavailable, TimeoutError):
            await within(CHECK_SECONDS, self._verify_master_key())

    async def _verify_master_key(self) -> None:
        """Raise `KeyUnavailable` when the store is sealed with another master key.

        It also runs before the first data key is created, so that a wrong master key seals no data.
        """
        found = await self.check_master_key()
        if found.is_certain and found.error is not None:
            raise KeyUnavailable(
                f"the master key does not open this store: {found.error}", key_id=found.error.key_id
            )

    async def close(self) -> None:
        try:
            await self.inner.close()
        finally:
            if self.encryption.keyring is not None:
                await self.encryption.keyring.close()

    def of(self, owner: str) -> EncryptedStore:
        inner = self.inner.of(owner)
        return EncryptedStore(self.shared, parse_name(owner, field="owner"), inner)

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self.inner.owners(ignored_kinds={*ignored_kinds, KEYS_KIND})

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Have the store scrub its files, and a keyring of its own too; returns what remains in either. See
        `contracts.Scrubbable`."""
        remains: tuple[str, ...] = ()
        for backend in (self.inner, self.encryption.keyring):
            scrubbable = capability(backend, Scrubbable)
            if scrubbable is not None:
                remains += await scrubbable.scrub(owner)
        return remains


def encrypted(inner: Backend, encryption: Encryption) -> EncryptedBackend:
    """Wrap a backend in the encrypted layer."""
    return EncryptedBackend(inner, encryption)
