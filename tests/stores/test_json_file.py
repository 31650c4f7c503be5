"""The JSON file store is a store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect.contracts import Backend
from recollect.stores.json_file import JsonFileBackend
from recollect.testing import FixedClock, StoreContract


class TestJsonFileStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        backend = JsonFileBackend(tmp_path / "conversations.json", clock=clock)
        await backend.open()
        yield backend
        await backend.close()
