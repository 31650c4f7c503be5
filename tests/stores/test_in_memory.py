"""The in-memory store is a store."""

from collections.abc import AsyncIterator

import pytest

from recollect.contracts import Backend
from recollect.stores.in_memory import InMemoryBackend
from recollect.testing import FixedClock, StoreContract


class TestInMemoryStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock) -> AsyncIterator[Backend]:
        backend = InMemoryBackend(clock=clock)
        await backend.open()
        yield backend
        await backend.close()
