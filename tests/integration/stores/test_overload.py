"""Overload: queues are bounded; a caller that waits too long gets an error, and others lose nothing."""

import asyncio
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aforesaid.contracts import Appended, Backend
from aforesaid.errors import Overloaded
from aforesaid.layers.resilient.spool import Ref, Spool
from aforesaid.layers.resilient.spool import writer as spool_writer
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores._worker import Slots
from aforesaid.stores.json_file.backend import OwnerJob
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres import connections as postgres_connections
from aforesaid.stores.redis import connections as redis_connections
from aforesaid.stores.sqlite import workers
from aforesaid.stores.urls import backend_for

json_backend = import_module("aforesaid.stores.json_file.backend")  # the package has a function `backend`


async def conversation(backend: Backend) -> Conversation:
    store = backend.of("erin")
    return await store.create(started(new_id(), now=store.now()))


def user(content: object) -> Message:
    return Message(role="user", content=content)


async def test_slots_refuse_a_caller_that_waits_too_long() -> None:
    slots = Slots("the disk", limit=2, max_waiting=3, timeout=0.01)
    taken = [await slots.enter(), await slots.enter()]
    with pytest.raises(Overloaded, match="the disk: no slot became free"):
        await slots.enter()
    for slot in taken:
        slot.release()


async def test_slots_limit_the_number_of_waiting_callers() -> None:
    slots = Slots("the disk", limit=2, max_waiting=3, timeout=30.0)
    taken = [await slots.enter(), await slots.enter()]
    waiting = [asyncio.create_task(slots.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="3 callers are waiting already"):
        await slots.enter()
    for slot in taken:
        slot.release()
    for task in waiting:
        (await task).release()


async def test_a_cancelled_caller_takes_no_slot() -> None:
    slots = Slots("the disk", limit=1, max_waiting=9, timeout=9.0)
    slot = await slots.enter()
    waiting = asyncio.create_task(slots.enter())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    slot.release()
    (await slots.enter()).release()


@pytest.mark.parametrize("module", [workers, json_backend], ids=["sqlite", "file"])
async def test_embedded_stores(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 4)
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    url = f"sqlite:///{tmp_path}/memory.db" if module is workers else f"file://{tmp_path}/memory.json"
    backend = backend_for(url)
    await backend.open()
    blocked = threading.Event()
    writer: Any = getattr(backend, "_writer")  # noqa: B009
    if module is workers:
        holding = asyncio.create_task(writer.run(lambda db: blocked.wait(120)))
    else:
        holding = asyncio.create_task(writer.run(OwnerJob("erin", lambda data: blocked.wait(120))))
    await asyncio.sleep(0)
    await _ask_for_too_much(backend, blocked)
    await holding
    await backend.close()


async def _ask_for_too_much(backend: Backend, blocked: threading.Event) -> None:
    """Ask for more than there are places: some are refused, and none is half done."""
    store = backend.of("erin")
    fresh = [started(new_id(), now=store.now()) for _ in range(40)]
    tasks = [asyncio.create_task(store.create(one)) for one in fresh]
    done, _ = await asyncio.wait(tasks, timeout=120, return_when=asyncio.FIRST_EXCEPTION)
    assert any(isinstance(task.exception(), Overloaded) for task in done)
    blocked.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Conversation | Overloaded) for result in results)
    for one, result in zip(fresh, results, strict=True):
        assert (await store.get(one.id) is not None) == isinstance(result, Conversation)


async def test_redis(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_connections, "MAX_WAITING", 5)
    backend = backend_for(f"{redis_url}?max_connections=1")
    await backend.open()
    record = await conversation(backend)
    store = backend.of("erin")
    results = await asyncio.gather(
        *(store.append(record.id, [user(number)]) for number in range(30)), return_exceptions=True
    )
    assert any(isinstance(result, Overloaded) for result in results)
    stored = {entry.message.content for entry in await store.page(record.id, limit=99)}
    assert stored == {number for number, result in enumerate(results) if isinstance(result, Appended)}
    await backend.close()


async def test_postgres(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connections, "MAX_WAITING", 5)
    backend = PostgresBackend(postgres_url, max_connections=1)
    await backend.open()
    record = await conversation(backend)
    store = backend.of("erin")
    results = await asyncio.gather(
        *(store.append(record.id, [user(number)]) for number in range(30)), return_exceptions=True
    )
    assert any(isinstance(result, Overloaded) for result in results)
    stored = {entry.message.content for entry in await store.page(record.id, limit=99)}
    assert stored == {number for number, result in enumerate(results) if isinstance(result, Appended)}
    await store.delete(record.id)
    await backend.close()


async def test_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "MOST_WAITING", 4)
    spool = Spool(tmp_path, limit=10**6, deadline=0.02)
    blocked = threading.Event()
    holding = asyncio.create_task(spool._call(lambda: blocked.wait(120)))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(spool.write(b"x", lambda ref: ref)) for _ in range(20)]
    done, _ = await asyncio.wait(tasks, timeout=120, return_when=asyncio.FIRST_EXCEPTION)
    assert any(isinstance(task.exception(), Overloaded) for task in done)
    blocked.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await holding
    kept = [result for result in results if isinstance(result, Ref)]
    assert 4 <= len(kept) < 20
    assert await spool.read(kept) == [b"x"] * len(kept)
    await spool.close()
