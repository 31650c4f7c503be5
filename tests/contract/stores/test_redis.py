"""The Redis store is a store, on one server and on a cluster."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from aforesaid.contracts import Backend
from aforesaid.model.conversations import Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock, SnapshotContract, StoreContract, store_machine
from tests.examples import examples
from tests.processes.forking import SECONDS
from tests.processes.redis_writer import TASKS, TURNS, started_writer
from tests.servers.redis import LONGEST_COMMAND_SECONDS, client, patient, running

MICROSECOND = timedelta(microseconds=1)


class TestRedisStore(StoreContract, SnapshotContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, redis_url: str) -> AsyncIterator[Backend]:
        backend = backend_for(patient(redis_url, prefix=f"test-{new_id()}"), clock=clock)
        await backend.open()
        yield backend
        await backend.close()


class TestRedisClusterStore(StoreContract, SnapshotContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, redis_cluster_url: str) -> AsyncIterator[Backend]:
        backend = backend_for(patient(redis_cluster_url, prefix=f"test-{new_id()}"), clock=clock)
        await backend.open()
        yield backend
        await backend.close()


def play(url: str, *, count: int) -> None:
    machine = store_machine(
        lambda clock: RedisBackend(
            url, clock=clock, prefix=f"machine-{new_id()}", timeout=LONGEST_COMMAND_SECONDS
        )
    )
    how = settings(examples(count), stateful_step_count=30)
    run_state_machine_as_test(machine, settings=how)


def test_random_operations_answer_as_the_model_does(redis_url: str) -> None:
    play(redis_url, count=100)


def test_random_operations_on_a_cluster_answer_as_the_model_does(redis_cluster_url: str) -> None:
    play(redis_cluster_url, count=40)  # the same code; what differs is where keys lie


FAR = [
    datetime.min.replace(tzinfo=UTC) + timedelta(days=1),
    datetime(1583, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2255, 6, 5, 23, 47, 34, 740992, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC) - timedelta(days=1),
]
"""Moments where a double no longer tells one microsecond from the next, or that lie before 1970."""


class TestFarMoments:
    """Time is exact in every year that there is."""

    @pytest.fixture
    async def backends(self, any_redis_url: str) -> AsyncIterator[tuple[Backend, Backend]]:
        clock = FixedClock()
        real = RedisBackend(any_redis_url, clock=clock)
        await real.open()
        yield InMemoryBackend(clock=clock), real
        await real.close()

    @pytest.mark.parametrize("far", FAR, ids=str)
    async def test_messages_a_microsecond_apart_keep_their_order(
        self, backends: tuple[Backend, Backend], far: datetime
    ) -> None:
        answers = []
        record = started(new_id(), now=FixedClock()())
        for backend in backends:
            store = backend.of(f"far-{record.id}")
            await store.create(record)
            for step in (3, 1, 2, 0, 2):
                at = far + step * MICROSECOND
                await store.append(record.id, [Message(role="user", content=step, timestamp=at)])
            entries = await store.page(record.id, limit=10)
            assert [entry.message.content for entry in entries] == [0, 1, 2, 2, 3]
            before = await store.tail(record.id, limit=2, before=entries[3].position)
            answers.append((entries, before, await store.get(record.id)))
        assert answers[0] == answers[1]

    @pytest.mark.parametrize("far", FAR, ids=str)
    async def test_conversations_active_a_microsecond_apart_are_listed_in_order(
        self, backends: tuple[Backend, Backend], far: datetime
    ) -> None:
        listings = []
        records = [started(new_id(), now=far, ttl=None) for _ in range(8)]
        for backend in backends:
            store = backend.of(f"far-{records[0].id}")
            for step, record in enumerate(records):
                await store.create(record)
                at = far + (step * 5 % 8) * MICROSECOND
                await store.append(record.id, [Message(role="user", content=step, timestamp=at)])
            pages = [await store.find(Query(limit=3))]
            while pages[-1].next:
                pages.append(await store.find(Query(limit=3, after=pages[-1].next)))
            edges = Query(date_from=far + 2 * MICROSECOND, date_to=far + 5 * MICROSECOND)
            listings.append((pages, await store.find(edges)))
        assert listings[0] == listings[1]
        assert sum(len(page.conversations) for page in listings[1][0]) == 8


async def eight_processes_write(url: str) -> None:
    backend = RedisBackend(url)
    await backend.open()
    owner = f"crowd-{new_id()}"
    store = backend.of(owner)
    record = await store.create(started(new_id(), now=store.now()))
    writers = [started_writer(url, owner, record.id, str(number)) for number in range(8)]
    for writer in writers:
        await asyncio.to_thread(writer.join, SECONDS)
    assert [writer.exitcode for writer in writers] == [0] * 8
    entries = await store.page(record.id, limit=10_000)
    assert [entry.sequence for entry in entries] == list(range(1, 8 * TASKS * TURNS * 3 + 1))
    turns = [entries[start : start + 3] for start in range(0, len(entries), 3)]
    keys = [turn[0].message.content[0] for turn in turns]
    expected = {
        f"{process}/{task}/{turn}" for process, task, turn in product(range(8), range(TASKS), range(TURNS))
    }
    assert sorted(keys) == sorted(expected)
    for key, turn in zip(keys, turns, strict=True):
        assert [entry.message.content for entry in turn] == [[key, r] for r in ("user", "tool", "assistant")]
        assert len({entry.revision for entry in turn}) == 1
    await store.delete(record.id)
    await backend.close()


@pytest.mark.slow
async def test_eight_processes_of_eight_tasks_lose_double_and_split_nothing(redis_url: str) -> None:
    await eight_processes_write(redis_url)


@pytest.mark.slow
async def test_eight_processes_on_a_cluster_lose_double_and_split_nothing(redis_cluster_url: str) -> None:
    await eight_processes_write(redis_cluster_url)


@pytest.mark.slow
async def test_what_an_append_writes_does_not_grow_with_the_conversation() -> None:
    """In bytes of the append-only file, for the same turn at 10, 1,000 and 100,000 messages."""
    # Written before each answer, and never rewritten, so that the size tells what a turn cost.
    options = ["--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
    with running(*options) as port, client(port) as observer:
        backend = RedisBackend(f"redis://127.0.0.1:{port}")
        await backend.open()
        store = backend.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        turn = [Message(role="user", content="x" * 50), Message(role="assistant", content="y" * 50)]
        written, length = [], 0
        for wanted in (10, 1_000, 100_000):
            while length < wanted:
                batch = (turn * 500)[: min(1000, wanted - length)]
                await store.append(record.id, batch)
                length += len(batch)
            before = observer.info("persistence")["aof_current_size"]
            for _ in range(20):
                await store.append(record.id, turn)
            length += 40
            written.append(observer.info("persistence")["aof_current_size"] - before)
        await backend.close()
    assert min(written) > 20 * 100, written  # the words themselves, at least
    assert max(written) / min(written) < 1.3, written
