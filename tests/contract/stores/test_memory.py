"""The in-memory store is a store."""

from collections.abc import AsyncIterator

import pytest

from aforesaid.contracts import Backend
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing import FixedClock, StoreContract


class TestInMemoryStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock) -> AsyncIterator[Backend]:
        backend = InMemoryBackend(clock=clock)
        await backend.open()
        yield backend
        await backend.close()
