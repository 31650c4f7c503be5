"""The data keys of all owners: stored wrapped in a document, cached unwrapped in memory.

    {"version": 1, "keys": [{"id": "5d0c0e1f", "master": "91bc…", "wrapped": "…", "made_at": "…"}]}

The first key seals; the others only open older data. The document has the kind `keys`. It lies next to the
owner's data, or in a separate store, so that a backup of the
data does not contain its keys.

The wrapped data keys also serve to check the master key, so nothing else is stored for that: if none of a
sample can be unwrapped, the store is sealed with another master key.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import Document
from aforesaid.encryption import KEYS_KIND, KEYS_NAME, KeyProvider, WrappedKey, master_key_errors
from aforesaid.errors import DocumentConflict, KeyUnavailable, StoreDamaged, StoreUnavailable
from aforesaid.layers.encrypted.seals import DataKey, DataKeys

# Seconds that open keys are held before the document is looked at again: another process may have changed
# it.
CACHE_SECONDS = 60.0
MAX_CACHED_OWNERS = 10_000


class _StoredKey(Struct, frozen=True, kw_only=True):
    id: str
    master: str
    wrapped: bytes
    made_at: datetime


class _Ring(Struct, frozen=True, kw_only=True):
    keys: tuple[_StoredKey, ...]
    version: int = 1


_ring = msgspec.json.Decoder(_Ring).decode


class OpenKeys(Struct, frozen=True, kw_only=True):
    """An owner's unwrapped keys."""

    keys: DataKeys
    document: Document
    """The document that contains them. Its version alone does not identify it: it restarts after a clear."""
    made_at: datetime
    """When the current key was created."""
    masters: frozenset[str]
    """The ids of the master keys that wrap them."""
    looked_at: float


class KeyStore(Protocol):
    """The part of a store that a keyring uses."""

    def now(self) -> datetime: ...
    async def get_document(self, kind: str, key: str) -> Document | None: ...
    async def put_document(
        self, kind: str, key: str, data: bytes, *, expected_version: int | None = None
    ) -> Document: ...
    async def delete_document(self, kind: str, key: str) -> bool: ...


class Keyring:
    """The data keys of all owners. `store_of` returns the store of an owner's document.

    `before_first_key` is awaited before a key is made while none was opened yet. It raises to prevent that.
    """

    def __init__(
        self,
        provider: KeyProvider,
        store_of: Callable[[str], KeyStore],
        *,
        before_first_key: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._provider = provider
        self._store_of = store_of
        self._before_first_key = before_first_key or _nothing
        # Whether the master key has opened a key of this store.
        self._proven = False
        self._cache: BoundedDict[str, OpenKeys] = BoundedDict(MAX_CACHED_OWNERS)
        self._looking: PerLoop[WeakValueDictionary[str, asyncio.Lock]] = PerLoop(WeakValueDictionary)

    async def keys_of(self, owner: str, *, refresh: bool = False) -> DataKeys | None:
        """Return the owner's keys; None when there are none. `refresh` reads the document again.

        Raise `KeyUnavailable`.
        """
        open_keys = (
            await self.refresh(owner) if refresh else self._cached(owner) or await self._look_once(owner)
        )
        return None if open_keys is None else open_keys.keys

    def cached(self, owner: str) -> DataKeys | None:
        """Return the owner's keys if they are cached and recent."""
        open_keys = self._cached(owner)
        return None if open_keys is None else open_keys.keys

    async def _look_once(self, owner: str) -> OpenKeys | None:
        """Read the keys once for concurrent callers: a window reads front, end and record at once."""
        async with self._looking.here().setdefault(owner, asyncio.Lock()):
            return self._cached(owner) or await self.refresh(owner)

    def _cached(self, owner: str) -> OpenKeys | None:
        open_keys = self._cache.get(owner)
        return (
            None if open_keys is None or time.monotonic() - open_keys.looked_at > CACHE_SECONDS else open_keys
        )

    async def get_or_create(self, owner: str, *, refresh: bool = False) -> DataKeys:
        """Return the owner's keys; create them if there are none. `refresh` reads the document again."""
        open_keys = None if refresh else self._cached(owner)
        while open_keys is None:
            open_keys = await self.refresh(owner)
            if open_keys is None:
                await self._make(owner)
        return open_keys.keys

    async def refresh(self, owner: str) -> OpenKeys | None:
        """Read the document and cache its keys; return the cached keys while the store is unavailable."""
        try:
            document = await self._store_of(owner).get_document(KEYS_KIND, KEYS_NAME)
        except StoreUnavailable:
            if owner in self._cache:
                return self._cache[owner]
            raise
        if document is None:
            self._cache.pop(owner, None)
            return None
        open_keys = self._cache.get(owner)
        if open_keys is not None and open_keys.document == document:
            return self._cache_keys(owner, msgspec.structs.replace(open_keys, looked_at=time.monotonic()))
        return self._cache_keys(owner, await self._opened(owner, document))

    async def has(self, owner: str) -> bool:
        """Return whether this owner has keys."""
        return await self._store_of(owner).get_document(KEYS_KIND, KEYS_NAME) is not None

    async def verify(self, owner: str, store: KeyStore) -> bool:
        """Unwrap the owner's keys in this store; return False when there are none. Raise `KeyUnavailable`."""
        document = await store.get_document(KEYS_KIND, KEYS_NAME)
        if document is None:
            return False
        await self._opened(owner, document)
        return True

    async def drop(self, owner: str) -> bool:
        """Delete the owner's keys permanently: data sealed with them can never be read again."""
        self._cache.pop(owner, None)
        return await self._store_of(owner).delete_document(KEYS_KIND, KEYS_NAME)

    def evict(self, owner: str) -> None:
        """Remove the owner's keys from the cache; the document stays."""
        self._cache.pop(owner, None)

    # Changing keys

    async def rewrap(self, owner: str) -> bool:
        """Wrap the owner's keys with the current master key; return whether that was necessary."""
        open_keys = await self.refresh(owner)
        if open_keys is None or open_keys.masters == {self._provider.current}:
            return False
        await self._change(owner, open_keys, open_keys.keys.every(), open_keys.made_at)
        return True

    async def add(self, owner: str) -> bool:
        """Add a new current key before the old one; return False if there are several already, or none."""
        open_keys = await self.refresh(owner)
        if open_keys is None or len(open_keys.keys) > 1:
            return False
        return await self._change(owner, open_keys, [DataKey.generate(), *open_keys.keys.every()])

    async def retire(self, owner: str, open_keys: OpenKeys) -> bool:
        """Delete all of these keys but the current one; return False if the owner has other keys by now."""
        now = await self.refresh(owner)
        if now is None or now.document != open_keys.document:
            return False
        return await self._change(owner, open_keys, [open_keys.keys.current], open_keys.made_at)

    async def _change(
        self, owner: str, open_keys: OpenKeys, keys: Sequence[DataKey], made_at: datetime | None = None
    ) -> bool:
        store = self._store_of(owner)
        data = await self._wrapped(owner, keys, made_at or store.now())
        try:
            await store.put_document(KEYS_KIND, KEYS_NAME, data, expected_version=open_keys.document.version)
        except DocumentConflict:
            await self.refresh(owner)  # another process changed them at the same time: its keys are valid too
            return False
        await self.refresh(owner)
        return True

    async def _make(self, owner: str) -> None:
        if not self._proven:
            await self._before_first_key()
        store = self._store_of(owner)
        data = await self._wrapped(owner, [DataKey.generate()], store.now())
        try:
            await store.put_document(KEYS_KIND, KEYS_NAME, data, expected_version=0)
        except DocumentConflict:
            return  # another process was first: its key is the owner's

    async def _wrapped(self, owner: str, keys: Sequence[DataKey], made_at: datetime) -> bytes:
        stored: list[_StoredKey] = []
        for key in keys:
            with master_key_errors():
                wrapped = await self._provider.wrap(key.secret, bound_to=_bound_to(owner, key.id))
            stored.append(_StoredKey(id=key.id, master=wrapped.master, wrapped=wrapped.data, made_at=made_at))
        return msgspec.json.encode(_Ring(keys=tuple(stored)))

    async def _opened(self, owner: str, document: Document) -> OpenKeys:
        stored = _read(document.data)
        keys = [DataKey(one.id, await self._unwrapped(owner, one)) for one in stored]
        self._proven = True
        return OpenKeys(
            keys=DataKeys(keys),
            document=document,
            made_at=stored[0].made_at,
            masters=frozenset(one.master for one in stored),
            looked_at=time.monotonic(),
        )

    async def _unwrapped(self, owner: str, stored: _StoredKey) -> bytes:
        wrapped = WrappedKey(master=stored.master, data=stored.wrapped)
        try:
            with master_key_errors():
                return await self._provider.unwrap(wrapped, bound_to=_bound_to(owner, stored.id))
        except KeyUnavailable as error:
            raise KeyUnavailable(f"data key {stored.id}: {error}", key_id=error.key_id) from error

    def _cache_keys(self, owner: str, open_keys: OpenKeys) -> OpenKeys:
        self._cache[owner] = open_keys
        return open_keys


async def _nothing() -> None:
    """Do nothing before the first key is created."""


def _bound_to(owner: str, key_id: str) -> bytes:
    return msgspec.json.encode(("aforesaid data key", 1, owner, key_id))


def _read(data: bytes) -> tuple[_StoredKey, ...]:
    try:
        ring = _ring(data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the document with an owner's data keys cannot be read: {error}") from error
    if ring.version != 1 or not ring.keys:
        raise StoreDamaged(f"the document with an owner's data keys has version {ring.version}, not 1")
    return ring.keys


# The check of the master key


# Owners whose keys are unwrapped.
SAMPLE = 20
# Owners that are read, with keys or without.
LOOKED_AT = 200

Owners = Callable[[], AsyncIterator[str]]
StoreOf = Callable[[str], KeyStore]


class MasterKeyCheck(Struct, frozen=True, kw_only=True):
    """The result of unwrapping the keys of some owners."""

    opened: int = 0
    failed: int = 0
    error: KeyUnavailable | None = None
    """The first error."""

    @property
    def is_wrong(self) -> bool:
        """Whether there are keys, and none of them can be unwrapped."""
        return self.failed > 0 and not self.opened

    @property
    def is_certain(self) -> bool:
        """Whether another master key is needed. A key service that cannot be reached names none."""
        return self.is_wrong and self.error is not None and bool(self.error.key_id)


async def check_master_key(
    keyring: Keyring, owners: Owners, store_of: StoreOf, *, all_of_them: bool = False
) -> MasterKeyCheck:
    """Unwrap the keys of some owners, until one opens or, with `all_of_them`, to the end of the sample.

    Raises `StoreUnavailable` while the store is unavailable.
    """
    opened = failed = looked_at = 0
    error: KeyUnavailable | None = None
    async for owner in owners():
        try:
            opened += await keyring.verify(owner, store_of(owner))
        except KeyUnavailable as refused:
            failed, error = failed + 1, error or refused
        looked_at += 1
        most = SAMPLE if all_of_them or not opened else 1
        if opened + failed >= most or looked_at == LOOKED_AT:
            break
    return MasterKeyCheck(opened=opened, failed=failed, error=error)
