"""The encrypted backend and its stores."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import PerLoop, within
from aforesaid.contracts import (
    Appended,
    Backend,
    Bounded,
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
from aforesaid.encryption import KeyProvider
from aforesaid.errors import KeyUnavailable, StoreDamaged, StoreUnavailable
from aforesaid.layers.base import BackendWrapper
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.documents import SealedDocuments
from aforesaid.layers.encrypted.heads import NO_MESSAGES, Head
from aforesaid.layers.encrypted.keyring import KIND, Keyring, MasterKeyCheck, check_master_key
from aforesaid.layers.encrypted.log_reads import violations_logged
from aforesaid.layers.encrypted.log_writes import SealedLogs
from aforesaid.layers.encrypted.records import OpenedEntries, can_be_shared, known_entries, turn_of
from aforesaid.layers.encrypted.seals import DataKeys, InvalidSeal, LogId, warm
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message

# One owner's encrypted store, and the store that seals replayed turns.
#
# The wrapped store returns the same snapshot object until something changes. The decrypted snapshot is
# cached in it, so that a repeated window costs no more than in a plain store.


_OPENED = "opened"


class EncryptedStore(SealedLogs, SealedDocuments):
    """One owner's encrypted store. The wrapped store must be `Sealable`."""

    # Retention

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        found = await self.inner.expired(by=by, limit=limit)
        return self._readable(found, await self._keys()) if self._seals_records else found

    async def clear(self) -> Tally:
        """Remove the owner's data and keys. Without the keys, backups of the data are unreadable."""
        self._backend.keyring.evict(self._owner)
        # Keys in the same store are cleared with the data. Keys in a separate keyring are deleted before the
        # data: a conversation that begins after the clear creates a new key, which must stay.
        dropped = False if self._keys_are_inside else await self._backend.keyring.drop(self._owner)
        gone = await self.inner.clear()
        self._backend.keyring.evict(self._owner)
        self._backend.forget_owner(self._owner)
        return _with_keys_apart(gone) + Tally(keys=dropped)

    async def tally(self, conversation_id: str | None = None) -> Tally:
        held = _with_keys_apart(await self.inner.tally(conversation_id))
        if conversation_id is not None or self._keys_are_inside:
            return held
        return held + Tally(keys=await self._backend.keyring.has(self._owner))

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
        opened = self._backend.opened(log_id)
        first, last = await self._verified_ends(log_id, seen, front, tail, opened)
        snapshot = LogSnapshot(
            message_count=seen.message_count,
            front=first,
            tail=last,
            documents=await self._snapshot_documents(seen.documents, documents),
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

    async def _snapshot_documents(self, found: Sequence[Document], listing: Listing) -> list[Document]:
        if listing.kind == KIND:
            return []
        opened = await self._open_documents(found)
        if len(opened) == len(found):
            return opened
        # Unreadable documents are left out, so read on until the page is full.
        return await self.documents(listing.kind, after=listing.after, limit=listing.limit)


class ReplayStore(EncryptedStore):
    """One owner's store for the replay of spooled turns. It returns entries as stored, not decrypted.

    A turn that was accepted during an outage is sealed without a place, because other processes may write
    meanwhile. The resilient layer replays it through this store, which decrypts the turn and stores it like
    any other.
    """

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        log_id = self._log_id(conversation_id)
        keys = await self._keys(filter(None, map(seals.key_id_of, messages)))
        if keys is None:
            keys = await self._keys_to_write(log_id)
        turn = turn_of([_opened(message, keys, log_id) for message in messages])
        # Without the lock of the conversation: a caller that holds it may wait for this replay.
        return await self._stored(log_id, turn, keys, expected_revision, afresh=False)


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
    return replace(tally, keys=documents.pop(KIND, 0), documents=documents)


# The encrypted backend, and the keys and log ends that its stores share.


MAX_CACHED_LOGS = 10_000
"""Logs whose end and head are cached, so that a turn need not read them."""
MAX_OPENED_LOGS = 256
"""Conversations with decrypted messages in memory."""
MAX_OPENED_ENTRIES = 256
"""Decrypted messages per conversation. The cache is emptied when it has twice as many."""

CHECK_SECONDS = 5.0
"""How long opening a store may take longer to check the master key."""


class Encryption(CheckedFields, frozen=True, kw_only=True):
    """Options of the encrypted layer."""

    master: KeyProvider
    """The provider of the master key."""
    records: bool = False
    """Whether to seal subject, client name, notes and tags of conversations too."""
    keyring: Backend | None = None
    """The backend for data keys; None stores them next to the data. In a separate backend, deleting an
    owner's key makes backups of its data unreadable."""


class CachedLog:
    """What this process knows about a log: its end and its decrypted head."""

    __slots__ = ("_head", "_sealed_head", "end")

    def __init__(self) -> None:
        self.end: LogEnd | None = None
        self._sealed_head = ""
        self._head = NO_MESSAGES

    def head(self, sealed: str | None) -> Head | None:
        """Return the head if it was decrypted from exactly this ciphertext before; an empty one for None."""
        if sealed is None:
            return NO_MESSAGES
        return self._head if sealed == self._sealed_head else None

    def set_head(self, sealed: str, head: Head) -> None:
        self._sealed_head, self._head = sealed, head


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
        self._logs: BoundedDict[LogId, CachedLog] = BoundedDict(MAX_CACHED_LOGS)
        self._opened: BoundedDict[LogId, OpenedEntries] = BoundedDict(MAX_OPENED_LOGS)
        self._restored: BoundedDict[LogId, Head] = BoundedDict(MAX_OPENED_LOGS)
        # An evicted lock may still be held. Two turns then run at once, and the store refuses one of them.
        self._locks: PerLoop[BoundedDict[LogId, asyncio.Lock]] = PerLoop(
            partial(BoundedDict, MAX_CACHED_LOGS)
        )
        bounded = capability(inner, Bounded)
        self.max_messages = None if bounded is None else bounded.max_messages
        spooling = capability(inner, Spooling)
        self.spools = spooling is not None
        if spooling is not None:
            spooling.replay_turns_through(partial(ReplayStore, self))

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
        return EncryptedStore(self, parse_name(owner, field="owner"), inner)

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self.inner.owners(ignored_kinds={*ignored_kinds, KIND})

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Have the store scrub its files, and a keyring of its own too; returns what remains in either. See
        `contracts.Scrubbable`."""
        remains: tuple[str, ...] = ()
        for backend in (self.inner, self.encryption.keyring):
            scrubbable = capability(backend, Scrubbable)
            if scrubbable is not None:
                remains += await scrubbable.scrub(owner)
        return remains

    def opened(self, log_id: LogId) -> OpenedEntries:
        """Return the cache of decrypted entries: a window reads nearly the same ones in every turn."""
        opened = self._opened.use(log_id)
        if opened is None or len(opened) > 2 * MAX_OPENED_ENTRIES:
            opened = self._opened[log_id] = {}
        return opened

    def forget(self, log_id: LogId) -> None:
        """Drop cached data of this conversation."""
        self._opened.pop(log_id, None)
        self._logs.pop(log_id, None)

    def forget_owner(self, owner: str) -> None:
        """Drop cached data of this owner."""
        for log_id in [one for one in (*self._opened, *self._logs) if one.owner == owner]:
            self.forget(log_id)

    # Cached state of logs, shared by all stores of this backend

    def lock(self, log_id: LogId) -> asyncio.Lock:
        """Return the lock that serializes this process's writes to a conversation.

        Writers that run at once would all seal for the same place, and the store would refuse all but one.
        """
        locks = self._locks.here()
        lock = locks.use(log_id)
        if lock is None:
            lock = locks[log_id] = asyncio.Lock()
        return lock

    def log(self, log_id: LogId) -> CachedLog:
        """Return the cached end and head of a log. They may be outdated: a store compares them."""
        cached = self._logs.use(log_id)
        if cached is None:
            cached = self._logs[log_id] = CachedLog()
        return cached

    def restored_head(self, log_id: LogId) -> Head:
        """The head of a conversation that is restored in parts and has expired: the store shows none."""
        return self._restored.get(log_id, NO_MESSAGES)

    def cache_restored_head(self, log_id: LogId, head: Head) -> None:
        self._restored[log_id] = head


def encrypted(inner: Backend, encryption: Encryption) -> EncryptedBackend:
    """Wrap a backend in the encrypted layer."""
    return EncryptedBackend(inner, encryption)
