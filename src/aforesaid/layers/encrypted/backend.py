"""The encrypted backend, and the keys and log ends that its stores share."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from aforesaid._internal.arguments import CheckedFields
from aforesaid._internal.deadlines import within
from aforesaid._internal.loops import PerLoop
from aforesaid.contracts import (
    Backend,
    Bounded,
    LogEnd,
    Reindexable,
    Scrubbable,
    Spooling,
    capability,
)
from aforesaid.encryption.master_keys import KeyProvider
from aforesaid.errors import KeyUnavailable, StoreUnavailable
from aforesaid.layers.base import BackendWrapper
from aforesaid.layers.encrypted.heads import Head
from aforesaid.layers.encrypted.keyring import KIND, Keyring
from aforesaid.layers.encrypted.master_key_check import MasterKeyCheck, check_master_key
from aforesaid.layers.encrypted.sealing import Opened, Place, warm
from aforesaid.layers.encrypted.snapshots import SnapshotStore
from aforesaid.layers.encrypted.spooled import SpooledTurns
from aforesaid.layers.encrypted.store import EncryptedStore
from aforesaid.model.ids import parse_name

KNOWN_ENDS = 10_000
"""Conversations whose end is remembered, so that a turn need not ask for it."""
OPENED_LOGS = 256
"""Conversations of which the last messages are kept open in memory, and no longer than they are in use."""
OPENED_KEPT = 256
"""Messages of each that are kept open, and twice as many before they are let go."""

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
        self._ends: OrderedDict[Place, LogEnd] = OrderedDict()
        self._opened: OrderedDict[Place, dict[int, Opened]] = OrderedDict()
        self._heads: OrderedDict[Place, tuple[str, Head]] = OrderedDict()
        self._restored: OrderedDict[Place, Head] = OrderedDict()
        self._turns: PerLoop[WeakValueDictionary[Place, asyncio.Lock]] = PerLoop(WeakValueDictionary)
        bounded = capability(inner, Bounded)
        self.kept = None if bounded is None else bounded.max_messages
        spooling = capability(inner, Spooling)
        self.spools = spooling is not None
        if spooling is not None:
            spooling.replay_turns_through(partial(SpooledTurns, self))

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
        return SnapshotStore(self, parse_name(owner, field="owner"), inner)

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self.inner.owners(ignored_kinds={*ignored_kinds, KIND})

    async def scrub(self, owner: str | None) -> tuple[str, ...]:
        """Have the store scrub its files, and a keyring of its own too; returns what remains in either. See
        `contracts.Scrubbable`."""
        remains: tuple[str, ...] = ()
        for place in (self.inner, self.encryption.keyring):
            scrubbable = capability(place, Scrubbable)
            if scrubbable is not None:
                remains += await scrubbable.scrub(owner)
        return remains

    def opened(self, place: Place) -> dict[int, Opened]:
        """Return the cache of decrypted messages at the end of a log, by sequence: every turn reads them."""
        known = self._opened.pop(place, {})
        if len(known) > 2 * OPENED_KEPT:
            known = {}
        self._opened[place] = known
        if len(self._opened) > OPENED_LOGS:
            self._opened.popitem(last=False)
        return known

    def forget(self, place: Place) -> None:
        """Drop cached data of this conversation."""
        self._opened.pop(place, None)
        self._heads.pop(place, None)
        self._ends.pop(place, None)

    def forget_owner(self, owner: str) -> None:
        known = (*self._opened, *self._ends, *self._heads)
        for place in [place for place in known if place.owner == owner]:
            self.forget(place)

    # What is known of logs, shared by all stores of this backend

    def turn(self, place: Place) -> asyncio.Lock:
        """Return the lock that serializes turns to a conversation."""
        turns = self._turns.here()
        return turns.get(place) or turns.setdefault(place, asyncio.Lock())

    def cached_end(self, place: Place) -> LogEnd | None:
        return self._ends.get(place)

    def cache_end(self, place: Place, end: LogEnd | None) -> None:
        """Remember where a log ends; None forgets it."""
        self._ends.pop(place, None)
        if end is not None:
            self._ends[place] = end
            if len(self._ends) > KNOWN_ENDS:
                self._ends.popitem(last=False)

    def cached_head(self, place: Place, sealed: str) -> Head | None:
        """The head that was opened from exactly this before."""
        known = self._heads.get(place)
        return known[1] if known is not None and known[0] == sealed else None

    def cache_head(self, place: Place, sealed: str, head: Head) -> None:
        self._heads.pop(place, None)
        self._heads[place] = sealed, head
        if len(self._heads) > KNOWN_ENDS:
            self._heads.popitem(last=False)

    def restored_head(self, place: Place) -> Head:
        """The head of a conversation that is restored in parts and has expired: the store shows none."""
        return self._restored.get(place, Head())

    def cache_restored_head(self, place: Place, head: Head) -> None:
        self._restored.pop(place, None)
        self._restored[place] = head
        if len(self._restored) > OPENED_LOGS:
            self._restored.popitem(last=False)


def encrypted(inner: Backend, encryption: Encryption) -> EncryptedBackend:
    """Wrap a backend in the encrypted layer."""
    return EncryptedBackend(inner, encryption)
