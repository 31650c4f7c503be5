"""A glance at SQLite: what the parts say; and what is its own: what it remembers, and for how long."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

import aforesaid
from aforesaid.contracts import Backend, LogSnapshot, parse_listing
from aforesaid.errors import StoreUnavailable
from aforesaid.layers.timed import timed
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.settings import ConversationConfig
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.database import READERS
from aforesaid.stores.sqlite.snapshots import SnapshotCache
from aforesaid.stores.sqlite.store import SQLiteStore
from aforesaid.telemetry import Telemetry
from aforesaid.testing import FixedClock, SnapshotContract
from aforesaid.testing.contract.restoring import check
from aforesaid.windows import WindowPolicy

NOTES = parse_listing("note", None, None, 3)


class TestSQLiteGlances(SnapshotContract):
    @pytest.fixture(params=["bare", "observed"])
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        file = SQLiteBackend(str(tmp_path / "memory.db"), clock=clock)
        backend = file if request.param == "bare" else timed(file, metrics=Telemetry())
        await backend.open()
        yield backend
        await backend.close()


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SQLiteBackend]:
    backend = SQLiteBackend(str(tmp_path / "memory.db"), synchronous="normal")
    await backend.open()
    yield backend
    await backend.close()


async def said(store: SQLiteStore, *texts: str) -> str:
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [Message(role="user", content=text) for text in texts])
    return record.id


async def read_snapshot(store: SQLiteStore, conversation_id: str) -> LogSnapshot:
    return await store.read_snapshot(conversation_id, front=2, tail=40, documents=NOTES)


async def test_while_nothing_is_written_the_same_glance_is_given_again(backend: SQLiteBackend) -> None:
    erin = backend.of("erin")
    kitchen, hall = await said(erin, "one", "two"), await said(erin, "three")
    seen = await read_snapshot(erin, kitchen)
    assert await read_snapshot(erin, kitchen) is seen
    await erin.append(hall, [Message(role="user", content="four")])
    assert await read_snapshot(erin, kitchen) is seen
    await erin.append(kitchen, [Message(role="user", content="five")])
    after = await read_snapshot(erin, kitchen)
    assert [entry.message.content for entry in after.tail] == ["one", "two", "five"]
    assert after.tail[0] is seen.tail[0]


async def test_what_another_process_wrote_shows_at_once(backend: SQLiteBackend) -> None:
    """A second connection to the file stands for the other process: the engine tells them apart as little."""
    erin = backend.of("erin")
    conversation_id = await said(erin, "one")
    other = SQLiteBackend(backend.path, synchronous="normal")
    await other.open()
    for number in range(5):
        await check(erin, conversation_id)
        await other.of("erin").append(conversation_id, [Message(role="user", content=f"other {number}")])
        await other.of("erin").put_document("note", f"n{number}", b"text")
        seen = await read_snapshot(erin, conversation_id)
        assert seen.tail[-1].message.content == f"other {number}"
        assert len(seen.documents) == min(number + 1, 3)
    await other.close()


async def test_two_owners_with_one_conversation_id_see_their_own(backend: SQLiteBackend) -> None:
    name = new_id()
    for owner in ("erin", "bob"):
        store = backend.of(owner)
        await store.create(started(name, now=store.now()))
        await store.append(name, [Message(role="user", content=f"from {owner}")])
        await store.put_document("note", "k", owner.encode())
    for owner in ("erin", "bob", "erin"):
        seen = await read_snapshot(backend.of(owner), name)
        assert [entry.message.content for entry in seen.tail] == [f"from {owner}"]
        assert [document.data for document in seen.documents] == [owner.encode()]


async def test_what_goes_for_good_leaves_what_is_remembered(backend: SQLiteBackend) -> None:
    erin = backend.of("erin")
    conversation_id = await said(erin, "a secret")
    await read_snapshot(erin, conversation_id)
    remembered = backend.snapshots
    await erin.delete(conversation_id)
    assert backend.snapshots is not remembered
    assert "a secret" not in repr(vars(backend.snapshots))


async def test_what_is_remembered_is_bounded(backend: SQLiteBackend) -> None:
    backend.snapshots = SnapshotCache(max_bytes=20_000)
    erin = backend.of("erin")
    first = await said(erin, "x" * 4_000)
    seen = await read_snapshot(erin, first)
    assert await read_snapshot(erin, first) is seen
    for _ in range(3):
        await read_snapshot(erin, await said(erin, "y" * 4_000))
    assert await read_snapshot(erin, first) is not seen
    await check(erin, first)


async def test_a_context_is_made_again_only_when_something_changed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    policy = WindowPolicy(max_messages=4)
    async with aforesaid.open(url, models=aforesaid.Models(embedder=None)) as memory:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        for number in range(30):
            await erin.add_message(record.id, "user", f"message {number}")
        context = await erin.load_context(record.id, policy=policy)
        assert (await erin.load_context(record.id, policy=policy)).messages is context.messages
        other = await erin.load_context(record.id, policy=WindowPolicy(max_messages=5))
        assert len(other) == 5
        pending = erin.intake.messages([{"role": "user", "content": "and now?"}])
        asked = await erin.load_context(record.id, policy=policy, pending=pending)
        assert asked[-1]["content"] == "and now?"
        await erin.remember("The bedroom lights are dim at 9 pm")
        noted = await erin.load_context(record.id, policy=policy)
        assert len(noted.report.notes) == 1
        await erin.add_message(record.id, "user", "the last")
        assert (await erin.load_context(record.id, policy=policy))[-1]["content"] == "the last"


async def test_a_window_that_needed_more_than_a_glance_is_made_again(tmp_path: Path) -> None:
    """Part of it was read apart, so an unchanged glance says nothing of that part."""
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db", models=aforesaid.Models(embedder=None)
    ) as memory:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        said = [
            Message(role="user", content=f"word {number}", message_id=f"m{number}") for number in range(300)
        ]
        await erin.append(record.id, said)
        policy = WindowPolicy(max_tokens=1_000)
        before = await erin.load_context(record.id, policy=policy)
        oldest = before.messages[0]
        await erin.store.replace(record.id, oldest.with_(content="redacted"))
        after = await erin.load_context(record.id, policy=policy)
        assert after.messages[0].content == "redacted"


async def test_what_fails_at_once_is_asked_for_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db", models=aforesaid.Models(embedder=None)
    ) as memory:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(record.id, "user", "hello")
        await erin.remember("The bedroom lights are dim at 9 pm")
        monkeypatch.setattr(SQLiteStore, "read_snapshot", fail)
        context = await erin.load_context(record.id)
        assert not context.report.degraded
        assert len(context.report.notes) == 1
        monkeypatch.setattr(SQLiteStore, "documents", fail)
        erin.notes_cache.drop("erin")
        context = await erin.load_context(record.id)
        assert [message["content"] for message in context] == ["hello"]
        assert any("notes could not be read" in warning for warning in context.report.warnings)
        monkeypatch.setattr(SQLiteStore, "tail", fail)
        assert (await erin.load_context(record.id)).report.degraded


async def test_a_reader_who_does_not_answer_does_not_keep_an_agent_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db", models=aforesaid.Models(embedder=None)
    ) as memory:
        erin = memory.of("erin")
        monkeypatch.setattr(ConversationConfig, "context_deadline", 0.02)  # shorter than a setting can be
        record = await erin.get_or_create_conversation("kitchen")
        held = threading.Event()
        backend = cast(SQLiteBackend, memory.backend)
        blocked = [asyncio.create_task(backend.readers.run(lambda _: held.wait(30))) for _ in range(READERS)]
        await asyncio.sleep(0)  # they are in the queue now, before what is asked for next
        try:
            context = await erin.load_context(record.id)
        finally:
            held.set()
            await asyncio.gather(*blocked)
        assert context.report.degraded
        assert "did not answer within" in context.report.warnings[0]
