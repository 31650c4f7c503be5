"""The store that `docs/how-to/write-a-store.md` shows is a store, in about fifty lines."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import aforesaid
from aforesaid.contracts import Backend
from aforesaid.errors import StoreDamaged, StoreUnavailable
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.key_value import KeyValueBackend
from aforesaid.testing import FixedClock, StoreContract, store_machine
from tests.encrypted_stores import sealed_backend

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-store.md"


def block_of_the_page() -> str:
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


_names: dict[str, Any] = {}
exec(compile(block_of_the_page(), str(PAGE), "exec"), _names)
TableBackend = _names["TableBackend"]


def test_about_fifty_lines_suffice() -> None:
    lines = [line for line in block_of_the_page().splitlines() if line.strip()]
    assert len(lines) <= 55


class TestTableStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        backend = TableBackend(f"{tmp_path}/table.db", clock=clock)
        await backend.open()
        yield backend
        await backend.close()


@pytest.mark.exhaustive
class TestSealedTableStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        backend = sealed_backend(TableBackend(f"{tmp_path}/table.db", clock=clock))
        await backend.open()
        yield backend
        await backend.close()


# Sealed, because the contract runs on the plain one.
TestMachine = store_machine(lambda clock: sealed_backend(TableBackend(":memory:", clock=clock))).TestCase
TestMachine.settings = settings(max_examples=20, deadline=None)


class Counting(KeyValueBackend):
    """Rows in a dictionary, which counts those that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, bytes] = {}
        self.rows_read = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, keys: Any) -> dict[str, bytes]:
        return self._counted({key: self.rows[key] for key in keys if key in self.rows})

    async def scan(
        self, first: str, last: str, *, limit: int = -1, descending: bool = False
    ) -> dict[str, bytes]:
        keys = sorted((key for key in self.rows if first <= key < last), reverse=descending)
        return self._counted({key: self.rows[key] for key in (keys if limit < 0 else keys[:limit])})

    async def write(self, changes: Any) -> None:
        await self.gate.wait()
        for key, row in changes.items():
            if row is None:
                del self.rows[key]
            else:
                self.rows[key] = row

    def _counted(self, rows: dict[str, bytes]) -> dict[str, bytes]:
        self.rows_read += len(rows)
        return rows


def said(content: str, **fields: Any) -> Message:
    return Message(role="user", content=content, **fields)


async def test_an_append_reads_no_more_in_a_long_log() -> None:
    backend = Counting()
    await backend.open()
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    read = []
    for number in range(50):
        before = backend.rows_read
        await store.append(record.id, [said("hello", message_id=f"m{number}")])
        read.append(backend.rows_read - before)
    assert set(read) == {1}
    before = backend.rows_read
    assert len(await store.tail(record.id, limit=3)) == 3
    assert backend.rows_read - before == 4


async def test_the_next_turn_waits_for_one_that_was_cancelled() -> None:
    backend = Counting()
    await backend.open()
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    backend.gate.clear()
    cancelled = asyncio.ensure_future(store.append(record.id, [said("first")]))
    await asyncio.sleep(0)
    cancelled.cancel()
    following = asyncio.ensure_future(store.append(record.id, [said("second")]))
    await asyncio.wait([cancelled])
    backend.gate.set()
    await following
    entries = await store.page(record.id, limit=9)
    assert [(one.sequence, one.message.content) for one in entries] == [(1, "first"), (2, "second")]
    await backend.close()


async def test_a_damaged_row_is_an_error_of_ours() -> None:
    backend = Counting()
    await backend.open()
    record = await backend.of("erin").create(started(new_id(), now=backend.clock()))
    for row in (b"", b"{}", b"\xff"):
        backend.rows[f"erin\0c\0{record.id}"] = row
        with pytest.raises(StoreDamaged, match="damaged"):
            await backend.of("erin").get(record.id)


async def test_the_page_s_store_reports_its_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await TableBackend(f"{tmp_path}/missing/table.db").open()


async def test_a_memory_uses_it(tmp_path: Path) -> None:
    async with aforesaid.Memory(TableBackend(f"{tmp_path}/table.db")) as memory:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        async with erin.turn(record.id) as turn:
            turn.user("where are the spare keys?")
            turn.assistant("In the blue drawer.")
        assert "blue drawer" in (await erin.search_history("spare keys"))[0]
