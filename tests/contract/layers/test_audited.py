"""The audit layer is a store, and notes what goes through it: who, what, whose, when, from where."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import aforesaid
from aforesaid.audit import AuditTrail, Event, check_trail, read_trail
from aforesaid.contracts import (
    JOURNAL,
    Backend,
    Migratable,
    Searchable,
    SnapshotReader,
    VectorSearchable,
    Watchable,
    audit_action,
    capability,
    parse_listing,
)
from aforesaid.encryption import MasterKeys
from aforesaid.errors import ConversationNotFound, InvalidId, MessageConflict
from aforesaid.layers.audited import AuditedBackend, audited
from aforesaid.layers.build import layered
from aforesaid.model.conversations import Changes, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.retention.erasure import KIND, Intent
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing import FixedClock, SnapshotContract, StoreContract, store_machine
from tests.builders import FEATURE_STORES, STORES
from tests.encrypted_stores import MASTER, inner_for
from tests.examples import examples


class TestAuditedStore(StoreContract):
    @pytest.fixture(params=FEATURE_STORES)
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        inner = inner_for(request.param, tmp_path, request, clock)
        backend = audited(inner, AuditTrail(tmp_path / "audit.jsonl", sync="never"))
        await backend.open()
        yield backend
        await backend.close()


class TestAuditedSnapshots(SnapshotContract):
    @pytest.fixture
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        inner = inner_for("sqlite", tmp_path, request, clock)
        backend = audited(inner, AuditTrail(tmp_path / "audit.jsonl", sync="never"))
        await backend.open()
        yield backend
        await backend.close()


def test_random_operations_under_audit_and_encryption_answer_as_the_model_does(tmp_path: Path) -> None:
    def make(clock: FixedClock) -> Backend:
        trail = AuditTrail(tmp_path / "audit.jsonl", sync="never")
        return layered(
            InMemoryBackend(clock=clock),
            "memory://",
            aforesaid.Layers(encryption=MasterKeys(MASTER), audit=trail),
        )

    run_state_machine_as_test(
        store_machine(make),
        settings=settings(examples(30), stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
    assert check_trail(tmp_path / "audit.jsonl").is_sound


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
async def backend(path: Path, clock: FixedClock) -> AsyncIterator[AuditedBackend]:
    backend = audited(InMemoryBackend(clock=clock), AuditTrail(path, clock=clock))
    await backend.open()
    yield backend
    await backend.close()


async def noted(path: Path) -> list[Event]:
    return await asyncio.to_thread(lambda: [line.event for line in read_trail(path)])


async def test_everything_is_noted_under_the_name_of_who_did_it(
    backend: AuditedBackend, path: Path, clock: FixedClock
) -> None:
    store = backend.acting_as("support", source="10.0.0.7").of("erin")
    record = await store.create(started(new_id(), now=clock()))
    await store.append(record.id, [Message(role="user", content="secret"), Message(role="tool", content="x")])
    await store.tail(record.id, limit=1)
    await store.find(Query())
    await store.update(record.id, Changes(subject="secret"))
    await store.put_document("notes", "secret", b"secret")
    await store.delete(record.id)
    await store.clear()
    events = await noted(path)
    assert {(event.actor, event.source, event.at) for event in events} == {("support", "10.0.0.7", clock())}
    assert [(event.action, event.owner, event.conversation, event.count) for event in events] == [
        ("create", "erin", record.id, 0),
        ("append", "erin", record.id, 2),
        ("read", "erin", record.id, 1),
        ("list", "erin", "", 1),
        ("update", "erin", record.id, 0),
        ("put document", "erin", "", 1),
        ("delete", "erin", record.id, 0),
        ("clear", "erin", "", 0),
    ]
    assert b"secret" not in await asyncio.to_thread(path.read_bytes)


async def test_what_is_not_theirs_or_not_there_is_noted_as_denied(
    backend: AuditedBackend, path: Path, clock: FixedClock
) -> None:
    record = await backend.of("erin").create(started(new_id(), now=clock()))
    mallory = backend.acting_as("mallory").of("mallory")
    assert await mallory.get(record.id) is None
    with pytest.raises(ConversationNotFound):
        await mallory.page(record.id, limit=9)
    with pytest.raises(ConversationNotFound):
        await mallory.append(record.id, [Message(role="user", content="x")])
    with pytest.raises(InvalidId):
        await mallory.page("the secret word, in place of an id\0", limit=9)
    assert [(e.action, e.outcome, e.conversation, e.error) for e in (await noted(path))[1:]] == [
        ("look", "denied", record.id, ""),
        ("read", "denied", record.id, "ConversationNotFound"),
        ("append", "denied", record.id, "ConversationNotFound"),
        ("read", "failed", "not an id", "InvalidId"),
    ]


async def test_what_fails_is_noted_by_its_kind_only(
    backend: AuditedBackend, path: Path, clock: FixedClock
) -> None:
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=clock()))
    await store.append(record.id, [Message(role="user", content="a", message_id="the secret id")])
    with pytest.raises(MessageConflict):
        await store.append(record.id, [Message(role="user", content="b", message_id="the secret id")])
    last = (await noted(path))[-1]
    assert (last.actor, last.outcome, last.error) == ("application", "failed", "MessageConflict")
    assert b"secret" not in await asyncio.to_thread(path.read_bytes)


async def test_what_operators_do_is_noted(backend: AuditedBackend, path: Path, clock: FixedClock) -> None:
    await backend.of("erin").create(started(new_id(), now=clock()))
    assert [owner async for owner in backend.owners()] == ["erin"]
    await backend.purge_expired()
    assert [(e.action, e.owner, e.count) for e in (await noted(path))[1:]] == [
        ("owners", "", 1),
        ("purge", "", 0),
    ]


async def test_what_is_done_above_the_store_can_be_noted(backend: AuditedBackend, path: Path) -> None:
    await audit_action(backend.of("erin"), "export", count=12)
    await audit_action(InMemoryBackend().of("erin"), "export")
    (event,) = await noted(path)
    assert (event.action, event.owner, event.count) == ("export", "erin", 12)


async def test_a_memory_acts_for_a_person_and_its_trail_outlives_what_was_erased(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db",
        layers=aforesaid.Layers(audit=path),
        models=aforesaid.Models(preload=False),
    ) as memory:
        erin = memory.acting_as("the kitchen", source="speaker 2").of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(record.id, "user", "the alarm code is marzipan")
        await erin.load_context(record.id)
        await memory.acting_as("erin").of("erin").store.clear()
        events = await noted(path)
    assert {event.actor for event in events} >= {"the kitchen", "erin"}
    assert [event.action for event in events if event.actor == "erin"] == ["clear"]
    assert any(event.action == "read" and event.count == 1 for event in events)
    text = await asyncio.to_thread(path.read_bytes)
    assert b"marzipan" not in text
    assert record.id.encode() in text
    assert (await asyncio.to_thread(check_trail, path)).is_sound


async def test_searches_exports_and_erasures_are_noted_without_what_they_were_about(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db",
        layers=aforesaid.Layers(audit=path),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        erin = memory.acting_as("erin").of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(record.id, "user", "the oven is at 200 degrees")
        assert len(await erin.search_history("oven")) == 1
        await erin.search_conversations("oven")
        await erin.export(tmp_path / "mine")
        await erin.erase(record.id)
        await erin.erase()
        events = await noted(path)
    found = [(event.action, event.owner, event.count) for event in events if event.actor == "erin"]
    assert ("search", "erin", 1) in found
    assert [one[0] for one in found].count("search") == 2
    assert ("export", "erin") in {one[:2] for one in found}
    erased = [(event.conversation, event.actor) for event in events if event.action == "erase"]
    assert erased == [(record.id, "erin"), ("", "erin")]
    text = await asyncio.to_thread(path.read_bytes)
    assert b"oven" not in text
    assert (await asyncio.to_thread(check_trail, path)).is_sound


async def test_an_erasure_that_was_resumed_is_noted_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    url = f"sqlite:///{tmp_path}/memory.db"
    async with aforesaid.open(
        url, layers=aforesaid.Layers(audit=path), models=aforesaid.Models(embedder=None)
    ) as memory:
        record = await memory.of("erin").get_or_create_conversation("kitchen")
        intent = Intent(owner="erin", conversation_id=record.id, started_at=record.created_at)
        await memory.backend.of(JOURNAL).put_document(KIND, intent.key, msgspec.json.encode(intent))
    async with aforesaid.open(
        url, layers=aforesaid.Layers(audit=path), models=aforesaid.Models(embedder=None)
    ):
        events = await noted(path)
    assert [(one.owner, one.conversation) for one in events if one.action == "erase"] == [("erin", record.id)]


async def test_a_window_that_is_read_in_one_step_is_recorded_with_its_documents(
    tmp_path: Path, path: Path, request: pytest.FixtureRequest, clock: FixedClock
) -> None:
    backend = audited(inner_for("sqlite", tmp_path, request, clock), AuditTrail(path, clock=clock))
    await backend.open()
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=clock()))
    await store.append(record.id, [Message(role="user", content=f"message {number}") for number in range(5)])
    await store.put_document("notes", "tea", b"secret")
    reader = capability(store, SnapshotReader)
    assert reader is not None
    await reader.read_snapshot(record.id, front=2, tail=4, documents=parse_listing("notes", None, None, 9))
    await reader.read_snapshot(record.id, front=1, tail=0, documents=parse_listing("notes", None, None, 0))
    missing = new_id()
    with pytest.raises(ConversationNotFound):
        await reader.read_snapshot(missing, front=1, tail=1, documents=parse_listing("notes", None, None, 9))
    await backend.close()
    events = await noted(path)
    assert [(one.action, one.conversation, one.outcome, one.count) for one in events[3:]] == [
        ("read", record.id, "done", 5),
        ("read documents", "", "done", 1),
        ("read", record.id, "done", 1),
        ("read", missing, "denied", 0),
    ]


async def test_without_a_trail_acting_as_a_person_changes_nothing() -> None:
    async with aforesaid.open(models=aforesaid.Models(preload=False)) as memory:
        assert memory.acting_as("erin") is memory


@pytest.mark.parametrize("store", STORES)
async def test_powers_are_handed_on(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, clock: FixedClock
) -> None:
    inner = inner_for(store, tmp_path, request, clock)
    backend = audited(inner, AuditTrail(tmp_path / "audit.jsonl"))
    assert (capability(backend, Migratable) is None) == (capability(inner, Migratable) is None)
    for power in (Watchable, Searchable, VectorSearchable):
        assert (capability(backend.of("erin"), power) is None) == (
            capability(inner.of("erin"), power) is None
        )
