"""Operations that need all data: complete, or refused without any change, wherever the store fails."""

import inspect
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from aforesaid import Models, Retention, transfer
from aforesaid._internal.freshness import noting_freshness
from aforesaid.encryption import MasterKeys
from aforesaid.errors import Conflict, StoreUnavailable
from aforesaid.layers.encrypted import EncryptedBackend, Encryption, encrypted, rotation
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.model.conversations import Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.lifetimes import Archiving
from aforesaid.model.messages import Message
from aforesaid.stores.blobs import InMemoryBlobs, purge_blobs
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.transfer.archives import ArchiveFolder
from tests.encrypted_stores import MASTER
from tests.faults import Fault
from tests.unit.layers.conftest import LayerSetup

MANY = 16
BACKLOG = 4


def user(content: str) -> Message:
    return Message(role="user", content=content)


SECRET = user("The code of the safe is 4711")
"""In a note, in a conversation that the layer knows in part, in one that it does not know, in the backlog."""


class Replaying(LayerSetup):
    """A store that is back, while the layer still holds a backlog of acknowledged turns.

    Erin has a long conversation, of which the layer knows the end, one that it does not know, and one with
    the backlog. Bob has one that the layer does not know at all.
    """

    async def begin(self) -> None:
        self.memory_of_before = Memory(
            self.layer,
            retention=Retention(sweep_every=None),
            models=Models(preload=False, embedder=None),
        )
        before = self.memory_of_before.of("erin")
        self.long = (await before.get_or_create_conversation("long")).id
        self.unknown = (await before.get_or_create_conversation("unknown")).id
        self.busy = (await before.get_or_create_conversation("busy")).id
        bob = self.memory_of_before.of("bob")
        self.bobs = (await bob.get_or_create_conversation("kitchen")).id
        await before.append(self.long, [user(f"long {n}") for n in range(MANY - 1)])
        await before.append(self.long, [SECRET.with_(message_id="secret")])
        await before.append(self.unknown, [SECRET])
        await before.remember(str(SECRET.content), subject="safe")
        await bob.append(self.bobs, [user("bob")])
        await self.layer.close()
        await self.memory.open()
        self.layer = self.make()
        await self.layer.open()

    async def spool(self) -> None:
        erin = Memory(
            self.layer,
            retention=Retention(sweep_every=None),
            models=Models(preload=False, embedder=None),
        ).of("erin")
        await erin.store.tail(self.long, limit=2)
        await erin.store.get(self.long)
        self.failing.down()
        for number in range(BACKLOG):
            await erin.append(self.busy, [SECRET if number == 1 else user(f"busy {number}")])

    async def probe(self) -> None:
        """The store is back; nothing of the backlog is stored yet."""
        self.failing.up()
        self.seconds.now += 60
        assert await self.layer.connection.probe()
        assert self.layer.queues


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move conversations in several parts, so that each can be the last."""
    monkeypatch.setattr("aforesaid.transfer.imports.CHUNK", 7)
    monkeypatch.setattr("aforesaid.transfer.conversations.CHUNK", 7)


@pytest.fixture
async def replaying(tmp_path: Path) -> AsyncIterator[Replaying]:
    setup = Replaying(tmp_path / "spool")
    await setup.layer.open()
    await setup.begin()
    await setup.spool()
    await setup.probe()
    yield setup
    await setup.layer.close()


def memory_of(setup: LayerSetup, folder: Path) -> Memory:
    return Memory(
        setup.layer,
        retention=Retention(sweep_every=None, archives=ArchiveFolder(folder / "archives")),
        models=Models(preload=False, embedder=None),
    )


# The defects


async def test_archiving_during_a_replay_archives_everything(replaying: Replaying, tmp_path: Path) -> None:
    erin = memory_of(replaying, tmp_path).of("erin")
    assert (await erin.archive(replaying.long)).messages == MANY
    await erin.restore(replaying.long)
    assert len(await replaying.memory.of("erin").page(replaying.long, limit=999)) == MANY


async def test_the_sweep_archives_everything_during_a_replay(replaying: Replaying, tmp_path: Path) -> None:
    memory = memory_of(replaying, tmp_path)
    replaying.clock.advance(timedelta(days=2))
    assert await memory.archive_old(Archiving(after=timedelta(days=1))) == 4
    archives = {one.conversation_id: one.messages for one in await memory.of("erin").archives()}
    assert archives == {replaying.long: MANY, replaying.unknown: 1, replaying.busy: BACKLOG}


async def test_an_export_during_a_replay_has_everything(replaying: Replaying, tmp_path: Path) -> None:
    manifest = await memory_of(replaying, tmp_path).of("erin").export(tmp_path / "export")
    assert manifest.counts["conversations"] == 3
    assert manifest.counts["messages"] == MANY + 1 + BACKLOG


async def test_a_process_that_adopts_a_spool_exports_everything(tmp_path: Path) -> None:
    setup = Replaying(tmp_path / "spool")
    await setup.layer.open()
    await setup.begin()
    await setup.spool()
    setup.failing.up()
    setup.layer.connection._is_open = False  # closing hands nothing over: the process dies
    await setup.layer.close()
    await setup.memory.open()
    setup.layer = setup.make()
    await setup.layer.open()
    assert setup.layer.queues
    page = await setup.layer.of("erin").find(Query())
    assert page.degraded or len(page.conversations) == 3
    manifest = await memory_of(setup, tmp_path).of("erin").export(tmp_path / "export")
    assert manifest.counts["messages"] == MANY + 1 + BACKLOG
    await setup.layer.close()


async def test_another_live_process_is_waited_for_and_then_the_operation_is_refused(
    replaying: Replaying, tmp_path: Path
) -> None:
    other = replaying.make(settle_deadline=0.2)
    await other.open()
    memory = Memory(
        other,
        retention=Retention(sweep_every=None),
        models=Models(preload=False, embedder=None),
    )
    assert {owner async for owner in memory.owners()} == {"erin", "bob"}
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await memory.of("erin").export(tmp_path / "export")
    assert (await memory.of("bob").export(tmp_path / "bob")).counts["messages"] == 1
    await replaying.layer.recover()
    assert (await memory.of("erin").export(tmp_path / "export")).counts["messages"] == MANY + 1 + BACKLOG
    await other.close()


async def test_a_backlog_that_does_not_drain_in_time_refuses_the_operation(
    replaying: Replaying, tmp_path: Path
) -> None:
    memory = memory_of(replaying, tmp_path)
    replaying.layer.resilience = Resilience(settle_deadline=0.2)
    replaying.failing.plan = lambda name: "hang" if name == "append" else None
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await memory.of("erin").archive(replaying.long)
    assert await memory.of("erin").archives() == []
    assert len(await replaying.memory.of("erin").page(replaying.long, limit=999)) == MANY


async def test_a_picture_sweep_that_loses_the_store_removes_nothing(setup: LayerSetup) -> None:
    blobs = InMemoryBlobs()
    data = b"a picture"
    digest = sha256(data).hexdigest()
    owners = ["ann", "bob", "cid", "dan"]
    for owner in owners:
        store = setup.layer.of(owner)
        record = await store.create(started(new_id(), now=store.now()))
        await blobs.of(owner).put(record.id, digest, data)
    for failing in range(len(owners) + 1):
        await setup.layer.close()
        await setup.memory.open()
        setup.layer = setup.make()
        await setup.layer.open()
        await setup.layer.of("ann").find(Query())
        setup.failing.faults(*[None] * failing, "before", "before", "before")
        with pytest.raises(StoreUnavailable):
            await purge_blobs(blobs, setup.layer)
        assert len(await blobs.keys()) == len(owners)
        await setup.back()
    assert await purge_blobs(blobs, setup.layer) == 0


async def test_a_picture_sweep_removes_nothing_when_the_store_goes_away_while_pictures_are_listed(
    setup: LayerSetup,
) -> None:
    class Listing(InMemoryBlobs):
        async def keys(self) -> list[str]:
            found = await super().keys()
            setup.failing.down()
            with suppress(StoreUnavailable):
                await setup.layer.of("ann").tally()
            assert not setup.layer.reachable
            return found

    blobs = Listing()
    data = b"a picture"
    for owner in ("ann", "bob", "cid", "dan"):
        store = (
            Memory(
                setup.memory,
                retention=Retention(sweep_every=None),
                models=Models(preload=False, embedder=None),
            )
            .of(owner)
            .store
        )
        record = await store.create(started(new_id(), now=store.now()))
        await blobs.of(owner).put(record.id, sha256(data).hexdigest(), data)
    await setup.layer.of("ann").find(Query())
    with pytest.raises(StoreUnavailable):
        await purge_blobs(blobs, setup.layer)
    assert len(await InMemoryBlobs.keys(blobs)) == 4


async def test_owners_are_all_of_them_or_an_error(replaying: Replaying) -> None:
    memory = Memory(
        replaying.layer,
        retention=Retention(sweep_every=None),
        models=Models(preload=False, embedder=None),
    )
    assert {owner async for owner in memory.owners()} == {"erin", "bob"}
    replaying.failing.down()
    for _ in range(2):  # once when the store fails, once when the breaker is open
        with pytest.raises(StoreUnavailable):
            [owner async for owner in memory.owners()]


async def test_a_purge_waits_for_turns_that_keep_a_conversation_alive(setup: LayerSetup) -> None:
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now(), ttl=timedelta(hours=1)))
    setup.clock.advance(timedelta(minutes=50))
    setup.failing.down()
    await store.append(record.id, [user("still here")])
    setup.clock.advance(timedelta(minutes=5))
    setup.failing.up()
    setup.seconds.now += 60
    assert await setup.layer.connection.probe()
    assert await setup.layer.purge_expired() == 0
    setup.clock.advance(timedelta(minutes=30))
    assert await setup.layer.purge_expired() == 0
    assert len(await store.page(record.id, limit=9)) == 1


async def test_a_turn_that_is_accepted_while_a_conversation_is_deleted_by_revision_is_kept(
    setup: LayerSetup,
) -> None:
    """An archive deletes what it has read. A turn that the spool took meanwhile is set aside."""
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))

    def plan(name: str) -> Fault:
        return "before" if name == "append" else None

    setup.failing.plan = plan
    delete = setup.memory.of("erin").delete

    async def deleted_meanwhile(*args: Any, **named: Any) -> Any:
        await store.append(record.id, [user("said meanwhile")])
        return await delete(*args, **named)

    whole = await store.authoritative()
    whole.inner._inner.delete = deleted_meanwhile  # type: ignore[attr-defined]
    await whole.delete(record.id, expected_revision=record.revision)
    assert await setup.back()
    assert (await setup.layer.health()).dead_letters == 1


async def test_reading_back_during_a_replay_gives_all_acknowledged_turns_or_an_error(
    setup: LayerSetup,
) -> None:
    """A reader that compares acknowledged turns with what it reads was given the part that was known."""
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    for number in range(100):
        await store.append(record.id, [user(f"before {number}")])
    setup.failing.down()
    for number in range(5):
        await store.append(record.id, [user(f"outage {number}")])
    for read in (store.page(record.id, limit=9999), store.tail(record.id, limit=105), store.load(record.id)):
        with pytest.raises(StoreUnavailable):
            await read
    setup.failing.up()
    setup.seconds.now += 60
    assert await setup.layer.connection.probe()
    for read in (store.page(record.id, limit=9999), store.tail(record.id, limit=105), store.load(record.id)):
        with pytest.raises(StoreUnavailable):
            await read
    assert len(await store.tail(record.id, limit=10)) == 10
    assert len(await (await store.authoritative()).page(record.id, limit=9999)) == 105
    assert len(await store.page(record.id, limit=9999)) == 105


async def test_a_conversation_without_accepted_turns_is_read_from_the_store_during_a_replay(
    replaying: Replaying,
) -> None:
    store = replaying.layer.of("erin")
    with noting_freshness() as seen:
        assert len(await store.page(replaying.long, limit=999)) == MANY
        assert len(await store.page(replaying.unknown, limit=999)) == 1
    assert not seen.degraded
    assert replaying.layer.queues


# Every operation, with the store failing at every call


Run = Callable[[Memory, Replaying, Path], Awaitable[Any]]


async def _listed(owners: AsyncIterator[str]) -> set[str]:
    return {owner async for owner in owners}


async def _exported(source: Any, **options: Any) -> int:
    return (await transfer.export(source, io.BytesIO(), **options)).entries


async def _export_one(memory: Memory, setup: Replaying, _: Path) -> int:
    store = await memory.of("erin").store.authoritative()
    record = await store.get(setup.long)
    assert record is not None
    return (await transfer.export_one(store, record, io.BytesIO(), owner="erin")).entries


async def _copied(memory: Memory, setup: Replaying, _: Path) -> int:
    target = InMemoryBackend(clock=setup.clock)
    await target.open()
    return (await transfer.copy(memory.backend, target)).entries


async def _imported(memory: Memory, setup: Replaying, folder: Path) -> Any:
    export = folder / "before"
    if not export.exists():
        plain = Memory(
            setup.memory,
            retention=Retention(sweep_every=None),
            models=Models(preload=False, embedder=None),
        )
        await plain.of("erin").export(export)
    return await memory.of("erin").import_(export)


async def _import_lines(memory: Memory, setup: Replaying, _: Path) -> Any:
    file = io.BytesIO()
    await transfer.export(setup.memory, file)
    file.seek(0)
    return (await transfer.import_(file, memory.backend)).conversations


async def _restored(memory: Memory, setup: Replaying, _: Path) -> str:
    erin = memory.of("erin")
    if not await erin.archives():
        await erin.archive(setup.long)
    return (await erin.restore(setup.long)).id


ALL = MANY + 1 + BACKLOG + 1
"""Messages of both owners."""

MANAGER: dict[str, tuple[Run, Any]] = {
    "archive": (lambda m, w, _: _messages(m.of("erin").archive(w.long)), MANY),
    "restore": (_restored, None),
    "export": (lambda m, _, f: _count(m.of("erin").export(f / new_id())), MANY + 1 + BACKLOG),
    "import_": (_imported, None),
    "erase_participant": (lambda m, _, __: _gone(m.of("erin").erase_participant("ann")), 0),
    "erase": (lambda m, w, _: _gone(m.of("erin").erase(w.busy)), BACKLOG),
    "purge_expired": (lambda m, _, __: m.of("erin").purge_expired(), 0),
    "expiring": (lambda m, _, __: _length(m.of("erin").expiring(timedelta(days=90))), 3),
    "apply_retention": (lambda m, _, __: m.of("erin").apply_retention(), 0),
    "analytics": (lambda m, _, __: _counted(m.of("erin").analytics()), None),
    "recompute_analytics": (lambda m, _, __: m.of("erin").recompute_analytics(), 3),
    "forget_everywhere": (lambda m, _, __: _messages(m.of("erin").forget_everywhere("safe")), 3),
    "preview_forget": (lambda m, _, __: _found(m.of("erin").preview_forget("safe")), 3),
    "redact_everywhere": (lambda m, w, __: _messages(m.of("erin").redact_everywhere(w.long, "secret")), 3),
    "preview_redact": (lambda m, w, __: _found(m.of("erin").preview_redact(w.long, "secret")), 3),
    "topic_report": (lambda m, _, __: m.of("erin").topic_report(), None),
}
MEMORY: dict[str, tuple[Run, Any]] = {
    "owners": (lambda m, _, __: _listed(m.owners()), {"erin", "bob"}),
    "purge_expired": (lambda m, _, __: m.purge_expired(), 0),
    "would_purge": (lambda m, _, __: _length(m.would_purge(timedelta(days=90))), 4),
    "archive_old": (lambda m, _, __: m.archive_old(Archiving(after=timedelta(days=1))), 0),
    "resume_erasures": (lambda m, _, __: m.resume_erasures(), []),
    "sweep": (lambda m, _, __: m.sweep(), 0),
}
MOVING: dict[str, tuple[Run, Any]] = {
    "copy": (_copied, ALL),
    "count": (lambda m, _, __: transfer.count(m.backend), 4),
    "export": (lambda m, _, __: _exported(m.backend), ALL),
    "export_one": (_export_one, MANY),
    "export_store": (
        lambda m, _, __: _entries(transfer.export_store("erin", m.of("erin").store, io.BytesIO())),
        MANY + 1 + BACKLOG,
    ),
    "import_": (_import_lines, None),
}


async def _messages(doing: Awaitable[Any]) -> int:
    return int((await doing).messages)


async def _found(doing: Awaitable[Any]) -> int:
    return len((await doing).messages)


async def _entries(doing: Awaitable[Any]) -> int:
    return int((await doing).entries)


async def _count(doing: Awaitable[Any]) -> int:
    return int((await doing).counts["messages"])


async def _gone(doing: Awaitable[Any]) -> int:
    return int((await doing).erased.get("messages", 0))


async def _counted(doing: Awaitable[Any]) -> int:
    return int((await doing).total.counts["messages_in"])


async def _length(doing: Awaitable[Any]) -> int:
    return len(await doing)


PARTIAL: dict[type | Any, set[str]] = {
    ConversationManager: {
        # One conversation, message, session or note; an answer that says so where it is degraded.
        "add_message", "append", "append_to_session", "archives", "associate_client", "clear_history",
        "delete_conversation", "delete_document", "delete_session", "discard_turn", "entries",
        "branches", "compare", "fork", "link", "links", "merge", "unlink",
        "first_context", "forget",
        "get_conversation", "get_document", "get_note", "get_or_create_conversation", "interrupted",
        "leave_session",
        "lifetime", "list", "list_documents", "put_document", "rewrite_history",
        "load_context", "load_request", "mark_read", "messages", "notes", "open_turn", "recall", "redact",
        "remember", "retention", "search", "search_conversations", "search_history", "session", "similar",
        "summarize", "summary", "unanswered", "update_metadata",
        "assign", "mark_read_up_to", "participants", "read_markers", "remove_participant", "set_participant",
        "unread", "notifications", "notification_rule", "set_notification_rule", "take_notifications",
        "webhooks", "set_webhook", "delete_webhook", "topics", "set_topic", "delete_topic",
        # Sets rules for one owner, then does what `apply_retention` does.
        "set_retention",
    },
    Memory: {"close", "health", "start"},
    transfer: {"restore_one"},
}  # fmt: skip


def _operations(of: Any) -> set[str]:
    # A package that imports its parts at their first use lists them in `__all__` only.
    members = {name: getattr(of, name) for name in (*dir(of), *getattr(of, "__all__", ()))}
    return {
        name
        for name, value in members.items()
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value))
    }


@pytest.mark.parametrize(
    ("of", "whole"),
    [(ConversationManager, MANAGER), (Memory, MEMORY), (transfer, MOVING)],
    ids=["manager", "memory", "moving"],
)
def test_every_operation_is_known_to_need_all_data_or_not_to(of: Any, whole: dict[str, Any]) -> None:
    assert _operations(of) == whole.keys() | PARTIAL[of], "say of a new operation whether it needs all data"


EVERY = {
    f"{where}.{name}": operation
    for where, operations in {"manager": MANAGER, "memory": MEMORY, "moving": MOVING}.items()
    for name, operation in operations.items()
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lasting", "fault"),
    [
        pytest.param(True, "before", id="outage-before"),
        pytest.param(False, "after", id="hiccup-after"),
        pytest.param(True, "after", id="outage-after", marks=pytest.mark.exhaustive),
        pytest.param(False, "before", id="hiccup-before", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("name", EVERY)
async def test_an_operation_is_complete_or_refused_wherever_the_store_fails(
    name: str, lasting: bool, fault: Fault, tmp_path: Path
) -> None:
    run, expected = EVERY[name]
    for number in _counting():
        folder = tmp_path / str(number)
        setup = Replaying(folder / "spool")
        await setup.layer.open()
        await setup.begin()
        await setup.spool()
        await setup.probe()
        memory = memory_of(setup, folder)
        calls = _failing_from(setup, number, fault, lasting=lasting)
        try:
            result = await run(memory, setup, folder)
        except (StoreUnavailable, Conflict):  # an import meets turns of the outage
            pass
        else:
            assert expected is None or result == expected, f"call {number}"
        assert await setup.back()
        if name in REPEATED:
            await run(memory, setup, folder)
            await _check_forgotten(memory, setup)
        await _check_nothing_lost(memory, setup, erased=name == "manager.erase")
        await setup.layer.close()
        if calls.remaining >= 0:
            return


REPEATED = ("manager.forget_everywhere", "manager.redact_everywhere")
"""Operations that remove words step by step. After an interruption, a second call removes the rest."""


async def _check_forgotten(memory: Memory, setup: Replaying) -> None:
    store = await memory.of("erin").store.authoritative()
    for conversation_id in (setup.long, setup.unknown, setup.busy):
        entries = await store.page(conversation_id, limit=999)
        assert "4711" not in str([entry.message.content for entry in entries])
    assert await memory.of("erin").notes(history=True) == []


def _counting() -> Iterator[int]:
    yield from range(400)
    pytest.fail("the operation makes too many calls")


class _Calls:
    """Let some calls through, then fail: for good, or three times, which is more often than is retried."""

    def __init__(self, remaining: int, fault: Fault, *, lasting: bool) -> None:
        self.remaining = remaining
        self._fault = fault
        self._most = 10**6 if lasting else 3

    def __call__(self, name: str) -> Fault:
        self.remaining -= 1
        return self._fault if -self._most <= self.remaining < 0 else None


def _failing_from(setup: LayerSetup, number: int, fault: Fault, *, lasting: bool) -> _Calls:
    calls = _Calls(number, fault, lasting=lasting)
    setup.failing.plan = calls
    return calls


async def _check_nothing_lost(memory: Memory, setup: Replaying, *, erased: bool) -> None:
    """All messages are in the store or in an archive; an erasure that has begun is finished."""
    erin, store = memory.of("erin"), setup.memory.of("erin")
    began = bool(await memory.resume_erasures())
    archived = {one.conversation_id: one.messages for one in await erin.archives()}
    for conversation_id, count in {setup.long: MANY, setup.unknown: 1, setup.busy: BACKLOG}.items():
        record = await store.get(conversation_id)
        if record is None and erased and conversation_id == setup.busy:
            continue
        assert not (began and conversation_id == setup.busy)
        found = archived[conversation_id] if record is None else record.message_count
        assert found == count
    assert len(await setup.memory.of("bob").page(setup.bobs, limit=9)) == 1
    assert (await setup.layer.health()).dead_letters == 0
    await erin.append(setup.unknown, [user("since")])
    await memory.sweep()
    assert (await erin.archive(setup.long)).messages == MANY
    in_both = {one.conversation_id for one in await erin.archives()} & {
        record.id for record in (await erin.list()).conversations
    }
    assert not in_both


# Key rotation


async def _sealed_world(folder: Path) -> tuple[Replaying, EncryptedBackend]:
    setup = Replaying(folder / "spool")
    setup.layer.sealed = True
    sealed = encrypted(setup.layer, Encryption(master=MasterKeys(MASTER)))
    await sealed.open()
    return setup, sealed


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_key_rotation_never_retires_a_key_that_is_needed(fault: Fault, tmp_path: Path) -> None:
    for number in _counting():
        setup, sealed = await _sealed_world(tmp_path / str(number))
        store = sealed.of("erin")
        records = [await store.create(started(new_id(), now=store.now())) for _ in range(2)]
        for record in records:
            await store.append(record.id, [user("before")])
        setup.failing.down()
        await store.append(records[0].id, [user("in the outage")])
        await setup.probe()
        setup.clock.advance(timedelta(hours=1))
        calls = _failing_from(setup, number, fault, lasting=True)
        done = None
        with suppress(StoreUnavailable):
            done = await rotation.rotate(sealed, deep=True, grace=timedelta(0))
        assert await setup.back()
        read = [await store.page(record.id, limit=9) for record in records]
        assert [len(entries) for entries in read] == [2, 1]
        assert all(entry.unreadable is None for entries in read for entry in entries)
        await store.append(records[1].id, [user("after")])
        assert [entry.message.content for entry in await store.page(records[1].id, limit=9)] == [
            "before",
            "after",
        ]
        await sealed.close()
        if calls.remaining >= 0:
            assert done is not None
            assert done.messages == 3
            return


async def _exported_and_deleted(setup: Replaying) -> io.BytesIO:
    store, file = setup.memory.of("erin"), io.BytesIO()
    record = await store.get(setup.unknown)
    assert record is not None
    await transfer.export_one(store, record, file, owner="erin")
    await store.delete(setup.unknown)
    file.seek(0)
    return file


async def test_restoring_one_conversation_waits_for_the_backlog(replaying: Replaying) -> None:
    file = await _exported_and_deleted(replaying)
    stored: list[str] = []
    replaying.failing.plan = stored.append
    await transfer.restore_one(file, replaying.layer.of("erin"), revive=lambda record: record)
    assert not replaying.layer.queues
    assert stored.index("restore") > stored.index("append"), "the backlog is stored first"
    assert len(await replaying.memory.of("erin").page(replaying.unknown, limit=9)) == 1
    assert len(await replaying.memory.of("erin").page(replaying.busy, limit=99)) == BACKLOG


async def test_restoring_one_conversation_is_refused_while_the_backlog_does_not_drain(
    replaying: Replaying,
) -> None:
    file = await _exported_and_deleted(replaying)
    replaying.layer.resilience = Resilience(settle_deadline=0.2)
    replaying.failing.plan = lambda name: "hang" if name == "append" else None
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await transfer.restore_one(file, replaying.layer.of("erin"), revive=lambda record: record)
    assert await replaying.memory.of("erin").get(replaying.unknown) is None
