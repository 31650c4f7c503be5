"""The memory that an export and an import need, in a process that does nothing else.

In the process of a test run, threads and garbage of other tests would count too.
"""

import asyncio
import gc
import tracemalloc
from pathlib import Path

from aforesaid.contracts import Backend
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.transfer import export, import_
from tests.processes.forking import failure_of
from tests.unit.transfer.lives import everything, user

FILE = 12_000_000
PEAK = 6_000_000


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    assert failure_of(_move, tmp_path) == ""


def _move(folder: Path) -> None:
    asyncio.run(_export_and_import(folder))


async def _export_and_import(folder: Path) -> None:
    source, target = (SQLiteBackend(str(folder / name)) for name in ("source.db", "target.db"))
    await source.open()
    await target.open()
    await _fill(source)
    path = folder / "export.jsonl"
    peak = await _peak(source, target, path)
    assert path.stat().st_size > FILE
    assert peak < PEAK, peak
    assert await everything(target) == await everything(source)
    await source.close()
    await target.close()


async def _fill(source: Backend) -> None:
    store = source.of("erin")
    for _ in range(24):  # few and long messages: tracing takes its time at each allocation
        record = await store.create(started(new_id(), now=store.now()))
        await store.append(record.id, [user("x" * 5000) for _ in range(100)])


async def _peak(source: Backend, target: Backend, path: Path) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        with path.open("wb") as file:
            await export(source, file)
        with path.open("rb") as file:
            await import_(file, target)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
