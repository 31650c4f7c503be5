"""Stores that track changes report every one, so an index in memory equals a new one after any operation."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from aforesaid.contracts import Backend, Change, ChangeTracking, ConversationStore, Matches, capability
from aforesaid.errors import ConversationNotFound, NotFound
from aforesaid.layers.cached import Cache, cached
from aforesaid.model.conversations import Changes, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.search import memory_index
from aforesaid.search.memory_index import OwnerIndex
from aforesaid.stores import change_numbers
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from aforesaid.stores.redis import RedisBackend
from aforesaid.testing import FixedClock

WORDS = ("kitchen", "lamp", "window", "roof")
HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "file", "redis", "cached redis"])
async def backend(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock
) -> AsyncIterator[Backend]:
    backend = backend_of(request, tmp_path, clock)
    await backend.open()
    yield backend
    await backend.of("erin").clear()
    await backend.close()


def backend_of(request: pytest.FixtureRequest, folder: Path, clock: FixedClock) -> Backend:
    if request.param == "memory":
        return InMemoryBackend(clock=clock)
    if request.param == "file":
        return JsonFileBackend(folder / "memory.json", clock=clock)
    url, prefix = request.getfixturevalue("one_redis_url"), f"test-{secrets.token_hex(6)}"
    redis = RedisBackend(url, clock=clock, prefix=prefix, timeout=120)
    return redis if request.param == "redis" else cached(redis, Cache(watch=True))


class Owner:
    """Random operations on an owner's store."""

    def __init__(self, store: ConversationStore, clock: FixedClock, choice: random.Random) -> None:
        self.store = store
        self.clock = clock
        self.choice = choice
        self.ids: list[str] = []

    def user(self) -> Message:
        said = " ".join(self.choice.choices(WORDS, k=2))
        return Message(role="user", content=said, message_id=self.choice.choice((None, "m1")))

    async def operate(self) -> None:
        steps: list[Callable[[str], Awaitable[object]]] = [
            self.append,
            lambda one: self.store.rewrite(one, [self.user()]),
            lambda one: self.store.replace(one, self.user().with_(message_id="m1")),
            lambda one: self.store.update(one, Changes(subject=self.choice.choice((None, *WORDS)))),
            lambda one: self.store.update(one, Changes(ttl=self.choice.choice((None, HOUR)))),
            self.store.delete,
            self.move,
            self.wait,
        ]
        if len(self.ids) < 4 or self.choice.random() < 0.2:
            record = started(new_id(), now=self.store.now()).with_(subject=self.choice.choice(WORDS))
            await self.store.create(record)
            self.ids.append(record.id)
        with suppress(NotFound):
            await self.choice.choice(steps)(self.choice.choice(self.ids))

    async def append(self, one: str) -> object:
        return await self.store.append(one, [self.user().with_(message_id=None)])

    async def move(self, one: str) -> None:
        """Restore a conversation as it was, with another subject."""
        record, entries = await self.store.get(one), []
        if record is None:
            raise ConversationNotFound(one)
        entries = await self.store.page(one, limit=99)
        await self.store.delete(one)
        await self.store.restore(record.with_(subject=self.choice.choice(WORDS)), entries)

    async def wait(self, one: str) -> None:
        self.clock.advance(HOUR)
        if self.choice.random() < 0.5:
            await self.store.purge_expired()


async def contents(index: OwnerIndex, store: ConversationStore) -> tuple[object, ...]:
    matches = await index.matches(store, WORDS, limit=1_000)
    labels = [await index.label_matches(store, word, [word]) for word in WORDS]
    return _comparable(matches), labels


def _comparable(matches: Matches) -> tuple[object, ...]:
    found = sorted((one.conversation_id, one.position, one.counts) for one in matches.found)
    return found, matches.frequencies, matches.messages, matches.terms


async def test_an_index_that_reads_the_changes_equals_a_new_one(
    backend: Backend, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_numbers, "MOST_REMOVED", 5)
    store = backend.of("erin")
    owner, index = Owner(store, clock, random.Random(25)), OwnerIndex()
    for number in range(150):
        await owner.operate()
        if number % 50 == 49:
            await store.clear()
            owner.ids.clear()
        assert await contents(index, store) == await contents(OwnerIndex(), store), number


async def test_a_change_costs_the_read_of_one_record(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, index = backend.of("erin"), OwnerIndex()
    ids = [new_id() for _ in range(30)]
    for one in ids:
        await store.create(started(one, now=store.now()).with_(subject="lamp"))
    await contents(index, store)
    listed: list[Query] = []
    find = type(store).find

    async def noted(self: ConversationStore, query: Query) -> object:
        listed.append(query)
        return await find(self, query)

    monkeypatch.setattr(type(store), "find", noted)
    await store.append(ids[3], [Message(role="user", content="the roof")])
    matches = await index.matches(store, ["roof"], limit=10)
    assert [one.conversation_id for one in matches.found] == [ids[3]]
    assert await index.label_matches(store, "lamp", ["lamp"]) == dict.fromkeys(ids, 1.0)
    assert listed == []
    monkeypatch.setattr(memory_index, "MOST_CHANGED", 0)
    await store.append(ids[4], [Message(role="user", content="the roof")])
    await index.matches(store, ["roof"], limit=10)
    assert listed != []


async def test_marks_of_other_data_report_that_anything_may_have_changed(backend: Backend) -> None:
    store = backend.of("erin")
    tracking = capability(store, ChangeTracking)
    assert tracking is not None
    assert (await tracking.changes_since(None)).changed is None
    one = started(new_id(), now=store.now())
    await store.create(one)
    mark, _ = await tracking.changes_since(None)
    assert await tracking.changes_since(mark) == (mark, [])
    await store.clear()
    await store.create(one)
    assert (await tracking.changes_since(mark)).changed is None


async def test_removals_are_forgotten_when_most_changes_are_removals(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_numbers, "MOST_REMOVED", 5)
    store = backend.of("erin")
    tracking = capability(store, ChangeTracking)
    assert tracking is not None
    stays = started(new_id(), now=store.now())
    await store.create(stays)
    mark, _ = await tracking.changes_since(None)
    gone = [new_id() for _ in range(12)]
    for one in gone:
        await store.create(started(one, now=store.now()))
        await store.delete(one)
    mark, changed = await tracking.changes_since(mark)
    assert changed is None or set(changed) == set(gone)
    await store.append(stays.id, [Message(role="user", content="hello")])
    assert (await tracking.changes_since(mark)).changed == [stays.id]


class SilentWatchStore(InMemoryStore):
    """A store whose watch reports every change too late."""

    @asynccontextmanager
    async def watch(self, conversation_id: str | None = None) -> AsyncIterator[AsyncIterator[Change]]:
        async def never() -> AsyncIterator[Change]:
            await asyncio.Event().wait()
            yield Change(conversation_id="", revision=None)

        yield never()


class SilentWatchBackend(InMemoryBackend):
    def of(self, owner: str) -> SilentWatchStore:
        return SilentWatchStore(self, owner)


async def test_a_reported_change_is_read_past_a_cache_that_has_not_heard_of_it(clock: FixedClock) -> None:
    inner = SilentWatchBackend(clock=clock)
    backend = cached(inner, Cache(watch=True))
    await backend.open()
    store, index = backend.of("erin"), OwnerIndex()
    one = started(new_id(), now=store.now())
    await store.create(one)
    await contents(index, store)
    await wait_until_cached(store, inner.of("erin"), one.id)
    await inner.of("erin").update(one.id, Changes(subject="roof"))
    assert await index.label_matches(store, "roof", ["roof"]) == {one.id: 1.0}
    await backend.close()


async def wait_until_cached(store: ConversationStore, inner: ConversationStore, conversation_id: str) -> None:
    """Change the record until a read returns an earlier one."""
    while True:
        changed = await inner.update(conversation_id, Changes(subject="lamp"))
        await asyncio.sleep(0)
        if await store.get(conversation_id) != changed:
            return
