"""The backend, and what is known of logs and keys by all of its stores. Above: `recollect.layers`."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from datetime import datetime
from weakref import WeakValueDictionary

from recollect.arguments import CheckedFields
from recollect.contracts import (
    Backend,
    Erasing,
    Glancing,
    Holds,
    LogEnd,
    Migrated,
    Watchable,
)
from recollect.ids import parse_name
from recollect.keys import KeyProvider
from recollect.layers.encrypted.glances import GlancingStore
from recollect.layers.encrypted.store import EncryptedStore
from recollect.layers.keyring import KIND, Keyring
from recollect.layers.powers import with_powers_of
from recollect.layers.sealing import Opened, Place, warm

KNOWN_ENDS = 10_000
"""Conversations whose end is remembered, so that a turn need not ask for it."""
OPENED_LOGS = 256
"""Conversations of which the last messages are kept open in memory, and no longer than they are in use."""
OPENED_KEPT = 256
"""Messages of each that are kept open, and twice as many before they are let go."""

STORE_POWERS = (Watchable,)
BACKEND_POWERS = (Migrated, Holds)


class Encryption(CheckedFields, frozen=True, kw_only=True):
    """How a memory is encrypted."""

    master: KeyProvider
    """Who has the master key."""
    records: bool = False
    """Whether subject, client name, notes and tags of conversations are sealed too."""
    keyring: Backend | None = None
    """Where data keys are kept; without it, beside the data. Kept apart, a backup of the data is unreadable
    once an owner's key is dropped."""


class EncryptedBackend(Backend):
    """A backend in which everything that says something is sealed."""

    def __init__(self, inner: Backend, encryption: Encryption) -> None:
        self._inner = inner
        self.encryption = encryption
        keys_in = encryption.keyring or inner
        self.keyring = Keyring(encryption.master, keys_in.of)
        self._ends: OrderedDict[Place, LogEnd] = OrderedDict()
        self._opened: OrderedDict[Place, dict[int, Opened]] = OrderedDict()
        self._turns: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    @property
    def inner(self) -> Backend:
        """What is inside: the store that sees ciphertext."""
        return self._inner

    async def open(self) -> None:
        warming = asyncio.ensure_future(asyncio.to_thread(warm))
        try:
            await self._inner.open()
        finally:
            await warming
        if self.encryption.keyring is not None:
            await self.encryption.keyring.open()

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            if self.encryption.keyring is not None:
                await self.encryption.keyring.close()

    def of(self, owner: str) -> EncryptedStore:
        inner = self._inner.of(owner)
        kind = GlancingStore if isinstance(inner, Glancing) else EncryptedStore
        return with_powers_of(inner, kind(self, parse_name(owner, field="owner"), inner), STORE_POWERS)

    def owners(self, *, beside: Collection[str] = ()) -> AsyncIterator[str]:
        return self._inner.owners(beside={*beside, KIND})

    async def purge_expired(self, now: datetime | None = None) -> int:
        return await self._inner.purge_expired(now)

    async def scrub(self, owner: str) -> tuple[str, ...]:
        """Have the store scrub its files, and a keyring of its own too; returns what remains in either. See
        `contracts.Erasing`."""
        remains: tuple[str, ...] = ()
        for place in (self._inner, self.encryption.keyring):
            if isinstance(place, Erasing):
                remains += await place.scrub(owner)
        return remains

    def opened(self, place: Place) -> dict[int, Opened]:
        """Messages at the end of a log that were opened before, by sequence: windows read them each turn."""
        known = self._opened.pop(place, {})
        if len(known) > 2 * OPENED_KEPT:
            known = {}
        self._opened[place] = known
        if len(self._opened) > OPENED_LOGS:
            self._opened.popitem(last=False)
        return known

    def forget(self, place: Place) -> None:
        """Remember nothing of this conversation."""
        self._opened.pop(place, None)
        self._ends.pop(place, None)

    def forget_owner(self, owner: str) -> None:
        for place in [place for place in (*self._opened, *self._ends) if place.owner == owner]:
            self.forget(place)

    # What is known of logs, shared by all stores of this backend

    def turn(self, place: Place) -> asyncio.Lock:
        """One turn at a time for each conversation."""
        return self._turns.setdefault(place, asyncio.Lock())

    def known_end(self, place: Place) -> LogEnd | None:
        return self._ends.get(place)

    def know_end(self, place: Place, end: LogEnd | None) -> None:
        """Remember where a log ends; None forgets it."""
        self._ends.pop(place, None)
        if end is not None:
            self._ends[place] = end
            if len(self._ends) > KNOWN_ENDS:
                self._ends.popitem(last=False)


def encrypted(inner: Backend, encryption: Encryption) -> EncryptedBackend:
    """The backend, encrypted, with every power of what is inside that still makes sense."""
    return with_powers_of(inner, EncryptedBackend(inner, encryption), BACKEND_POWERS)
