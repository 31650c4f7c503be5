"""The in-memory store, the reference for every other store. Its data ends with the process."""

from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from typing import TypeVar

from aforesaid.contracts import Backend
from aforesaid.errors import StoreClosed
from aforesaid.model.clock import Clock, parse_moment, system_clock
from aforesaid.model.conversations import check_count
from aforesaid.model.ids import parse_name
from aforesaid.stores._arguments import Address
from aforesaid.stores.owner_data import OwnerData
from aforesaid.stores.owner_data_store import OwnerDataStore

T = TypeVar("T")


def backend(address: Address, clock: Clock) -> "InMemoryBackend":
    """Open `memory://`. The option `?max_messages=N` limits each conversation to its newest N messages."""
    options = address.take(max_messages=int)
    return InMemoryBackend(clock=clock, **options)  # type: ignore[arg-type]


class InMemoryBackend(Backend):
    """All data in dictionaries, for one event loop. `max_messages` drops a conversation's oldest messages
    beyond that number."""

    def __init__(self, *, clock: Clock = system_clock, max_messages: int | None = None) -> None:
        if max_messages is not None:
            check_count(max_messages, field="max_messages", least=1)
        self.clock = clock
        self.max_messages = max_messages
        self.closed = False
        self.data_by_owner: dict[str, OwnerData] = {}

    async def open(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def of(self, owner: str) -> "InMemoryStore":
        return InMemoryStore(self, parse_name(owner, field="owner"))

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        for owner, owner_data in sorted(self.data_by_owner.items()):
            if owner_data.holds_anything(ignored_kinds=ignored_kinds):
                yield owner

    async def purge_expired(self, now: datetime | None = None) -> int:
        self.check_open()
        moment = self.clock() if now is None else parse_moment(now, field="now")
        return sum(owner_data.purge_expired(now=moment) for owner_data in self.data_by_owner.values())

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed


class InMemoryStore(OwnerDataStore):
    """One owner's store. No method waits for anything, so each is atomic."""

    def __init__(self, backend: InMemoryBackend, owner: str) -> None:
        self._backend = backend
        self._owner = owner

    @property
    def owner(self) -> str:
        return self._owner

    def now(self) -> datetime:
        return self._backend.clock()

    def _data(self) -> OwnerData:
        self._backend.check_open()
        return self._backend.data_by_owner.get(self._owner) or OwnerData()

    async def _write(self, work: Callable[[OwnerData], T]) -> T:
        self._backend.check_open()
        owners = self._backend.data_by_owner
        data = owners.get(self._owner) or OwnerData(max_messages=self._backend.max_messages)
        result = work(data)
        # A failed or empty write of an unknown owner leaves no entry behind.
        if data.holds_anything():
            owners[self._owner] = data
        return result
