"""Watching: changes by anybody, on any connection, are heard, also across a lost connection."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from aforesaid.contracts import Change, Watchable
from aforesaid.errors import StoreClosed
from aforesaid.model.conversations import Changes, Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.connections import SQL
from aforesaid.stores.postgres.store import PostgresStore

HELLO = [Message(role="user", content="the words of the message")]
LISTENERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted"
PATIENCE = 120
"""Seconds after which a change that was not heard counts as missed."""


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(postgres_url)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
async def elsewhere(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    """Another process, as far as the database can tell."""
    backend = PostgresBackend(postgres_url)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def owner() -> str:
    return f"watched-{new_id()}"


@pytest.fixture
def store(backend: PostgresBackend, owner: str) -> PostgresStore:
    return backend.of(owner)


async def created(store: PostgresStore) -> Conversation:
    return await store.create(started(new_id(), now=store.now()))


async def heard(changes: AsyncIterator[Change]) -> tuple[str, int | None]:
    async with asyncio.timeout(PATIENCE):
        change = await anext(changes)
    return change.conversation_id, change.revision


def test_the_store_is_watchable(store: PostgresStore) -> None:
    assert isinstance(store, Watchable)


async def test_every_kind_of_change_is_heard(
    store: PostgresStore, elsewhere: PostgresBackend, owner: str
) -> None:
    other = elsewhere.of(owner)
    async with store.watch() as changes:
        record = await created(other)
        assert await heard(changes) == (record.id, 0)
        await other.append(record.id, HELLO)
        assert await heard(changes) == (record.id, 1)
        await other.update(record.id, Changes(subject="s"))
        assert await heard(changes) == (record.id, 2)
        await other.rewrite(record.id, [])
        assert await heard(changes) == (record.id, 3)
        await other.delete(record.id)
        assert await heard(changes) == (record.id, None)


async def test_plain_sql_is_heard(store: PostgresStore, owner: str, postgres_url: str) -> None:
    record = await created(store)
    async with store.watch(record.id) as changes:
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as plain:
            await plain.execute("SELECT set_config('aforesaid.owner', %s, false)", (owner,))
            await plain.execute("UPDATE api.conversations SET status = 'closed'")
            assert await heard(changes) == (record.id, 1)
            await plain.execute("DELETE FROM api.conversations")
        assert await heard(changes) == (record.id, None)


async def test_a_purge_is_heard(store: PostgresStore, backend: PostgresBackend) -> None:
    first, second = [
        await store.create(started(new_id(), now=store.now() - timedelta(days=2), ttl=timedelta(days=1)))
        for _ in range(2)
    ]
    async with store.watch(first.id) as changes, store.watch(second.id) as others:
        assert await backend.purge_expired() >= 2
        assert await heard(changes) == (first.id, None)
        assert await heard(others) == (second.id, None)


async def test_only_what_was_asked_for_is_heard(
    store: PostgresStore, elsewhere: PostgresBackend, owner: str
) -> None:
    mine, other = await created(store), await created(store)
    stranger = elsewhere.of(f"stranger-{new_id()}")
    async with store.watch(mine.id) as changes, store.watch() as everything:
        theirs = await created(stranger)
        await stranger.append(theirs.id, HELLO)
        await store.append(other.id, HELLO)
        await store.append(mine.id, HELLO)
        assert await heard(changes) == (mine.id, 1)
        assert await heard(everything) == (other.id, 1)
        assert await heard(everything) == (mine.id, 1)


async def test_changes_in_quick_succession_come_as_one(store: PostgresStore) -> None:
    record, last = await created(store), await created(store)
    async with store.watch(record.id) as changes, store.watch(last.id) as marker:
        for _ in range(20):
            await store.append(record.id, HELLO)
        await store.append(last.id, HELLO)
        assert await heard(marker) == (last.id, 1)  # so all that came before it has been heard
        assert await heard(changes) == (record.id, 20)


async def test_a_turn_that_is_not_stored_says_nothing(store: PostgresStore) -> None:
    record = await created(store)
    known = [Message(role="user", content="x", message_id="m1")]
    await store.append(record.id, known)
    async with store.watch() as changes:
        await store.append(record.id, known)
        await store.append(record.id, [])
        marker = await created(store)
        assert await heard(changes) == (marker.id, 0)


async def test_changes_during_a_lost_connection_are_announced_afterwards(
    store: PostgresStore, elsewhere: PostgresBackend, owner: str, postgres_admin_url: str
) -> None:
    other = elsewhere.of(owner)
    moved, gone, same = [await created(store) for _ in range(3)]
    async with store.watch() as changes, store.watch(moved.id) as one:
        async with await psycopg.AsyncConnection.connect(postgres_admin_url, autocommit=True) as admin:
            ended = await admin.execute(
                f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS listeners".encode()
            )
            assert await ended.fetchall() == [(True,)]
        await other.append(moved.id, HELLO)
        await other.delete(gone.id)
        fresh = await created(other)
        describe = {await heard(changes) for _ in range(3)}
        assert describe == {(moved.id, 1), (gone.id, None), (fresh.id, 0)}
        assert await heard(one) == (moved.id, 1)
        await other.append(same.id, HELLO)
        assert await heard(changes) == (same.id, 1)


async def test_one_connection_listens_for_all_watchers_and_none_without_watchers(
    store: PostgresStore, backend: PostgresBackend, postgres_admin_url: str
) -> None:
    async def listening() -> int:
        async with await psycopg.AsyncConnection.connect(postgres_admin_url, autocommit=True) as admin:
            return len(await (await admin.execute(LISTENERS.encode())).fetchall())

    async with store.watch(), store.watch(), backend.of("another").watch():
        assert await listening() == 1
    async with asyncio.timeout(PATIENCE):
        while await listening():
            continue  # the server takes a moment to notice that the connection is gone


async def test_closing_ends_a_watch(store: PostgresStore, backend: PostgresBackend) -> None:
    async with store.watch() as changes:
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(StoreClosed):
            async with asyncio.timeout(PATIENCE):
                await waiting
    with pytest.raises(StoreClosed):
        async with store.watch():
            pass


async def test_a_write_that_was_under_way_when_a_watch_began_is_reported(
    store: PostgresStore, owner: str, postgres_url: str
) -> None:
    """It may have seen no listener, and commits without a notification. The watch does not wait for it."""
    record = await created(store)
    async with await psycopg.AsyncConnection.connect(postgres_url) as plain:
        await plain.execute("SELECT set_config('aforesaid.owner', %s, false)", (owner,))
        await plain.execute("UPDATE api.conversations SET subject = 'under way'")
        async with asyncio.timeout(PATIENCE), store.watch(record.id) as changes:
            await plain.commit()
            assert await heard(changes) == (record.id, 1)
            await store.append(record.id, HELLO)
            assert await heard(changes) == (record.id, 2)


async def test_no_change_is_missed_by_those_who_come_while_others_write(
    store: PostgresStore, elsewhere: PostgresBackend, owner: str
) -> None:
    record, other = await created(store), elsewhere.of(owner)
    finished = asyncio.Event()

    async def write() -> None:
        while not finished.is_set():
            await other.append(record.id, HELLO)

    writing = [asyncio.create_task(write()) for _ in range(3)]
    for _ in range(10):
        async with store.watch(record.id) as changes:
            seen = await store.get(record.id)
            assert seen is not None
            _, revision = await heard(changes)
            while revision is not None and revision <= seen.revision:
                _, revision = await heard(changes)
            assert revision is not None
    finished.set()
    await asyncio.gather(*writing)
    async with store.watch(record.id) as changes:
        last = await other.append(record.id, HELLO)
        assert await heard(changes) == (record.id, last.conversation.revision)


@pytest.fixture
def pooled(backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> PostgresBackend:
    """A backend behind a transaction pooler: LISTEN succeeds in a session that ends with the statement."""
    monkeypatch.setitem(SQL, "listen", b"SELECT value FROM aforesaid.notification_key")
    monkeypatch.setattr("aforesaid.stores.postgres.watch.PROBE_SECONDS", 0.2)
    monkeypatch.setattr("aforesaid.stores.postgres.watch.POLL_SECONDS", 0.05)
    return backend


async def test_behind_a_transaction_pooler_changes_are_polled_and_the_log_says_so(
    pooled: PostgresBackend, elsewhere: PostgresBackend, owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    record = await created(elsewhere.of(owner))
    async with pooled.of(owner).watch() as changes:
        await elsewhere.of(owner).append(record.id, HELLO)
        assert await heard(changes) == (record.id, 1)
        await elsewhere.of(owner).append(record.id, HELLO)
        assert await heard(changes) == (record.id, 2)
        await elsewhere.of(owner).delete(record.id)
        assert await heard(changes) == (record.id, None)
    assert await pooled.change_delivery() == "polling"
    assert [line for line in caplog.messages if "transaction pooler" in line]


async def test_the_server_itself_is_named_for_listening(postgres_url: str, owner: str) -> None:
    host, port = conninfo_to_dict(postgres_url)["host"], conninfo_to_dict(postgres_url)["port"]
    sign = "&" if "?" in postgres_url else "?"
    backend = PostgresBackend(f"{postgres_url}{sign}listen_host={host}&listen_port={port}")
    await backend.open()
    try:
        record = await created(backend.of(owner))
        async with backend.of(owner).watch(record.id) as changes:
            await backend.of(owner).append(record.id, HELLO)
            assert await heard(changes) == (record.id, 1)
        assert await backend.change_delivery() == "notifications"
    finally:
        await backend.close()
