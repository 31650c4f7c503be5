"""Watching: a process is notified of another process's changes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from aforesaid.contracts import Change, Watchable
from aforesaid.errors import InvalidId, StoreClosed, StoreUnavailable
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.redis.connections import Bounds, parse_info
from aforesaid.stores.redis.store import RedisStore
from tests.servers.redis import LONGEST_COMMAND_SECONDS, running

PATIENCE = 120


@pytest.fixture
async def backends(any_redis_url: str) -> AsyncIterator[list[RedisBackend]]:
    """As two machines would have them."""
    backends = [RedisBackend(any_redis_url, timeout=LONGEST_COMMAND_SECONDS) for _ in range(2)]
    for backend in backends:
        await backend.open()
    yield backends
    for backend in backends:
        await backend.close()


@pytest.fixture
def pair(backends: list[RedisBackend]) -> tuple[RedisStore, RedisStore]:
    owner = f"watched-{new_id()}"
    here, there = backends
    return here.of(owner), there.of(owner)


async def take(changes: AsyncIterator[Change], count: int) -> list[tuple[str, int | None]]:
    async with asyncio.timeout(PATIENCE):
        found = [await anext(changes) for _ in range(count)]
    return [(change.conversation_id, change.revision) for change in found]


async def take_after(changes: AsyncIterator[Change], revision: int) -> tuple[str, int | None]:
    """The first change past this revision: on a cluster, news from just before may still be on its way."""
    while True:
        ((conversation_id, moved_to),) = await take(changes, 1)
        if moved_to is None or moved_to > revision:
            return conversation_id, moved_to


def said(content: str) -> list[Message]:
    return [Message(role="user", content=content)]


async def test_every_kind_of_change_is_announced(pair: tuple[RedisStore, RedisStore]) -> None:
    here, there = pair
    assert isinstance(here, Watchable)
    async with here.watch() as changes, here.watch() as later:
        record = await there.create(started(new_id(), now=there.now()))
        assert await take(changes, 1) == [(record.id, 0)]
        await there.append(record.id, said("hello"))
        assert await take(changes, 1) == [(record.id, 1)]
        await there.update(record.id, Changes(subject="roof"))
        assert await take(changes, 1) == [(record.id, 2)]
        await there.rewrite(record.id, said("other"))
        assert await take(changes, 1) == [(record.id, 3)]
        assert await take(later, 1) == [(record.id, 3)]  # all changes up to here, as one
        await there.delete(record.id)
        assert await take(changes, 1) == [(record.id, None)]
        assert await take(later, 1) == [(record.id, None)]


async def test_a_conversation_from_before_the_watch_is_reported_as_removed(
    pair: tuple[RedisStore, RedisStore],
) -> None:
    here, there = pair
    record = await there.create(started(new_id(), now=there.now()))
    async with here.watch() as changes, here.watch(record.id) as its_own:
        await there.delete(record.id)
        assert await take_after(changes, 0) == (record.id, None)
        assert await take_after(its_own, 0) == (record.id, None)


async def test_forged_hints_report_nothing_that_is_not_so(redis_url: str) -> None:
    """Every client with access to the server can publish on the channel."""
    backend = RedisBackend(redis_url, timeout=LONGEST_COMMAND_SECONDS)
    await backend.open()
    store = backend.of(f"watched-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    other: Any = Redis.from_url(redis_url)
    async with store.watch() as changes, store.watch(record.id) as its_own:
        for payload in (f"{record.id}:7", f"{record.id}:", f"{new_id()}:3", f"{new_id()}:"):
            await other.publish(store._keys.changes, payload)
        assert await take(changes, 1) == [(record.id, 0)]  # which is so
        await store.append(record.id, said("hello"))
        assert await take(its_own, 1) == [(record.id, 1)]
        assert await take(changes, 1) == [(record.id, 1)]
        await store.delete(record.id)
        assert await take(changes, 1) == [(record.id, None)]
        assert await take(its_own, 1) == [(record.id, None)]
    await other.aclose()
    await backend.close()


async def test_a_silent_connection_is_checked(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aforesaid.stores.redis.connections.HEARTBEAT_SECONDS", 0.01)
    backend = RedisBackend(redis_url, timeout=LONGEST_COMMAND_SECONDS)
    await backend.open()
    store = backend.of(f"watched-{new_id()}")
    before = await _pings(backend)
    async with store.watch() as changes:
        waiting = asyncio.ensure_future(anext(changes))
        async with asyncio.timeout(PATIENCE):
            while await _pings(backend) < before + 5:
                continue  # each is a round trip
        record = await store.create(started(new_id(), now=store.now()))
        change = await asyncio.wait_for(waiting, PATIENCE)
        assert (change.conversation_id, change.revision) == (record.id, 0)
    await store.delete(record.id)
    await backend.close()


async def _pings(backend: RedisBackend) -> int:
    found = parse_info(await backend.connections.call("INFO", "commandstats")).get("cmdstat_ping", "")
    return int(found.partition("calls=")[2].partition(",")[0] or 0)


async def test_a_server_that_no_longer_answers_ends_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection stays open, as behind a firewall that drops packets."""
    monkeypatch.setattr("aforesaid.stores.redis.connections.HEARTBEAT_SECONDS", 0.01)
    with running() as port:
        backend = RedisBackend(f"redis://127.0.0.1:{port}/0", timeout=3600)
        await backend.open()
        async with backend.of("watcher").watch() as changes:
            await backend.connections.call("CLIENT", "PAUSE", PATIENCE * 1000, "ALL")
            monkeypatch.setattr(backend.connections, "_bounds", Bounds(commands=9, seconds=0.1))
            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await asyncio.wait_for(anext(changes), PATIENCE)
        await backend.close()


async def test_a_write_without_a_change_is_not_announced(pair: tuple[RedisStore, RedisStore]) -> None:
    here, there = pair
    record = await there.create(started(new_id(), now=there.now()))
    message = Message(role="user", content="hello", message_id="m1")
    await there.append(record.id, [message])
    async with here.watch() as changes:
        await there.append(record.id, [message])
        await there.append(record.id, [])
        await there.delete(new_id())
        await there.append(record.id, said("more"))
        assert await take_after(changes, 1) == (record.id, 2)


async def test_one_conversation_can_be_watched(pair: tuple[RedisStore, RedisStore]) -> None:
    here, there = pair
    one, two = [await there.create(started(new_id(), now=there.now())) for _ in range(2)]
    async with here.watch(two.id.upper()) as changes:
        await there.append(one.id, said("hello"))
        await there.append(two.id, said("hello"))
        assert await take_after(changes, 0) == (two.id, 1)


async def test_an_id_that_is_none_is_refused(pair: tuple[RedisStore, RedisStore]) -> None:
    with pytest.raises(InvalidId, match="conversation_id"):
        pair[0].watch("kitchen\0")


async def test_other_owners_are_not_heard(
    backends: list[RedisBackend], pair: tuple[RedisStore, RedisStore]
) -> None:
    here, there = pair
    stranger = backends[1].of(f"stranger-{new_id()}")
    async with here.watch() as changes:
        await stranger.create(started(new_id(), now=stranger.now()))
        record = await there.create(started(new_id(), now=there.now()))
        assert await take(changes, 1) == [(record.id, 0)]


async def test_announcements_contain_no_content(redis_url: str) -> None:
    backend = RedisBackend(redis_url, timeout=LONGEST_COMMAND_SECONDS)
    await backend.open()
    listener: Any = Redis.from_url(redis_url)
    pubsub = listener.pubsub()
    await pubsub.psubscribe("*")
    await pubsub.get_message(timeout=PATIENCE)
    store = backend.of("secret owner")
    record = await store.create(started(new_id(), now=store.now(), subject="secret subject"))
    await store.append(record.id, said("secret words"))
    heard = [await pubsub.get_message(timeout=PATIENCE) for _ in range(2)]
    assert [message["data"] for message in heard] == [f"{record.id}:{n}".encode() for n in (0, 1)]
    assert not any(b"secret" in message["channel"] for message in heard)
    await pubsub.aclose()
    await listener.aclose()
    await store.delete(record.id)
    await backend.close()


async def test_a_watch_ends_with_its_store(
    backends: list[RedisBackend], pair: tuple[RedisStore, RedisStore]
) -> None:
    async with pair[0].watch() as changes:
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await backends[0].close()
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(waiting, PATIENCE)
    with pytest.raises(StoreClosed):
        async with pair[0].watch():
            pass


async def test_a_line_that_breaks_is_an_error_for_changes_may_be_missed(redis_url: str) -> None:
    backend = RedisBackend(redis_url, timeout=LONGEST_COMMAND_SECONDS)
    await backend.open()
    async with backend.of("watcher").watch() as changes:
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        assert await backend.connections.call("CLIENT", "KILL", "TYPE", "pubsub")
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, PATIENCE)
    async with backend.of("watcher").watch() as changes:
        record = await backend.of("watcher").create(started(new_id(), now=backend.clock()))
        assert await take(changes, 1) == [(record.id, 0)]
    await backend.of("watcher").delete(record.id)
    await backend.close()


async def test_what_the_watcher_itself_raises_is_not_changed(pair: tuple[RedisStore, RedisStore]) -> None:
    with pytest.raises(OSError, match="mine"):
        async with pair[0].watch():
            raise OSError("mine")


async def test_payloads_of_other_programs_are_ignored(redis_url: str) -> None:
    backend = RedisBackend(redis_url, timeout=LONGEST_COMMAND_SECONDS)
    await backend.open()
    store = backend.of(f"watched-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    other: Any = Redis.from_url(redis_url)
    async with store.watch() as changes:
        for payload in (b"", b"x", b":", b"x:y", b"\xff:1", record.id, f"{record.id}:one"):
            await other.publish(store._keys.changes, payload)
        await store.append(record.id, said("hello"))
        assert await take(changes, 1) == [(record.id, 1)]
    await other.aclose()
    await backend.close()
