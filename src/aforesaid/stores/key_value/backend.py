"""The backend: what a subclass implements, and the locks of its owners."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import Backend
from aforesaid.errors import StoreClosed
from aforesaid.model.clock import Clock, parse_moment, system_clock
from aforesaid.model.ids import LONGEST_NAME, parse_name
from aforesaid.stores.key_value.rows import Rows
from aforesaid.stores.key_value.store import KeyValueStore

T = TypeVar("T")

_AFTER_ALL_KEYS = "\U0010ffff" * (LONGEST_NAME + 1)
"""Sorts after every key: a key starts with an owner's name, which may consist of the last code point."""


class KeyValueBackend(Backend):
    """A backend over ordered keys, for one process. Subclasses implement `read`, `scan` and `write`, and open
    and close what they need in `connect` and `disconnect`.
    """

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self.clock = clock
        self._is_open = False
        self._locks: PerLoop[WeakValueDictionary[str, asyncio.Lock]] = PerLoop(WeakValueDictionary)
        self._writes: set[asyncio.Task[Any]] = set()

    # What a subclass implements

    async def connect(self) -> None:
        """Open the storage."""

    async def disconnect(self) -> None:
        """Close the storage."""

    @abstractmethod
    async def read(self, keys: Sequence[str]) -> Rows:
        """Return the rows with these keys, without those that are missing."""

    @abstractmethod
    async def scan(self, first: str, last: str, *, limit: int = -1, descending: bool = False) -> Rows:
        """Return the rows with `first <= key < last`, sorted by key (by code point).

        At most `limit` rows; -1 means all.
        """

    @abstractmethod
    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Store these rows durably, all or none. None deletes a row."""

    # A backend

    async def open(self) -> None:
        if not self._is_open:
            await self.connect()
            self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await asyncio.gather(*self._writes, return_exceptions=True)  # of cancelled callers
            await self.disconnect()

    def of(self, owner: str) -> "KeyValueStore":
        return KeyValueStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        self.check_open()
        after = ""
        # The first row names the owner; the next scan skips the owner's other rows.
        while rows := await self.scan(after, _AFTER_ALL_KEYS, limit=1):
            owner = next(iter(rows)).partition("\0")[0]
            if await self.of(owner).holds_anything(ignored_kinds=ignored_kinds):
                yield owner
            after = f"{owner}\1"

    async def purge_expired(self, now: datetime | None = None) -> int:
        self.check_open()
        moment = self.clock() if now is None else parse_moment(now, field="now")
        return sum([await self.of(owner).purge(moment) async for owner in self.owners()])

    # For its stores

    def check_open(self) -> None:
        if not self._is_open:
            raise StoreClosed

    def lock(self, owner: str) -> asyncio.Lock:
        """Return the lock that serializes the owner's writes."""
        locks = self._locks.here()
        return locks.get(owner) or locks.setdefault(owner, asyncio.Lock())

    async def finish(self, write: "asyncio.Task[T]") -> T:
        """Await a write. It continues when the caller is cancelled, because the next write must see all of it
        or nothing.
        """
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        return await asyncio.shield(write)
