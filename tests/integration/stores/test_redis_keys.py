"""What the Redis store leaves on the server: which keys, for how long, and after a crash."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore
from aforesaid.errors import Conflict, ConversationExists, ConversationNotFound, MessageConflict
from aforesaid.model.conversations import Changes, Conversation, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.redis.conversation_index import BATCH
from aforesaid.stores.redis.store import RedisStore
from aforesaid.testing import FixedClock
from tests.servers.redis import LONGEST_COMMAND_SECONDS

HOUR = timedelta(hours=1)


class Observer:
    """Looks at all servers from outside the store."""

    def __init__(self, url: str) -> None:
        address = url.rpartition("//")[2]
        if "+cluster" in url:
            host, port = address.split(":")
            self.client: Any = redis.RedisCluster(host=host, port=int(port))
        else:
            self.client = redis.Redis.from_url(url)

    def all_keys(self) -> set[bytes]:
        return set(self.client.scan_iter(count=1000))

    def expire_now(self, keys: set[bytes]) -> None:
        """Have the server expire these keys, as it does when their time has come."""
        for key in keys:
            assert self.client.pexpireat(key, 1)


@pytest.fixture
def observer(any_redis_url: str) -> Iterator[Observer]:
    observer = Observer(any_redis_url)
    yield observer
    observer.client.close()


@pytest.fixture
async def backend(any_redis_url: str, clock: FixedClock) -> AsyncIterator[RedisBackend]:
    backend = RedisBackend(any_redis_url, clock=clock, timeout=LONGEST_COMMAND_SECONDS)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def store(backend: RedisBackend) -> RedisStore:
    return backend.of(f"owner-{new_id()}")


def said(content: object, **fields: Any) -> Message:
    return Message(role="user", content=content, **fields)


async def new(store: ConversationStore, *, ttl: timedelta | None = HOUR) -> Conversation:
    return await store.create(started(new_id(), now=store.now(), ttl=ttl))


async def listed(store: ConversationStore) -> list[str]:
    return [record.id for record in (await store.find(Query())).conversations]


class TestHygiene:
    async def test_deleting_removes_every_key_and_nothing_else(
        self, store: RedisStore, observer: Observer
    ) -> None:
        observer.client.set("somebody:else", "stays")
        before = observer.all_keys()
        records = [await store.resume(f"session {n}", started(new_id(), now=store.now())) for n in range(3)]
        await store.bind("another", records[0].id)
        for record in records:
            await store.append(record.id, [said("hello", message_id="m1"), said("again")])
        assert len(observer.all_keys() - before) > 12
        for record in records:
            await store.delete(record.id)
        assert observer.all_keys() - before <= {b"aforesaid:owners"}  # others' names, if any
        assert before <= observer.all_keys()
        assert observer.client.get("somebody:else") == b"stays"

    async def test_deleting_one_keeps_every_key_of_the_other(
        self, store: RedisStore, observer: Observer
    ) -> None:
        kept = await store.resume("kept", started(new_id(), now=store.now()))
        await store.append(kept.id, [said("hello", message_id="m1")])
        before = observer.all_keys()
        gone = await store.resume("gone", started(new_id(), now=store.now()))
        await store.append(gone.id, [said("hello", message_id="m1")])
        await store.delete(gone.id)
        assert observer.all_keys() == before
        assert await store.session("kept") is not None

    async def test_purging_leaves_no_key_behind(
        self, store: RedisStore, observer: Observer, clock: FixedClock
    ) -> None:
        before = observer.all_keys()
        record = await store.resume("chat", started(new_id(), now=store.now(), ttl=HOUR))
        await store.append(record.id, [said("hello", message_id="m1")])
        clock.advance(HOUR)
        assert await store.purge_expired() == 1
        assert observer.all_keys() - before <= {b"aforesaid:owners"}

    async def test_names_of_owners_and_sessions_stand_in_no_key(
        self, backend: RedisBackend, observer: Observer
    ) -> None:
        store = backend.of("*{victim}:index")
        record = await store.resume("{secret}*", started(new_id(), now=store.now()))
        assert not [key for key in observer.all_keys() if b"victim" in key or b"secret" in key]
        await store.delete(record.id)

    async def test_one_slot_for_each_conversation(self, store: RedisStore, observer: Observer) -> None:
        before = observer.all_keys()
        record = await store.resume("chat", started(new_id(), now=store.now()))
        await store.append(record.id, [said("hello", message_id="m1")])
        own = {key for key in observer.all_keys() - before if record.id.encode() in key}
        assert len(own) == 4
        assert len({key[key.index(b"{") : key.index(b"}")] for key in own}) == 1


class TestNativeExpiry:
    async def keys_of(self, observer: Observer, record: Conversation) -> set[bytes]:
        return {key for key in observer.all_keys() if record.id.encode() in key}

    async def test_every_key_lives_as_long_as_the_conversation(
        self, store: RedisStore, observer: Observer, clock: FixedClock
    ) -> None:
        record = await store.resume("chat", started(new_id(), now=store.now(), ttl=HOUR))
        await store.append(record.id, [said("hello", message_id="m1")])
        keys = await self.keys_of(observer, record)
        assert len(keys) == 4
        for key in keys:
            assert 3_540_000 < observer.client.pttl(key) <= 3_600_000
        await store.update(record.id, Changes(ttl=HOUR * 3))
        for key in keys:
            assert 3 * 3_540_000 < observer.client.pttl(key) <= 3 * 3_600_000
        await store.update(record.id, Changes(ttl=None))
        assert {observer.client.pttl(key) for key in keys} == {-1}
        await store.append(record.id, [said("more")])
        assert {observer.client.pttl(key) for key in keys} == {-1}

    async def test_every_turn_renews_it(
        self, store: RedisStore, observer: Observer, clock: FixedClock
    ) -> None:
        record = await new(store)
        await store.append(record.id, [said("hello", message_id="m1")])
        keys = await self.keys_of(observer, record)
        for key in keys:
            observer.client.pexpire(key, 60_000)
        await store.append(record.id, [said("more", message_id="m2")])
        assert all(observer.client.pttl(key) > 3_540_000 for key in keys)

    async def test_another_stored_form_of_the_only_message_lives_no_longer(
        self, store: RedisStore, observer: Observer
    ) -> None:
        record = await new(store)
        await store.append(record.id, [said("hello", message_id="m1")])
        (entry,) = await store.page(record.id, limit=2)
        for words in ("HELLO", "HELLO"):
            other = replace(entry, message=entry.message.with_(content=words))
            assert await store.reseal(record.id, [other]) == 1
            assert await store.page(record.id, limit=2) == [other]
            assert all(observer.client.pttl(key) > 0 for key in await self.keys_of(observer, record))

    async def test_the_store_s_clock_may_be_years_off(
        self, store: RedisStore, observer: Observer, clock: FixedClock
    ) -> None:
        clock.advance(-timedelta(days=20 * 365))
        record = await new(store)
        await store.append(record.id, [said("hello")])
        assert await store.get(record.id) is not None
        for key in await self.keys_of(observer, record):
            assert 3_540_000 < observer.client.pttl(key) <= 3_600_000

    async def test_what_the_server_let_expire_vanishes_everywhere(
        self, backend: RedisBackend, store: RedisStore, observer: Observer
    ) -> None:
        before = observer.all_keys()
        kept, gone = await new(store), await new(store)
        await store.append(gone.id, [said("hello", message_id="m1")])
        await store.bind("chat", gone.id)
        observer.expire_now(await self.keys_of(observer, gone))
        assert await listed(store) == [kept.id]
        assert await store.session("chat") is None
        assert await store.get(gone.id) is None
        assert await store.purge_expired() == 0
        with pytest.raises(ConversationNotFound):
            await store.append(gone.id, [said("more")])
        await store.delete(kept.id)
        assert observer.all_keys() - before <= {b"aforesaid:owners"}

    async def test_an_owner_whose_last_conversation_expired_is_no_owner(
        self, backend: RedisBackend, observer: Observer
    ) -> None:
        before = observer.all_keys()
        owner = f"gone-{new_id()}"
        record = await backend.of(owner).resume("chat", started(new_id(), now=backend.clock()))
        assert owner in [name async for name in backend.owners()]
        observer.expire_now(await self.keys_of(observer, record))
        assert owner not in [name async for name in backend.owners()]
        assert observer.all_keys() - before <= {b"aforesaid:owners"}

    async def test_a_sweep_clears_what_expired_unseen(
        self, backend: RedisBackend, observer: Observer
    ) -> None:
        before = observer.all_keys()
        store = backend.of(f"gone-{new_id()}")
        for number in range(3):
            record = await store.resume(f"chat {number}", started(new_id(), now=backend.clock()))
            observer.expire_now(await self.keys_of(observer, record))
        await backend.purge_expired()
        assert observer.all_keys() - before <= {b"aforesaid:owners"}

    async def test_a_sweep_clears_what_was_left_without_a_record(
        self, store: RedisStore, observer: Observer
    ) -> None:
        before = observer.all_keys()
        record = await new(store)
        await store.append(record.id, [said("hello", message_id="m1")])
        observer.expire_now({store._keys.of(record.id).record.encode()})
        assert await store.purge_expired() == 0
        assert observer.all_keys() - before <= {b"aforesaid:owners"}

    async def test_a_session_bound_to_an_earlier_life_of_an_id_is_not_bound(
        self, store: RedisStore, observer: Observer
    ) -> None:
        record = await store.resume("chat", started(new_id(), now=store.now()))
        observer.expire_now(await self.keys_of(observer, record))
        await store.create(record)
        assert await store.session("chat") is None


class Cut(ConnectionError):
    """The line is cut here."""


class CutLine:
    """Lets a number of commands through to the server, then breaks: the writer has crashed.

    With `late`, the last one still reaches the server, and only its answer is lost.
    """

    def __init__(self, backend: RedisBackend, *, after: int, late: bool) -> None:
        self._connections: Any = backend.connections
        self._send = self._connections._send
        self._left = after
        self._late = late
        self.is_cut = False

    def __enter__(self) -> None:
        self._connections._send = self._pass
        self._connections._send_many = self._pass_many

    def __exit__(self, *_: object) -> None:
        del self._connections._send, self._connections._send_many

    async def _pass_many(self, commands: Any) -> list[Any]:
        return [await self._pass(command) for command in commands]

    async def _pass(self, command: Any) -> Any:
        if self._left <= 0:
            self.is_cut = True
            if self._late:
                await self._send(command)
            raise Cut
        self._left -= 1
        return await self._send(command)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
class TestCrashes:
    """A writer dies before or after each command. What is there is listed; what is listed is there."""

    @pytest.fixture
    async def backend(self, any_redis_url: str, clock: FixedClock) -> AsyncIterator[RedisBackend]:
        """With a prefix of its own, so that owners of other tests are not listed."""
        backend = RedisBackend(any_redis_url, clock=clock, prefix=f"crash-{new_id()}")
        await backend.open()
        yield backend
        await backend.close()

    async def crashes(self, backend: RedisBackend, late: bool) -> AsyncIterator[tuple[RedisStore, CutLine]]:
        """Yield a new owner's store and a line that is cut at the next command, until a line is not cut."""
        for step in count():
            line = CutLine(backend, after=step, late=late)
            yield backend.of(f"owner-{new_id()}"), line
            if not line.is_cut:
                assert step, "the line was never cut"
                return

    async def consistent(self, backend: RedisBackend, store: RedisStore, record: Conversation) -> bool:
        there = await store.get(record.id) is not None
        assert (record.id in await listed(store)) == there
        owner = store._connection.owner
        assert (owner in [name async for name in backend.owners()]) == bool(await listed(store))
        return there

    async def test_creating(self, backend: RedisBackend, late: bool) -> None:
        async for store, line in self.crashes(backend, late):
            record = started(new_id(), now=store.now())
            with line:
                await asyncio.gather(store.create(record), return_exceptions=True)
            if not await self.consistent(backend, store, record):
                await store.create(record)
            assert await self.consistent(backend, store, record)

    async def test_deleting(self, backend: RedisBackend, observer: Observer, late: bool) -> None:
        async for store, line in self.crashes(backend, late):
            before = observer.all_keys()
            record = await store.resume("chat", started(new_id(), now=store.now()))
            with line:
                await asyncio.gather(store.delete(record.id), return_exceptions=True)
            await self.consistent(backend, store, record)
            await store.delete(record.id)
            assert await store.session("chat") is None
            assert not await self.consistent(backend, store, record)
            assert observer.all_keys() <= before

    async def test_resuming(self, backend: RedisBackend, late: bool) -> None:
        async for store, line in self.crashes(backend, late):
            record = started(new_id(), now=store.now())
            with line:
                await asyncio.gather(store.resume("chat", record), return_exceptions=True)
            await self.consistent(backend, store, record)
            resumed = await store.resume("chat", started(new_id(), now=store.now()))
            assert await store.session("chat") == resumed
            assert resumed.id in await listed(store)

    async def test_resuming_once_more(self, backend: RedisBackend, late: bool) -> None:
        """A caller without a response asks again, and gets the intended conversation."""
        async for store, line in self.crashes(backend, late):
            record = started(new_id(), now=store.now())
            with line:
                await asyncio.gather(store.resume("chat", record), return_exceptions=True)
            assert await store.resume("chat", record) == record
            assert await store.session("chat") == record
            assert await listed(store) == [record.id]

    async def test_appending(self, backend: RedisBackend, clock: FixedClock, late: bool) -> None:
        async for store, line in self.crashes(backend, late):
            first = await new(store)
            clock.advance(timedelta(seconds=1))
            second = await new(store)
            clock.advance(timedelta(seconds=1))
            with line:
                turn = [said("question"), said("answer")]
                await asyncio.gather(store.append(first.id, turn), return_exceptions=True)
            stored = await store.page(first.id, limit=10)
            assert len(stored) in (0, 2)
            newest_first = [first.id, second.id] if stored else [second.id, first.id]
            assert await listed(store) == newest_first


async def test_readers_that_clean_up_do_not_lose_what_is_being_made(
    backend: RedisBackend, store: RedisStore
) -> None:
    """Listing and creating at once, many times: every acknowledged owner is listed."""
    done = asyncio.Event()

    async def keep_listing() -> None:
        while not done.is_set():
            await store.find(Query(limit=5))

    async def make(number: int) -> str:
        return (await store.resume(f"session {number}", started(new_id(), now=store.now()))).id

    readers = [asyncio.create_task(keep_listing()) for _ in range(4)]
    made = [await asyncio.gather(*(make(10 * batch + n) for n in range(10))) for batch in range(6)]
    done.set()
    await asyncio.gather(*readers)
    found = {record.id for record in (await store.find(Query(limit=500))).conversations}
    assert found == {one for batch in made for one in batch}
    for number in range(60):
        assert await store.session(f"session {number}") is not None


async def test_a_conversation_that_lost_its_entry_is_listed_again_with_its_next_turn(
    backend: RedisBackend, store: RedisStore, observer: Observer
) -> None:
    record = await new(store)
    assert observer.client.delete(store._keys.index)
    assert await listed(store) == []
    await store.append(record.id, [said("hello")])
    assert await listed(store) == [record.id]


async def test_an_index_that_is_ahead_is_put_right_by_reading(
    store: RedisStore, observer: Observer, clock: FixedClock
) -> None:
    """As when a writer died after it announced a turn: the listing goes by the records."""
    first = await new(store)
    clock.advance(timedelta(seconds=1))
    second = await new(store)
    observer.client.zadd(store._keys.index, {first.id: 2e15})
    assert await listed(store) == [second.id, first.id]
    assert observer.client.zrevrange(store._keys.index, 0, -1) == [
        second.id.encode(),
        first.id.encode(),
    ]


async def test_a_conversation_whose_score_is_corrected_during_a_listing_is_listed_once(
    store: RedisStore, observer: Observer, clock: FixedClock
) -> None:
    """It is met at the head of the first batch, and again where it belongs, in the last."""
    made = []
    for _ in range(BATCH + 2):
        made.append((await new(store)).id)
        clock.advance(timedelta(seconds=1))
    observer.client.zadd(store._keys.index, {made[0]: 2e15})
    found = (await store.find(Query(limit=2 * BATCH))).conversations
    assert [record.id for record in found] == made[::-1]


class TestListingDuringATurn:
    """Where the index is moved by a step of its own, a listing in between finds it ahead, and corrects it."""

    async def test_between_the_announcement_and_the_turn(
        self, backend: RedisBackend, store: RedisStore, observer: Observer, clock: FixedClock
    ) -> None:
        first, second = [await new(store) for _ in range(2)]
        clock.advance(timedelta(seconds=1))
        with InterruptedWriter(backend, first.id, listed(store), before=True):
            await store.append(first.id, [said("hello")])
        assert observer.client.zrevrange(store._keys.index, 0, -1) == [
            first.id.encode(),
            second.id.encode(),
        ]

    async def test_that_ends_after_the_turn(
        self, store: RedisStore, observer: Observer, clock: FixedClock
    ) -> None:
        record = await new(store)
        clock.advance(timedelta(seconds=1))
        announced = await store._index.raise_score(record.id, clock())
        assert announced is not None
        await store.append(record.id, [said("hello")])
        await store._index.correct_score(record, announced)
        assert observer.client.zscore(store._keys.index, record.id) == float(announced)


async def test_a_write_that_is_refused_does_not_move_the_conversation_in_the_index(
    store: RedisStore, observer: Observer, clock: FixedClock
) -> None:
    record = await new(store)
    await store.append(record.id, [said("hello", message_id="m1")])
    before = observer.client.zscore(store._keys.index, record.id)
    clock.advance(timedelta(minutes=1))
    for refused in (
        store.create(started(record.id, now=store.now())),
        store.append(record.id, [said("other", message_id="m1")]),
        store.append(record.id, [said("late")], expected_revision=0),
        store.rewrite(record.id, [], expected_revision=0),
    ):
        with pytest.raises(Conflict):
            await refused
        assert observer.client.zscore(store._keys.index, record.id) == before


async def test_a_session_of_a_conversation_that_is_deleted_meanwhile_leaves_no_name(
    store: RedisStore, backend: RedisBackend, observer: Observer
) -> None:
    before = observer.all_keys()
    record = await new(store)
    with InterruptedWriter(backend, record.id, store.delete(record.id)), pytest.raises(ConversationNotFound):
        await store.bind("kitchen", record.id)
    assert observer.all_keys() - before <= {b"aforesaid:owners"}
    fresh = started(new_id(), now=store.now())
    with InterruptedWriter(backend, fresh.id, store.clear()):
        assert await store.resume("kitchen", fresh) == fresh
    assert observer.client.hlen(store._keys.sessions) == 0


async def test_what_was_made_for_another_session_is_not_taken_up(store: RedisStore) -> None:
    record = await store.resume("kitchen", started(new_id(), now=store.now()))
    with pytest.raises(ConversationExists):
        await store.resume("bedroom", record)
    assert await store.session("bedroom") is None


async def test_an_attempt_to_resume_that_arrives_late_leaves_the_next_one_its_conversation(
    store: RedisStore, backend: RedisBackend
) -> None:
    """Both mean the same one: neither removes it as the one that was too slow."""
    record = await store.resume("chat", started(new_id(), now=store.now()))
    await store.unbind("chat")
    with InterruptedWriter(backend, record.id, store.bind("chat", record.id)):
        assert await store.resume("chat", record) == record
    assert await store.session("chat") == record


class InterruptedWriter:
    """Runs another client's action after, or before, a writer's first command to a conversation."""

    def __init__(
        self, backend: RedisBackend, conversation_id: str, doing: Any, *, before: bool = False
    ) -> None:
        self._connections: Any = backend.connections
        self._send = self._connections._send
        self._conversation_id = conversation_id
        self._doing = doing
        self._before = before

    def __enter__(self) -> None:
        self._connections._send = self._pass

    def __exit__(self, *_: object) -> None:
        del self._connections._send

    async def _pass(self, command: Any) -> Any:
        meant = any(f"{self._conversation_id}}}:log" in str(part) for part in command)
        if meant and self._before:
            await self._do()
        reply = await self._send(command)
        if meant:
            await self._do()
        return reply

    async def _do(self) -> None:
        doing, self._doing = self._doing, None
        if doing:
            await doing


class TestComparing:
    """A known id is compared between two commands. What happens in between is noticed."""

    TURN = (said("hello", message_id="m1"), said("new"))

    async def test_nothing_happens(self, store: RedisStore, backend: RedisBackend) -> None:
        record = await new(store)
        first = await store.append(record.id, self.TURN[:1])
        appended = await store.append(record.id, self.TURN)
        assert (appended.known, len(appended.new)) == (first.new, 1)

    async def test_the_id_gets_other_content(
        self, store: RedisStore, backend: RedisBackend, any_redis_url: str
    ) -> None:
        record = await new(store)
        await store.append(record.id, self.TURN[:1])
        async with self.somebody_else(any_redis_url, store) as other:
            rewriting = other.rewrite(record.id, [said("HELLO", message_id="m1")])
            with InterruptedWriter(backend, record.id, rewriting), pytest.raises(MessageConflict):
                await store.append(record.id, self.TURN)
        assert [e.message.content for e in await store.page(record.id, limit=9)] == ["HELLO"]

    async def test_the_id_becomes_free(
        self, store: RedisStore, backend: RedisBackend, any_redis_url: str
    ) -> None:
        record = await new(store)
        await store.append(record.id, self.TURN[:1])
        async with self.somebody_else(any_redis_url, store) as other:
            with InterruptedWriter(backend, record.id, other.rewrite(record.id, [])):
                appended = await store.append(record.id, self.TURN)
        assert [entry.sequence for entry in appended.new] == [2, 3]
        assert appended.known == ()
        assert await store.page(record.id, limit=9) == list(appended.new)

    async def test_the_conversation_goes(
        self, store: RedisStore, backend: RedisBackend, any_redis_url: str
    ) -> None:
        record = await new(store)
        await store.append(record.id, self.TURN[:1])
        async with self.somebody_else(any_redis_url, store) as other:
            deleting = other.delete(record.id)
            with InterruptedWriter(backend, record.id, deleting), pytest.raises(ConversationNotFound):
                await store.append(record.id, self.TURN)
        assert await listed(store) == []

    @asynccontextmanager
    async def somebody_else(self, url: str, store: RedisStore) -> AsyncIterator[RedisStore]:
        backend = RedisBackend(url, clock=store.now)
        await backend.open()
        yield backend.of(store._connection.owner)
        await backend.close()


async def test_pages_of_a_long_listing_with_many_ties_cover_everything_once(
    store: RedisStore, clock: FixedClock
) -> None:
    made = set()
    for number in range(350):
        made.add((await new(store)).id)
        clock.advance(timedelta(microseconds=number % 150 == 0))
    seen: list[str] = []
    page = await store.find(Query(limit=40))
    while True:
        seen += [record.id for record in page.conversations]
        if page.next is None:
            break
        page = await store.find(Query(limit=40, after=page.next))
    assert len(seen) == 350
    assert set(seen) == made


async def test_callers_of_one_session_on_many_machines_get_one_conversation_and_leave_no_other(
    any_redis_url: str,
) -> None:
    backends = [RedisBackend(any_redis_url, timeout=LONGEST_COMMAND_SECONDS) for _ in range(5)]
    for backend in backends:
        await backend.open()
    owner = f"shared-{new_id()}"
    stores = [backend.of(owner) for backend in backends]
    for round_ in range(5):
        attempts = [
            store.resume(f"door {round_}", started(new_id(), now=store.now()))
            for _ in range(4)
            for store in stores
        ]
        assert len({record.id for record in await asyncio.gather(*attempts)}) == 1
        assert len(await listed(stores[0])) == round_ + 1
    for backend in backends:
        await backend.close()
