"""A role that may connect and has no grant: it learns nothing from notifications and stalls nothing."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from aforesaid.contracts import Change
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.rows import Tags
from aforesaid.stores.postgres.store import PostgresStore
from tests.servers.postgres import Databases

PATIENCE = 120
"""Seconds after which a call counts as stalled."""
HELLO = [Message(role="user", content="the words of the message")]
LISTENING_LOCK, OLD_MIGRATION_LOCK = 1380142167, 0x52434C54
LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

Plain = psycopg.AsyncConnection[Any]


@pytest.fixture
def url(databases: Databases) -> str:
    """A database of its own: an advisory lock holds for all of one."""
    return databases.new()


@pytest.fixture
async def backend(url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(url)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def store(backend: PostgresBackend) -> PostgresStore:
    return backend.of("erin")


@pytest.fixture
def stranger_url(databases: Databases, url: str) -> str:
    role = f"stranger_{new_id()[-12:]}"
    databases.role(role)
    return re.sub(r"//\w+:\w+@", f"//{role}:{role}@", url)


@pytest.fixture
async def stranger(stranger_url: str) -> AsyncIterator[Plain]:
    async with await psycopg.AsyncConnection.connect(stranger_url, autocommit=True) as connection:
        yield connection


async def created(store: PostgresStore) -> Conversation:
    return await store.create(started(new_id(), now=store.now()))


async def heard(changes: AsyncIterator[Change]) -> tuple[str, int | None]:
    async with asyncio.timeout(PATIENCE):
        change = await anext(changes)
    return change.conversation_id, change.revision


async def secrets_of(url: str) -> tuple[Tags, str]:
    """The tags and the channel, as a service reads them."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as service:
        query = "SELECT value, aforesaid.channel(value) FROM aforesaid.notification_key"
        row = await (await service.execute(query.encode())).fetchone()
    assert row is not None
    return Tags(bytes(row[0])), row[1]


async def test_a_stranger_cannot_read_the_key_or_find_the_channel(
    store: PostgresStore, url: str, stranger: Plain
) -> None:
    _, channel = await secrets_of(url)
    async with store.watch():
        for query in (
            "SELECT * FROM aforesaid.notification_key",
            "SELECT aforesaid.listen()",
            "SELECT aforesaid.notify_watchers('erin', gen_random_uuid())",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await stranger.execute(query.encode())
        shown = await (await stranger.execute("SELECT s::text FROM pg_stat_activity AS s")).fetchall()
        assert channel not in str(shown)


async def test_no_statement_shows_the_channel_to_a_role_that_sees_all_statements(
    store: PostgresStore, url: str, databases: Databases
) -> None:
    _, channel = await secrets_of(url)
    async with store.watch(), await psycopg.AsyncConnection.connect(url, autocommit=True) as ours:
        await created(store)
        shown = await (await ours.execute("SELECT s::text FROM pg_stat_activity AS s")).fetchall()
    assert "aforesaid.listen" in str(shown) or "SELECT" in str(shown)
    assert channel not in str(shown)


async def test_a_role_that_is_admitted_for_one_owner_notifies_without_the_key(
    store: PostgresStore, url: str, stranger: Plain
) -> None:
    record = await created(store)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as maker:
        await maker.execute("SELECT aforesaid.admit(%s, 'erin')", (stranger.info.user,))
    async with store.watch(record.id) as changes:
        await stranger.execute("SELECT set_config('aforesaid.owner', 'erin', false)")
        await stranger.execute("UPDATE api.conversations SET subject = 'roof'")
        assert await heard(changes) == (record.id, 1)
        for query in ("SELECT * FROM aforesaid.notification_key", "SELECT aforesaid.listen()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await stranger.execute(query.encode())


async def test_a_listener_on_the_old_channel_hears_nothing(store: PostgresStore, stranger: Plain) -> None:
    await stranger.execute("LISTEN aforesaid")
    await stranger.execute("LISTEN done")
    async with store.watch() as changes:
        record = await created(store)
        assert await heard(changes) == (record.id, 0)
    await stranger.execute("NOTIFY done")
    async with asyncio.timeout(PATIENCE):
        channels = [notification.channel async for notification in stranger.notifies(stop_after=1)]
    assert channels == ["done"]


async def test_a_notification_is_made_of_keyed_digests(
    store: PostgresStore, url: str, stranger: Plain
) -> None:
    """A listener that somehow learned the channel learns no owner, no conversation and no revision."""
    tags, channel = await secrets_of(url)
    await stranger.execute(f"LISTEN {channel}".encode())
    async with store.watch():
        record = await created(store)
        await store.append(record.id, HELLO)
        async with asyncio.timeout(PATIENCE):
            payloads = [found.payload async for found in stranger.notifies(stop_after=3)]
    # The watcher tests with a random word whether notifications arrive.
    payloads = [payload for payload in payloads if not re.fullmatch("probe [0-9a-f]{16}", payload)]
    assert payloads == [f"{tags.owner('erin')} {tags.conversation(record.id)}"] * 2
    assert record.id not in payloads[0]


def test_tags_differ_between_databases(databases: Databases) -> None:
    async def tag() -> str:
        url = databases.new()
        backend = PostgresBackend(url)
        await backend.open()
        await backend.close()
        return (await secrets_of(url))[0].owner("erin")

    assert asyncio.run(tag()) != asyncio.run(tag())


async def test_a_forged_notification_reports_nothing_that_is_not_so(
    store: PostgresStore, url: str, stranger: Plain
) -> None:
    """Even with the channel and the tags: of each hint the store is asked first."""
    tags, channel = await secrets_of(url)
    record = await created(store)
    owner = tags.owner("erin")
    forged = ("", "x", f"{owner} -", f"{owner} {tags.conversation(record.id)}", f"{owner} {record.id} -")
    async with store.watch() as changes, store.watch(record.id) as one:
        for payload in (*forged, *forged):
            await stranger.execute("SELECT pg_notify(%s, %s)", (channel, payload))
            await stranger.execute("SELECT pg_notify('aforesaid', %s)", (payload,))
        await store.append(record.id, HELLO)
        assert await heard(changes) == (record.id, 1)
        assert await heard(one) == (record.id, 1)
        await store.delete(record.id)
        assert await heard(changes) == (record.id, None)
        assert await heard(one) == (record.id, None)


async def test_a_flood_of_forged_notifications_costs_few_reads(
    backend: PostgresBackend, store: PostgresStore, url: str, stranger: Plain
) -> None:
    tags, channel = await secrets_of(url)
    record = await created(store)
    reads = 0

    async def read(ids: Any) -> dict[str, int]:
        nonlocal reads
        reads += 1
        found = await store.get(record.id)
        return {} if found is None else {found.id: found.revision}

    async with backend.listener.watch("erin", None, read) as changes:
        flood = "SELECT count(pg_notify(%s, %s || ' ' || n)) FROM generate_series(1, 50000) AS n"
        waiting = asyncio.ensure_future(heard(changes))
        await stranger.execute(flood.encode(), (channel, tags.owner("erin")))
        await store.append(record.id, HELLO)
        assert await waiting == (record.id, 1)
    assert reads < 5000


async def test_a_stranger_who_holds_the_locks_stalls_nothing(
    url: str, stranger: Plain, databases: Databases
) -> None:
    """Open, watch, write, resume a session and notice every change, whichever advisory locks are taken."""
    session = "SELECT pg_advisory_lock(hashtextextended('kitchen', hashtextextended('erin', 0)))"
    for lock in (LISTENING_LOCK, OLD_MIGRATION_LOCK):
        await stranger.execute("SELECT pg_advisory_lock(%s)", (lock,))
    await stranger.execute(session.encode())
    async with asyncio.timeout(PATIENCE):
        backend = PostgresBackend(url)
        await backend.open()
        try:
            store = backend.of("erin")
            record = await store.resume("kitchen", started(new_id(), now=store.now()))
            async with store.watch(record.id) as changes:
                await store.append(record.id, HELLO)
                assert await heard(changes) == (record.id, 1)
                await stranger.execute("SELECT pg_advisory_unlock_all()")
                await store.append(record.id, HELLO)
                assert await heard(changes) == (record.id, 2)
        finally:
            await backend.close()


async def test_a_stranger_who_queues_for_the_lock_stalls_no_second_listener(
    store: PostgresStore, url: str, stranger: Plain
) -> None:
    """An exclusive request that waits behind one listener is in the way of the next shared one."""
    record = await created(store)
    other = PostgresBackend(url)
    await other.open()
    async with store.watch(record.id) as changes:
        query = stranger.execute("SELECT pg_advisory_lock(%s)", (LISTENING_LOCK,))
        queued = asyncio.ensure_future(query)
        await waits_for_lock(url)
        async with asyncio.timeout(PATIENCE), other.of("erin").watch(record.id) as theirs:
            await store.append(record.id, HELLO)
            assert await heard(changes) == (record.id, 1)
            assert await heard(theirs) == (record.id, 1)
    await queued  # both listeners are gone
    await other.close()


async def waits_for_lock(url: str) -> None:
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with asyncio.timeout(PATIENCE), await psycopg.AsyncConnection.connect(url, autocommit=True) as ours:
        while (await (await ours.execute(query.encode())).fetchone()) == (0,):
            continue


async def test_many_who_resume_one_session_at_once_get_one_conversation(
    store: PostgresStore, url: str
) -> None:
    other = PostgresBackend(url)
    await other.open()
    stores = [store, other.of("erin")]
    for session in ("kitchen", "bath", "hall"):
        calls = [
            stores[number % 2].resume(session, started(new_id(), now=store.now())) for number in range(12)
        ]
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.gather(*calls)
        assert len({record.id for record in found}) == 1
    everything = {record.id async for record in _records(store)}
    assert len(everything) == 3
    await other.close()


async def _records(store: PostgresStore) -> AsyncIterator[Conversation]:
    from aforesaid.contracts.listing import all_records

    async for record in all_records(store):
        yield record


@pytest.mark.parametrize("seed", range(4))
async def test_a_watcher_converges_under_attack(
    store: PostgresStore, url: str, stranger: Plain, databases: Databases, seed: int
) -> None:
    """Writes, killed listeners, locks that are taken and released, forged notifications, in any order."""
    chance = random.Random(seed)
    tags, channel = await secrets_of(url)
    elsewhere = PostgresBackend(url)
    await elsewhere.open()
    other = elsewhere.of("erin")
    records = [(await created(store)).id for _ in range(3)]
    known = dict.fromkeys(records, 0)
    async with store.watch() as changes, await psycopg.AsyncConnection.connect(url, autocommit=True) as ours:
        for _ in range(40):
            match chance.randrange(7):
                case 0 | 1:
                    await other.append(chance.choice(records), HELLO)
                case 2:
                    records.append((await created(other)).id)
                case 3:
                    await ours.execute(LISTENERS.encode())
                case 4:
                    await stranger.execute("SELECT pg_try_advisory_lock(%s)", (LISTENING_LOCK,))
                case 5:
                    await stranger.execute("SELECT pg_advisory_unlock_all()")
                case 6:
                    payload = f"{tags.owner('erin')} {tags.conversation(chance.choice(records))}"
                    await stranger.execute("SELECT pg_notify(%s, %s)", (channel, payload))
        stored = {record.id: record.revision async for record in _records(store)}
        while known != stored:
            conversation_id, revision = await heard(changes)
            assert revision is not None
            known[conversation_id] = revision
    await elsewhere.close()
