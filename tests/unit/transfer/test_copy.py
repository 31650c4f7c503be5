"""A copy holds what its source holds; it can be repeated, goes on where it ended, and loses nothing."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from aforesaid.contracts import Backend, Entry
from aforesaid.errors import Conflict, StoreDamaged
from aforesaid.model.conversations import Changes, Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from aforesaid.testing import FixedClock
from aforesaid.transfer import CopyReport, copy
from tests.builders import LAYER_STORES
from tests.unit.transfer.conftest import NewBackend
from tests.unit.transfer.lives import conversation_with, everything, live, user


@pytest.fixture(params=LAYER_STORES)
async def target(request: pytest.FixtureRequest, new_backend: NewBackend) -> Backend:
    return await new_backend(request.param)


@pytest.fixture
async def source(new_backend: NewBackend) -> Backend:
    return await new_backend("memory")


async def contents(backend: Backend, conversation_id: str, owner: str = "erin") -> list[Any]:
    return [entry.message.content for entry in await backend.of(owner).page(conversation_id, limit=100)]


class TestASecondRun:
    async def test_goes_on_after_an_interruption(
        self, source: Backend, target: Backend, clock: FixedClock
    ) -> None:
        await live(source, clock)

        def interrupt(report: CopyReport) -> None:
            if report.conversations == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await copy(source, target, progress=interrupt)
        report = await copy(source, target)
        assert report.unchanged >= 5
        assert report.copied + report.unchanged == report.conversations
        assert await everything(target) == await everything(source)

    async def test_brings_only_the_rest_of_a_conversation(self, source: Backend, target: Backend) -> None:
        store = source.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        record = (await store.append(record.id, [user(n) for n in range(1500)])).conversation
        await target.of("erin").restore(record, await store.page(record.id, limit=1000))
        report = await copy(source, target)
        assert (report.copied, report.entries) == (1, 500)
        assert await everything(target) == await everything(source)

    async def test_brings_what_was_said_or_changed_since(self, source: Backend, target: Backend) -> None:
        said = await conversation_with(source, 1, 2)
        changed = await conversation_with(source, 1)
        await conversation_with(source, 1)
        await copy(source, target)
        await source.of("erin").append(said.id, [user(3)])
        await source.of("erin").update(changed.id, Changes(subject="new"))
        await source.of("erin").bind("phone", said.id)
        fresh = await conversation_with(source, "new", owner="sam")
        report = await copy(source, target)
        assert (report.copied, report.unchanged, report.entries, report.sessions) == (3, 1, 2, 1)
        assert await everything(target) == await everything(source)
        assert await contents(target, fresh.id, "sam") == ["new"]

    async def test_brings_documents_that_changed_and_drops_derived_ones_that_went(
        self, source: Backend, target: Backend
    ) -> None:
        record = await conversation_with(source, 1)
        store = source.of("erin")
        for holder in (None, record.id):
            for key in ("stays", "changes", "goes"):
                await store.put_document("note", key, b"1", conversation_id=holder)
        assert (await copy(source, target)).documents == 6
        for holder in (None, record.id):
            await store.put_document("note", "changes", b"2", conversation_id=holder)
            await store.put_document("note", "comes", b"1", conversation_id=holder)
            await store.delete_document("note", "goes", conversation_id=holder)
        report = await copy(source, target)
        assert (report.documents, report.unchanged) == (4, 1)
        there = target.of("erin")
        assert await there.documents("note", conversation_id=record.id) == await store.documents(
            "note", conversation_id=record.id
        )
        assert [one.key for one in await there.documents("note")] == ["changes", "comes", "goes", "stays"]

    async def test_drops_what_was_derived_from_a_history_that_was_replaced(
        self, source: Backend, target: Backend
    ) -> None:
        record = await conversation_with(source, 1)
        await source.of("erin").put_document("sum", "k", b"1", conversation_id=record.id)
        await copy(source, target)
        await source.of("erin").rewrite(record.id, [user("afresh")])
        await copy(source, target)
        assert await target.of("erin").document_kinds(conversation_id=record.id) == []

    async def test_leaves_a_document_that_was_written_to_in_the_target_and_says_which(
        self, source: Backend, target: Backend
    ) -> None:
        await source.of("erin").put_document("note", "k", b"1")
        await source.of("erin").put_document("note", "l", b"1")
        await copy(source, target)
        theirs = await target.of("erin").put_document("note", "k", b"theirs")
        await source.of("erin").put_document("note", "l", b"2")
        with pytest.raises(Conflict, match=r"1 documents and 0 conversations .* erin: note k"):
            await copy(source, target)
        assert await target.of("erin").get_document("note", "k") == theirs
        brought = await target.of("erin").get_document("note", "l")
        assert brought is not None
        assert brought.data == b"2"

    async def test_brings_sessions_that_moved(self, source: Backend, target: Backend) -> None:
        first, second = await conversation_with(source, 1), await conversation_with(source, 2)
        await source.of("erin").bind("phone", first.id)
        await copy(source, target)
        await source.of("erin").bind("phone", second.id)
        report = await copy(source, target)
        assert (report.unchanged, report.sessions) == (2, 1)
        assert await everything(target) == await everything(source)

    async def test_replaces_what_the_source_replaced(self, source: Backend, target: Backend) -> None:
        store = source.of("erin")
        record = await store.resume("kitchen", started(new_id(), now=store.now()))
        await store.append(record.id, [user("a", message_id="m1"), user("b", message_id="m2")])
        await copy(source, target)
        await target.of("erin").bind("of the target", record.id)
        await store.rewrite(record.id, [user("a!", message_id="m1")])
        assert (await copy(source, target)).copied == 1
        assert await contents(target, record.id) == ["a!"]
        assert await target.of("erin").sessions(record.id) == ["kitchen", "of the target"]


Writes = Callable[[Backend, Backend, Conversation], Awaitable[object]]


async def target_goes_on(source: Backend, target: Backend, record: Conversation) -> None:
    await target.of("erin").append(record.id, [user("only in the target")])


async def both_go_on(source: Backend, target: Backend, record: Conversation) -> None:
    await target_goes_on(source, target, record)
    await source.of("erin").append(record.id, [user("only in the source")])
    await source.of("erin").append(record.id, [user("again")])


async def both_are_changed(source: Backend, target: Backend, record: Conversation) -> None:
    await target.of("erin").update(record.id, Changes(subject="one"))
    await source.of("erin").update(record.id, Changes(subject="another"))


async def source_is_emptied(source: Backend, target: Backend, record: Conversation) -> None:
    await target_goes_on(source, target, record)
    await source.of("erin").rewrite(record.id, [])


@pytest.mark.parametrize("writes", [target_goes_on, both_go_on, both_are_changed, source_is_emptied])
async def test_what_was_written_in_the_target_is_never_lost(
    source: Backend, target: Backend, writes: Writes
) -> None:
    record = await conversation_with(source, 1, 2)
    await copy(source, target)
    await writes(source, target, record)
    before = await everything(target)
    other = await conversation_with(source, "another")
    with pytest.raises(Conflict, match=f"1 of 2 conversations were not overwritten.*{record.id}"):
        await copy(source, target)
    after = await everything(target)
    assert after["erin"].pop(other.id)
    assert after == before


async def test_a_target_that_keeps_something_else_is_named_with_the_conversation(
    source: Backend, clock: FixedClock
) -> None:
    record = await conversation_with(source, 1, 2, 3)
    with pytest.raises(StoreDamaged, match=record.id):
        await copy(source, InMemoryBackend(clock=clock, max_messages=2))


async def test_what_has_expired_is_not_copied(source: Backend, target: Backend, clock: FixedClock) -> None:
    store = source.of("erin")
    await store.create(started(new_id(), now=clock(), ttl=timedelta(hours=1)))
    kept = await conversation_with(source, 1)
    clock.advance(timedelta(hours=1))
    assert (await copy(source, target)).copied == 1
    assert list((await everything(target))["erin"]) == [kept.id]


async def test_progress_is_reported_conversation_by_conversation(source: Backend, clock: FixedClock) -> None:
    await live(source, clock)
    describe: list[CopyReport] = []
    report = await copy(source, InMemoryBackend(clock=clock), progress=describe.append)
    assert [one.conversations for one in describe if one.owners == 3][-1] == report.conversations
    assert describe[-1] == report
    assert {one.conversations for one in describe} == set(range(report.conversations + 1))


Meanwhile = Callable[[str], Awaitable[object]]


class Busy(InMemoryBackend):
    """A target during whose writes something happens elsewhere."""

    def __init__(self, clock: FixedClock, meanwhile: Meanwhile) -> None:
        super().__init__(clock=clock)
        self.meanwhile = meanwhile

    def of(self, owner: str) -> "BusyStore":
        return BusyStore(self, owner)


class BusyStore(InMemoryStore):
    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        assert isinstance(self._backend, Busy)
        await self._backend.meanwhile(conversation.id)
        await super().restore(conversation, entries, expected_revision=expected_revision)


class TestWhileTheSourceIsWrittenTo:
    async def test_a_turn_that_comes_meanwhile_is_left_for_the_next_run(
        self, source: Backend, clock: FixedClock
    ) -> None:
        record = await conversation_with(source, 1, 2)
        early = clock() - timedelta(days=1)

        async def say(conversation_id: str) -> None:
            await source.of("erin").append(conversation_id, [user("late"), user("early", timestamp=early)])

        target = Busy(clock, say)
        assert (await copy(source, target)).copied == 1
        assert await contents(target, record.id) == [1, 2]
        target.meanwhile = _nothing
        assert (await copy(source, target)).entries == 2
        assert await everything(target) == await everything(source)

    async def test_a_history_that_is_replaced_meanwhile_is_reported(
        self, source: Backend, clock: FixedClock
    ) -> None:
        record = await conversation_with(source, 1, 2)

        async def replace(conversation_id: str) -> None:
            await source.of("erin").rewrite(conversation_id, [user("new")])

        target = Busy(clock, replace)
        report = await copy(source, target)
        assert (report.copied, report.changed_meanwhile) == (0, (record.id,))
        target.meanwhile = _nothing
        assert (await copy(source, target)).copied == 1
        assert await everything(target) == await everything(source)

    async def test_a_conversation_that_is_deleted_meanwhile_is_reported_and_does_not_live_on(
        self, source: Backend, clock: FixedClock
    ) -> None:
        record = await conversation_with(source, 1, 2)
        target = Busy(clock, source.of("erin").delete)
        report = await copy(source, target)
        assert (report.copied, report.changed_meanwhile) == (0, (record.id,))
        assert await everything(target) == {}


async def _nothing(conversation_id: str) -> None:
    pass
