"""Search in SQLite is search; and what is its own: the tables, catching up, leaving no trace."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect.contracts import Backend
from recollect.stores.sqlite import SQLiteBackend
from recollect.testing import FixedClock, SearchContract


class TestSQLiteSearch(SearchContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        backend = SQLiteBackend(str(tmp_path / "memory.db"), clock=clock)
        await backend.open()
        yield backend
        await backend.close()
