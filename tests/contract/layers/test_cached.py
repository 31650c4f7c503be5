"""The cached layer: a store, that reads less, and that never serves what has changed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aforesaid.contracts import Backend, Change, ConversationStore, Entry, Watchable, capability
from aforesaid.errors import StoreUnavailable
from aforesaid.layers.cached import Cache, CachedBackend, cached
from aforesaid.layers.resilient import resilient
from aforesaid.model.conversations import Changes, Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from aforesaid.testing import FixedClock, StoreContract, store_machine
from aforesaid.testing.contract.replacing import ReplacingContract
from tests.builders import FEATURE_STORES
from tests.encrypted_stores import inner_for
from tests.examples import examples
from tests.faults import Failing, FailingStore
from tests.unit.layers.conftest import Seconds


class TestCachedStore(StoreContract):
    @pytest.fixture(params=FEATURE_STORES)
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        backend = cached(inner_for(request.param, tmp_path, request, clock), metrics=Telemetry())
        await backend.open()
        yield backend
        await backend.close()


class TestAroundWatchedMemory(StoreContract):
    branchable = False  # the double forwards the contract only

    @pytest.fixture
    async def backend(self, clock: FixedClock) -> AsyncIterator[Backend]:
        backend = cached(WatchableBackend(InMemoryBackend(clock=clock)), metrics=Telemetry())
        await backend.open()
        yield backend
        await backend.close()


class TestReplacingAroundServers(ReplacingContract):
    """Changes invalidate cached entries when a real server announces them."""

    @pytest.fixture(params=["redis", "postgres"])
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        backend = cached(inner_for(request.param, tmp_path, request, clock), metrics=Telemetry())
        await backend.open()
        yield backend
        await backend.close()


TestMachine = store_machine(lambda clock: cached(InMemoryBackend(clock=clock), metrics=Telemetry())).TestCase
TestWatchedMachine = store_machine(
    lambda clock: cached(WatchableBackend(InMemoryBackend(clock=clock)), metrics=Telemetry())
).TestCase

TestMachine.settings = TestWatchedMachine.settings = examples(30)


class WatchableBackend(Failing):
    """A store that can be watched: `tell` is what another process's write does."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.watchers: dict[str, asyncio.Queue[Change | None]] = {}
        self.connected = asyncio.Event()
        self.connected.set()

    def of(self, owner: str) -> ConversationStore:
        return WatchableStore(self, self.inner.of(owner), owner)  # type: ignore[abstract]

    def tell(self, owner: str, change: Change | None) -> None:
        if owner in self.watchers:
            self.watchers[owner].put_nowait(change)


class WatchableStore(FailingStore):
    def __init__(self, backend: WatchableBackend, inner: ConversationStore, owner: str) -> None:
        super().__init__(backend, inner)
        self._watchable = backend
        self._owner = owner

    @asynccontextmanager
    async def watch(self, conversation_id: str | None = None) -> AsyncIterator[AsyncIterator[Change]]:
        await self._watchable.connected.wait()
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self._watchable.watchers[self._owner] = queue
        try:
            yield _changes(queue)
        finally:
            self._watchable.watchers.pop(self._owner, None)


async def _changes(queue: "asyncio.Queue[Change | None]") -> AsyncIterator[Change]:
    while (change := await queue.get()) is not None:
        yield change
    raise StoreUnavailable("the watch is broken")


def user(content: object) -> Message:
    return Message(role="user", content=content)


class CachedPair:
    """A cached store, and the same store as another process has it."""

    def __init__(self, *, watched: bool = False, **settings: Any) -> None:
        self.seconds = Seconds()
        self.memory = InMemoryBackend(clock=FixedClock())
        self.failing = WatchableBackend(self.memory) if watched else Failing(self.memory)
        self.layer: CachedBackend = cached(
            self.failing, Cache(**settings), clock=self.seconds, metrics=Telemetry()
        )
        self.store = self.layer.of("erin")
        self.elsewhere = self.memory.of("erin")

    async def conversation(self, *said: object) -> Conversation:
        record = await self.elsewhere.create(started(new_id(), now=self.elsewhere.now()))
        for content in said:
            await self.elsewhere.append(record.id, [user(content)])
        return record

    async def said(self, record: Conversation, limit: int = 10) -> list[object]:
        return [entry.message.content for entry in await self.store.tail(record.id, limit=limit)]

    def calls(self) -> list[str]:
        calls, self.failing.calls = self.failing.calls, []
        return calls


@pytest.fixture
async def here() -> AsyncIterator[CachedPair]:
    here = CachedPair()
    await here.layer.open()
    here.calls()
    yield here
    await here.layer.close()


@pytest.fixture
async def watched() -> AsyncIterator[CachedPair]:
    here = CachedPair(watched=True)
    await here.layer.open()
    record = await here.conversation()
    await here.store.get(record.id)
    await asyncio.sleep(0)  # the watch begins
    here.calls()
    yield here
    await here.layer.close()


async def test_a_caller_that_hears_of_a_change_reads_nothing_older(watched: CachedPair) -> None:
    """The cache's own watch hears of it later, or not at all."""
    record = await watched.conversation("a")
    assert await watched.said(record) == ["a"]
    assert isinstance(watched.store, Watchable)
    async with watched.store.watch() as changes:  # in the place of the cache's own, which hears no more
        assert await watched.said(record) == ["a"]
        appended = await watched.elsewhere.append(record.id, [user("b")])
        change = Change(conversation_id=record.id, revision=appended.conversation.revision)
        assert isinstance(watched.failing, WatchableBackend)
        watched.failing.tell("erin", change)
        assert await anext(changes) == change
        found = await watched.store.get(record.id)
        assert found is not None
        assert found.revision == change.revision
        assert await watched.said(record) == ["a", "b"]


async def test_unwatched_only_the_record_is_read_again(here: CachedPair) -> None:
    record = await here.conversation("a", "b")
    assert await here.said(record) == ["a", "b"]
    assert here.calls() == ["get", "tail"]
    assert await here.said(record) == ["a", "b"]
    assert here.calls() == ["get"]
    await here.elsewhere.append(record.id, [user("from elsewhere")])
    assert await here.said(record) == ["a", "b", "from elsewhere"], "never served longer than not at all"


async def test_what_this_process_appends_extends_the_cached_end(here: CachedPair) -> None:
    record = await here.conversation("a", "b")
    await here.said(record, limit=3)
    await here.store.append(record.id, [user("c"), user("d")])
    here.calls()
    assert await here.said(record, limit=3) == ["b", "c", "d"]
    assert here.calls() == ["get"]
    assert await here.store.tail(record.id, limit=3) == await here.elsewhere.tail(record.id, limit=3)


async def test_an_append_after_one_elsewhere_extends_nothing(here: CachedPair) -> None:
    record = await here.conversation("a")
    await here.said(record)
    await here.elsewhere.append(record.id, [user("from elsewhere")])
    await here.store.append(record.id, [user("c")])
    assert await here.said(record) == ["a", "from elsewhere", "c"]


async def test_an_append_of_an_older_message_reads_in_its_place(here: CachedPair) -> None:
    record = await here.conversation("a", "b")
    await here.said(record)
    earlier = here.elsewhere.now() - timedelta(hours=1)
    await here.store.append(record.id, [user("earlier").with_(timestamp=earlier)])
    assert await here.said(record) == ["earlier", "a", "b"]


async def test_a_page_and_an_older_end_stay_after_an_append(here: CachedPair) -> None:
    record = await here.conversation("a", "b", "c")
    (*_, last) = await here.store.tail(record.id, limit=3)

    async def read() -> list[list[Entry]]:
        return [
            await here.store.page(record.id, limit=2),
            await here.store.page(record.id, limit=2, offset=2),
            await here.store.tail(record.id, limit=1, before=last.position),
        ]

    before = await read()
    await here.store.append(record.id, [user("d")])
    here.calls()
    after = await read()
    assert here.calls() == ["get", "get", "page", "get"], "only the page that grew is read again"
    assert [after[0], after[2]] == [before[0], before[2]]
    assert [entry.message.content for entry in after[1]] == ["c", "d"]


async def test_an_entry_that_is_not_read_again_leaves_the_cache_after_its_time(here: CachedPair) -> None:
    first, second = await here.conversation("a"), await here.conversation("b")
    await here.said(first)
    size = here.layer.cache.size
    here.seconds.now += 301
    await here.said(second)
    assert here.layer.cache.size == size


async def test_watched_nothing_is_read_again(watched: CachedPair) -> None:
    record = await watched.conversation("a", "b")
    assert await watched.said(record) == ["a", "b"]
    assert watched.calls() == ["get", "tail"]
    assert await watched.said(record) == ["a", "b"]
    assert (await watched.store.get(record.id)) is not None
    assert watched.calls() == []


async def test_watched_a_change_elsewhere_is_served_once_it_is_announced(watched: CachedPair) -> None:
    record = await watched.conversation("a")
    assert await watched.said(record) == ["a"]
    done = await watched.elsewhere.append(record.id, [user("b")])
    assert isinstance(watched.failing, WatchableBackend)
    change = Change(conversation_id=record.id, revision=done.conversation.revision)
    watched.failing.tell("erin", change)
    await asyncio.sleep(0)
    assert await watched.said(record) == ["a", "b"]
    watched.calls()
    watched.failing.tell("erin", change)  # a late announcement of a known change
    await asyncio.sleep(0)
    assert await watched.said(record) == ["a", "b"]
    assert watched.calls() == []


async def test_watched_a_stale_value_without_an_announcement_is_served_no_longer_than_the_bound(
    watched: CachedPair,
) -> None:
    record = await watched.conversation("a")
    assert await watched.said(record) == ["a"]
    await watched.elsewhere.append(record.id, [user("b")])
    watched.seconds.now += 299
    assert await watched.said(record) == ["a"]
    watched.seconds.now += 1
    assert await watched.said(record) == ["a", "b"]


async def test_when_the_watch_breaks_reads_are_checked(watched: CachedPair) -> None:
    record = await watched.conversation("a")
    assert await watched.said(record) == ["a"]
    await watched.elsewhere.append(record.id, [user("b")])
    assert isinstance(watched.failing, WatchableBackend)
    watched.failing.tell("erin", None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert await watched.said(record) == ["a", "b"]


async def test_a_change_from_before_the_watch_was_up_is_seen() -> None:
    here = CachedPair(watched=True)
    await here.layer.open()
    record = await here.conversation("a")
    assert isinstance(here.failing, WatchableBackend)
    here.failing.connected.clear()
    assert await here.said(record) == ["a"]
    await here.elsewhere.append(record.id, [user("b")])
    here.failing.connected.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert "erin" in here.failing.watchers
    assert await here.said(record) == ["a", "b"]
    here.calls()
    assert await here.said(record) == ["a", "b"]
    assert here.calls() == []
    await here.layer.close()


@pytest.mark.parametrize("kind", ["append", "update", "rewrite", "delete", "clear", "restore"])
async def test_what_this_process_writes_is_served_at_once(watched: CachedPair, kind: str) -> None:
    record = await watched.conversation("a")
    assert await watched.said(record) == ["a"]
    store = watched.store
    match kind:
        case "append":
            await store.append(record.id, [user("b")])
            assert await watched.said(record) == ["a", "b"]
        case "update":
            await store.update(record.id, Changes(subject="new"))
            found = await store.get(record.id)
            assert found is not None
            assert found.subject == "new"
        case "rewrite":
            await store.rewrite(record.id, [])
            assert await watched.said(record) == []
        case "delete":
            await store.delete(record.id)
            assert await store.get(record.id) is None
        case "clear":
            await store.clear()
            assert await store.get(record.id) is None
        case "restore":
            await store.restore(record, [])
            assert await store.get(record.id) == record


READS: dict[str, Callable[[ConversationStore, str], Awaitable[list[Entry]]]] = {
    "all": lambda store, one: store.tail(one, limit=10),
    "newest": lambda store, one: store.tail(one, limit=2),
    "page": lambda store, one: store.page(one, limit=10),
    "later page": lambda store, one: store.page(one, limit=2, offset=3),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("is_watched", [False, True], ids=["checked", "watched"])
@pytest.mark.parametrize("kind", ["at once", "one by one", "rewritten"])
async def test_what_is_restored_elsewhere_in_parts_is_served_whole(
    here: CachedPair, watched: CachedPair, read: str, is_watched: bool, kind: str
) -> None:
    here = watched if is_watched else here
    clock = FixedClock()
    source = InMemoryBackend(clock=clock).of("erin")
    made = await source.create(started(new_id(), now=source.now()))
    if kind == "rewritten":
        await source.append(made.id, [user("before")] * 6)
        await source.rewrite(made.id, [])
    for content in range(6):
        made = (await source.append(made.id, [user(content)])).conversation
        clock.advance(timedelta(seconds=kind != "at once"))
    log = await source.page(made.id, limit=10)
    for start in (0, 2, 4):
        await here.elsewhere.restore(made, log[start : start + 2])
        expected = await READS[read](here.elsewhere, made.id)
        assert await READS[read](here.store, made.id) == expected
    here.calls()
    assert await READS[read](here.store, made.id) == await READS[read](source, made.id)
    assert not {"tail", "page"} & set(here.calls()), "once it is whole it is kept"


async def test_who_misses_the_same_at_once_loads_it_once(here: CachedPair) -> None:
    record = await here.conversation("a", "b")
    answers = await asyncio.gather(*(here.said(record) for _ in range(20)))
    assert answers == [["a", "b"]] * 20
    assert here.calls() == ["get", "tail"]


async def test_a_caller_who_gives_up_leaves_the_others_theirs(here: CachedPair) -> None:
    record = await here.conversation("a")
    gate = asyncio.Event()
    real = here.failing.go

    async def slow(name: str, call: Any) -> Any:
        await gate.wait()
        return await real(name, call)

    here.failing.go = slow  # type: ignore[method-assign]
    tasks = [asyncio.create_task(here.said(record)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [["a"], ["a"]]


async def test_when_all_give_up_the_load_ends(here: CachedPair) -> None:
    record = await here.conversation("a")
    here.failing.down("hang")
    tasks = [asyncio.create_task(here.store.get(record.id)) for _ in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    here.failing.up()
    assert (await here.store.get(record.id)) is not None


async def test_a_caller_who_comes_as_the_last_one_gives_up_is_served(here: CachedPair) -> None:
    record = await here.conversation("a")
    here.failing.down("hang")
    early = asyncio.create_task(here.store.get(record.id))
    for _ in range(3):
        await asyncio.sleep(0)
    early.cancel()
    late = asyncio.create_task(here.store.get(record.id))
    here.failing.up()
    answers = await asyncio.gather(early, late, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1] == await here.elsewhere.get(record.id)


async def test_what_was_read_before_a_write_is_not_kept_after_it(watched: CachedPair) -> None:
    """The load takes off, a turn is stored, the load lands: it must not be what is served from then on."""
    record = await watched.conversation("a")
    gate, real = asyncio.Event(), watched.failing.go

    async def slow(name: str, call: Any) -> Any:
        answer = await real(name, call)
        if name == "get":
            await gate.wait()
        return answer

    watched.failing.go = slow  # type: ignore[method-assign]
    early = asyncio.create_task(watched.store.get(record.id))
    for _ in range(3):
        await asyncio.sleep(0)
    await watched.store.append(record.id, [user("b")])
    gate.set()
    before = await early
    assert before is not None
    assert before.message_count == 1
    after = await watched.store.get(record.id)
    assert after is not None
    assert after.message_count == 2


async def test_memory_is_bounded() -> None:
    here = CachedPair(watched=True, max_bytes=20_000)
    await here.layer.open()
    for _ in range(50):
        record = await here.conversation("x" * 1000)
        assert await here.said(record) == ["x" * 1000]
        assert here.layer.cache.size <= 20_000
    record = await here.conversation("x" * 100_000)
    assert await here.said(record) == ["x" * 100_000]
    assert here.layer.cache.size <= 20_000
    await here.layer.close()


async def test_an_expired_conversation_is_not_served() -> None:
    here = CachedPair(watched=True)
    await here.layer.open()
    clock = here.memory.clock
    assert isinstance(clock, FixedClock)
    record = await here.store.create(started(new_id(), now=here.store.now(), ttl=timedelta(hours=1)))
    assert await here.store.get(record.id) == record
    clock.advance(timedelta(hours=1))
    assert await here.store.get(record.id) is None
    await here.layer.close()


async def test_a_degraded_answer_is_not_kept(tmp_path: Path) -> None:
    failing = Failing(InMemoryBackend(clock=FixedClock()))
    seconds = Seconds()
    inner = resilient(
        failing, folder=tmp_path, metrics=Telemetry(), clock=seconds, sleep=seconds.sleep, background=False
    )
    layer = cached(inner, metrics=Telemetry())
    await layer.open()
    store = layer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    failing.down()
    await store.append(record.id, [user("during")])
    assert len(await store.tail(record.id, limit=5)) == 1
    assert layer.cache.size == 0
    failing.up()
    seconds.now += 60
    assert await inner.recover()
    assert len(await store.tail(record.id, limit=5)) == 1
    assert layer.cache.size > 0
    await layer.close()


async def test_powers_come_through(tmp_path: Path) -> None:
    watched = WatchableBackend(InMemoryBackend())
    for layer in (
        cached(watched),
        resilient(watched, folder=tmp_path),
        cached(resilient(watched, folder=tmp_path)),
    ):
        assert capability(layer.of("erin"), Watchable) is not None
    assert capability(cached(InMemoryBackend()).of("erin"), Watchable) is None
