"""The data keys of every owner: made once, kept wrapped as a document, held open in memory for a while.

    {"version": 1, "keys": [{"id": "5d0c0e1f", "master": "91bc…", "wrapped": "…", "made_at": "…"}]}

The first seals; the others are on their way out and only open what was sealed before. The document is
of the kind `keys` and lies beside the owner's data, or in a store of its own, so that a backup of the
data does not hold the keys to it. Below: keys, `sealing`. Above: `encrypted`, `rekeying`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from aforesaid._internal.loops import PerLoop
from aforesaid.contracts import Document
from aforesaid.encryption.master_keys import KeyProvider, WrappedKey, master_key_errors
from aforesaid.errors import DocumentConflict, KeyUnavailable, StoreDamaged, StoreUnavailable
from aforesaid.layers.encrypted.sealing import DataKey, DataKeys

KIND = "keys"
"""The kind of the documents that hold data keys: this layer's own."""
_NAME = "data"

HELD_FOR = 60.0
"""Seconds that open keys are held before the document is looked at again: another process may have changed
it."""
HELD_OWNERS = 10_000


class _Kept(Struct, frozen=True, kw_only=True):
    id: str
    master: str
    wrapped: bytes
    made_at: datetime


class _Ring(Struct, frozen=True, kw_only=True):
    keys: tuple[_Kept, ...]
    version: int = 1


_ring = msgspec.json.Decoder(_Ring).decode


class Held(Struct, frozen=True, kw_only=True):
    """An owner's keys, open."""

    keys: DataKeys
    document: Document
    """Where they come from. Its version alone does not tell: it begins anew when an owner was cleared."""
    made_at: datetime
    """When the current one was made."""
    masters: frozenset[str]
    """The master keys that they are wrapped by."""
    looked_at: float


class KeyStore(Protocol):
    """What a keyring needs of a store."""

    def now(self) -> datetime: ...
    async def get_document(self, kind: str, key: str) -> Document | None: ...
    async def put_document(
        self, kind: str, key: str, data: bytes, *, expected_version: int | None = None
    ) -> Document: ...
    async def delete_document(self, kind: str, key: str) -> bool: ...


class Keyring:
    """Everybody's data keys. `store_of` is where an owner's document lies.

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
        self._proven = False
        """Whether the master key has opened a key of this store."""
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._looking: PerLoop[WeakValueDictionary[str, asyncio.Lock]] = PerLoop(WeakValueDictionary)

    async def keys_of(self, owner: str, *, look: bool = False) -> DataKeys | None:
        """The owner's keys; None when there are none. `look`: at the document, whatever is held.

        Raises `KeyUnavailable`.
        """
        held = await self.look(owner) if look else self._fresh(owner) or await self._look_once(owner)
        return None if held is None else held.keys

    def holds(self, owner: str) -> bool:
        """Whether the owner's keys are at hand, without a look at the store."""
        return self._fresh(owner) is not None

    async def _look_once(self, owner: str) -> Held | None:
        """One look for all who ask at the same time: a window asks for a log's front, end and record."""
        async with self._looking.here().setdefault(owner, asyncio.Lock()):
            return self._fresh(owner) or await self.look(owner)

    def _fresh(self, owner: str) -> Held | None:
        held = self._held.get(owner)
        return None if held is None or time.monotonic() - held.looked_at > HELD_FOR else held

    async def ensured(self, owner: str, *, look: bool = False) -> DataKeys:
        """The owner's keys, made when there are none. `look`: at the document, whatever is held."""
        held = None if look else self._fresh(owner)
        while held is None:
            held = await self.look(owner)
            if held is None:
                await self._make(owner)
        return held.keys

    async def look(self, owner: str) -> Held | None:
        """What the document says now; what is held, while the store is away."""
        try:
            document = await self._store_of(owner).get_document(KIND, _NAME)
        except StoreUnavailable:
            if owner in self._held:
                return self._held[owner]
            raise
        if document is None:
            self._held.pop(owner, None)
            return None
        held = self._held.get(owner)
        if held is not None and held.document == document:
            return self._hold(owner, msgspec.structs.replace(held, looked_at=time.monotonic()))
        return self._hold(owner, await self._opened(owner, document))

    async def has(self, owner: str) -> bool:
        """Whether there are keys of this owner."""
        return await self._store_of(owner).get_document(KIND, _NAME) is not None

    async def verify(self, owner: str, store: KeyStore) -> bool:
        """Unwrap the owner's keys, as this store has them; False when there are none.

        Raises `KeyUnavailable`.
        """
        document = await store.get_document(KIND, _NAME)
        if document is None:
            return False
        await self._opened(owner, document)
        return True

    async def drop(self, owner: str) -> bool:
        """Forget the owner's keys for good: what they sealed can never be read again."""
        self._held.pop(owner, None)
        return await self._store_of(owner).delete_document(KIND, _NAME)

    def let_go(self, owner: str) -> None:
        """Hold the owner's keys no longer; the document stays."""
        self._held.pop(owner, None)

    # Changing keys

    async def rewrap(self, owner: str) -> bool:
        """Wrap the owner's keys by the current master key; whether anything had to be done."""
        held = await self.look(owner)
        if held is None or held.masters == {self._provider.current}:
            return False
        await self._change(owner, held, held.keys.every(), held.made_at)
        return True

    async def add(self, owner: str) -> bool:
        """A new current key before the old one; False when there are several already, or none at all."""
        held = await self.look(owner)
        if held is None or len(held.keys) > 1:
            return False
        return await self._change(owner, held, [DataKey.generate(), *held.keys.every()])

    async def retire(self, owner: str, held: Held) -> bool:
        """Drop all of these keys but the current one; False when others are the owner's by now."""
        now = await self.look(owner)
        if now is None or now.document != held.document:
            return False
        return await self._change(owner, held, [held.keys.current], held.made_at)

    async def _change(
        self, owner: str, held: Held, keys: Sequence[DataKey], made_at: datetime | None = None
    ) -> bool:
        store = self._store_of(owner)
        data = await self._wrapped(owner, keys, made_at or store.now())
        try:
            await store.put_document(KIND, _NAME, data, expected_version=held.document.version)
        except DocumentConflict:
            await self.look(owner)  # somebody else changed them at the same time, and that will do
            return False
        await self.look(owner)
        return True

    async def _make(self, owner: str) -> None:
        if not self._proven:
            await self._before_first_key()
        store = self._store_of(owner)
        data = await self._wrapped(owner, [DataKey.generate()], store.now())
        try:
            await store.put_document(KIND, _NAME, data, expected_version=0)
        except DocumentConflict:
            return  # another process was first: its key is the owner's

    async def _wrapped(self, owner: str, keys: Sequence[DataKey], made_at: datetime) -> bytes:
        kept: list[_Kept] = []
        for key in keys:
            with master_key_errors():
                wrapped = await self._provider.wrap(key.secret, bound_to=_bound_to(owner, key.id))
            kept.append(_Kept(id=key.id, master=wrapped.master, wrapped=wrapped.data, made_at=made_at))
        return msgspec.json.encode(_Ring(keys=tuple(kept)))

    async def _opened(self, owner: str, document: Document) -> Held:
        kept = _read(document.data)
        keys = [DataKey(one.id, await self._unwrapped(owner, one)) for one in kept]
        self._proven = True
        return Held(
            keys=DataKeys(keys),
            document=document,
            made_at=kept[0].made_at,
            masters=frozenset(one.master for one in kept),
            looked_at=time.monotonic(),
        )

    async def _unwrapped(self, owner: str, kept: _Kept) -> bytes:
        wrapped = WrappedKey(master=kept.master, data=kept.wrapped)
        try:
            with master_key_errors():
                return await self._provider.unwrap(wrapped, bound_to=_bound_to(owner, kept.id))
        except KeyUnavailable as error:
            raise KeyUnavailable(f"data key {kept.id}: {error}", key_id=error.key_id) from error

    def _hold(self, owner: str, held: Held) -> Held:
        self._held[owner] = held
        self._held.move_to_end(owner)
        if len(self._held) > HELD_OWNERS:
            self._held.popitem(last=False)
        return held


async def _nothing() -> None:
    """Do nothing before the first key is made."""


def _bound_to(owner: str, key_id: str) -> bytes:
    return msgspec.json.encode(("aforesaid data key", 1, owner, key_id))


def _read(data: bytes) -> tuple[_Kept, ...]:
    try:
        ring = _ring(data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the document with an owner's data keys cannot be read: {error}") from error
    if ring.version != 1 or not ring.keys:
        raise StoreDamaged(f"the document with an owner's data keys has version {ring.version}, not 1")
    return ring.keys
