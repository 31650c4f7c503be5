"""What the parts of an encrypted store share: options, caches, locks, and access to the owner's data keys."""

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Self, TypeVar

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import (
    Backend,
    Bounded,
    ConversationStore,
    Labelled,
    LogEnd,
    Sealable,
    Searchable,
    Spooling,
    VectorSearchable,
    capability,
)
from aforesaid.encryption import KeyProvider
from aforesaid.errors import InvalidSetting, KeyUnavailable
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.heads import NO_MESSAGES, Head
from aforesaid.layers.encrypted.keyring import Keyring
from aforesaid.layers.encrypted.records import (
    OpenedEntries,
    open_lineage,
    open_record,
    seal_lineage,
    seal_record,
)
from aforesaid.layers.encrypted.seals import DataKeys, LogId
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_uuid

T = TypeVar("T")

# Logs whose end and head are cached, so that a turn need not read them.
MAX_CACHED_LOGS = 10_000
# Conversations with decrypted messages in memory.
MAX_OPENED_LOGS = 256
# Decrypted messages per conversation. The cache is emptied when it has twice as many.
MAX_OPENED_ENTRIES = 256


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


class SharedState:
    """What all stores of one encrypted backend share: options, data keys, caches and locks."""

    def __init__(self, inner: Backend, encryption: Encryption, keyring: Keyring) -> None:
        self.encryption = encryption
        self.keyring = keyring
        self._logs: BoundedDict[LogId, CachedLog] = BoundedDict(MAX_CACHED_LOGS)
        self._opened: BoundedDict[LogId, OpenedEntries] = BoundedDict(MAX_OPENED_LOGS)
        self._restored: BoundedDict[LogId, Head] = BoundedDict(MAX_OPENED_LOGS)
        # An evicted lock may still be held. Two turns then run at once, and the store refuses one of them.
        self._locks: PerLoop[BoundedDict[LogId, asyncio.Lock]] = PerLoop(
            partial(BoundedDict, MAX_CACHED_LOGS)
        )
        bounded = capability(inner, Bounded)
        self.max_messages = None if bounded is None else bounded.max_messages
        self.spools = capability(inner, Spooling) is not None

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


class EncryptedStoreBase(StoreWrapper):
    """The owner, the wrapped store, which must be `Sealable`, and access to the owner's data keys."""

    # An index or a vector comparison of the wrapped store would see only ciphertext.
    hides = (Labelled, Sealable, Searchable, VectorSearchable)

    def __init__(self, shared: SharedState, owner: str, inner: ConversationStore) -> None:
        log = capability(inner, Sealable)
        if log is None:
            raise InvalidSetting(f"{type(inner).__name__} cannot be encrypted: it is not Sealable")
        super().__init__(inner)
        self._shared = shared
        self._owner = owner
        self._keyring = shared.keyring
        self._log = log

    async def authoritative(self) -> Self:
        view = await super().authoritative()
        view._log = view.inner_capability(Sealable)
        return view

    def including_expired(self) -> Self:
        view = super().including_expired()
        view._log = view.inner_capability(Sealable)
        return view

    @property
    def _keys_are_inside(self) -> bool:
        return self._shared.encryption.keyring is None

    @property
    def _seals_records(self) -> bool:
        return self._shared.encryption.records

    def _log_id(self, conversation_id: str) -> LogId:
        return LogId(self._owner, parse_uuid(conversation_id, field="conversation_id"))

    async def _read(self, reading: Coroutine[Any, Any, T]) -> T:
        """Await the read; load the owner's keys concurrently if they are not cached."""
        if self._keyring.cached(self._owner) is not None:
            return await reading
        found: T
        found, _ = await asyncio.gather(reading, self._keys())
        return found

    async def _keys_to_write(self, log_id: LogId) -> DataKeys:
        """Return the keys to seal a conversation with.

        If the log is not cached, read the keys again: another process may have cleared the owner, who then
        has another key than the cached one.
        """
        unknown = self._shared.log(log_id).end is None
        keys = await self._shared.keyring.keys_of(self._owner, refresh=unknown)
        if keys is None:
            await self._check_not_sealed(log_id)
            keys = await self._shared.keyring.get_or_create(self._owner)
        return keys

    async def _check_not_sealed(self, log_id: LogId) -> None:
        """Raise if the conversation is sealed with a key that is lost or in another keyring."""
        for entry in await self.inner.tail(log_id.conversation_id, limit=1):
            if (key_id := seals.key_id_of(entry.message)) is not None:
                raise KeyUnavailable(
                    f"conversation {log_id.conversation_id} is sealed with data key {key_id}, "
                    "and this owner has no data key here",
                    key_id=key_id,
                )

    async def _keys(self, unknown: Iterable[str] = ()) -> DataKeys | None:
        """Return the cached keys; read them again if one of the given key ids is missing."""
        keys = self._keyring.cached(self._owner) or await self._keyring.keys_of(self._owner)
        if keys is None or all(key_id in keys for key_id in unknown):
            return keys
        held = await self._shared.keyring.refresh(self._owner)
        return None if held is None else held.keys

    async def _seal_record(self, record: Conversation) -> Conversation:
        if not (self._seals_records or record.lineage):
            return record
        keys = await self._shared.keyring.get_or_create(self._owner, refresh=True)
        record = seal_lineage(record, keys.current, self._owner)
        return seal_record(record, keys, self._owner) if self._seals_records else record

    async def _open_record(self, record: Conversation) -> Conversation:
        if not (self._seals_records or record.lineage):
            return record
        return self._opened_record(record, await self._keys())

    def _opened_record(self, record: Conversation, keys: DataKeys | None) -> Conversation:
        record = open_lineage(record, keys, self._owner)
        return open_record(record, keys, self._owner) if self._seals_records else record
