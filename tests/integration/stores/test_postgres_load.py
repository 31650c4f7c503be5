"""The PostgreSQL store under load: many processes on one conversation, and what a turn writes."""

import asyncio
import multiprocessing
import re
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.store import PostgresStore
from tests.servers.postgres import Databases

PROCESSES, TASKS, TURNS = 8, 8, 6
LENGTHS = (10, 1_000, 100_000)
MEASURED_TURNS = 40
TURN = [
    Message(role="user", content="Is the front door locked, and are the hall lights on?"),
    Message(role="assistant", content="The door is locked. The hall lights are off."),
]


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    backend = PostgresBackend(postgres_url)
    await backend.open()
    yield backend
    await backend.close()


@pytest.fixture
def owner() -> str:
    return f"load-{new_id()}"


@pytest.fixture
def store(backend: PostgresBackend, owner: str) -> PostgresStore:
    return backend.of(owner)


def write_in_a_process(url: str, owner: str, conversation_id: str, process: int) -> None:
    asyncio.run(_write_in_tasks(url, owner, conversation_id, process))


async def _write_in_tasks(url: str, owner: str, conversation_id: str, process: int) -> None:
    backend = PostgresBackend(url, max_connections=4)
    await backend.open()
    store = backend.of(owner)

    async def write(task: int) -> None:
        for turn in range(TURNS):
            key = f"{process}/{task}/{turn}"
            messages = [
                Message(role="user", content=key, message_id=key),
                Message(role="assistant", content=key),
            ]
            await store.append(conversation_id, messages)

    await asyncio.gather(*(write(task) for task in range(TASKS)))
    await backend.close()


@pytest.mark.slow
async def test_eight_processes_lose_double_and_split_nothing(
    store: PostgresStore, owner: str, postgres_url: str
) -> None:
    record = await store.create(started(new_id(), now=store.now()))
    spawn = multiprocessing.get_context("spawn")
    writers = [
        spawn.Process(target=write_in_a_process, args=(postgres_url, owner, record.id, process))
        for process in range(PROCESSES)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        await asyncio.to_thread(writer.join, 240)
    assert [writer.exitcode for writer in writers] == [0] * PROCESSES
    entries = await store.page(record.id, limit=10_000)
    total = PROCESSES * TASKS * TURNS
    assert [entry.sequence for entry in entries] == list(range(1, 2 * total + 1))
    first, second = entries[::2], entries[1::2]
    assert len({entry.message.content for entry in first}) == total
    assert [(e.message.role, e.message.content, e.revision) for e in second] == [
        ("assistant", e.message.content, e.revision) for e in first
    ]
    after = await store.get(record.id)
    assert after is not None
    assert (after.revision, after.message_count) == (total, 2 * total)


async def wal_position(connection: psycopg.AsyncConnection) -> int:
    cursor = await connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    (position,) = await cursor.fetchone() or (0,)
    return int(position)


@pytest.mark.slow
async def test_the_bytes_that_a_turn_writes_do_not_grow_with_the_conversation(
    store: PostgresStore, postgres_admin_url: str
) -> None:
    written: dict[int, float] = {}
    async with await psycopg.AsyncConnection.connect(postgres_admin_url, autocommit=True) as admin:
        for length in LENGTHS:
            record = await store.create(started(new_id(), now=store.now()))
            for begin in range(0, length, 5_000):
                size = min(5_000, length - begin)
                await store.append(record.id, [TURN[number % 2] for number in range(size)])
            # A page that is touched for the first time after a checkpoint is written whole: get that over
            # with now, so that the bytes counted are those of the turns.
            await admin.execute("CHECKPOINT")
            for _ in range(MEASURED_TURNS):
                await store.append(record.id, TURN)
            # The server counts what its own housekeeping writes as well, which only ever adds to a round.
            rounds = []
            for _ in range(5):
                before = await wal_position(admin)
                for _ in range(MEASURED_TURNS):
                    await store.append(record.id, TURN)
                rounds.append((await wal_position(admin) - before) / MEASURED_TURNS)
            written[length] = min(rounds)
    assert max(written.values()) / min(written.values()) < 1.3, written
    assert max(written.values()) < 8_192, written


async def test_a_turn_is_one_round_trip(postgres_url: str, owner: str, tmp_path: Path) -> None:
    backend = PostgresBackend(postgres_url, max_connections=1)
    await backend.open()
    store = backend.of(owner)
    record = await store.create(started(new_id(), now=store.now()))
    for _ in range(10):  # by then the driver has prepared the statement
        await store.append(record.id, TURN)
    with (tmp_path / "trace").open("wb") as trace:
        async with backend.connection() as connection:
            connection.pgconn.trace(trace.fileno())
        await store.append(record.id, TURN)
        async with backend.connection() as connection:
            connection.pgconn.untrace()
    await backend.close()
    sent = re.findall(r"\tF\t\d+\t(\w+)", (tmp_path / "trace").read_text())
    assert sent.count("Sync") == 1
    assert sent.count("Execute") == 1


QUESTIONS = {
    "a turn": "aforesaid.turn(%(owner)s, %(owner)s, %(id)s, now(), NULL, false, NULL, NULL, ARRAY['user'],"
    """ NULL, ARRAY[gen_random_uuid()::text], ARRAY['{"role": "user", "content": "x"}'])""",
    "the last messages": "aforesaid.tail(%(owner)s, %(owner)s, %(id)s, now(), 20, NULL, NULL)",
    "the last before a position": "aforesaid.tail(%(owner)s, %(owner)s, %(id)s, now(), 20, now(), 1)",
    "the first messages": "aforesaid.page(%(owner)s, %(owner)s, %(id)s, now(), 20, 0)",
    "messages by their ids": "aforesaid.known_messages(%(owner)s, %(owner)s, %(id)s, now(),"
    " ARRAY['a', 'b', 'c'])",
    "a turn after another": "aforesaid.turn(%(owner)s, %(owner)s, %(id)s, now(), 0, false, NULL, NULL,"
    """ ARRAY['user'], NULL, ARRAY[gen_random_uuid()::text], ARRAY['{"role": "user", "content": "x"}'])""",
    "a turn that is known in part": "aforesaid.turn(%(owner)s, %(owner)s, %(id)s, now(), NULL, false,"
    " ARRAY['nobody'], ARRAY[1::bigint], ARRAY['user'], NULL, ARRAY[gen_random_uuid()::text],"
    """ ARRAY['{"role": "user", "content": "x"}'])""",
}
MUCH_SAID = """
INSERT INTO aforesaid.messages (
    owner, conversation_id, at, sequence, role, message_key, revision, stored_at, body
)
SELECT %(owner)s, %(id)s, now() + n * interval '1 ms', n, 'user', 'key ' || n, 2, now(), repeat('said ', 200)
FROM generate_series(1, 20000) AS n
"""
NOT_ANALYSED = """
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN
        SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'aforesaid.messages'::regclass
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', part);
    END LOOP;
END
$$
"""


async def blocks_touched(connection: psycopg.AsyncConnection, question: str, owner: str, record: str) -> int:
    """By the last of several times: the server makes its plans anew at first."""
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {question}"
    for _ in range(10):
        cursor = await connection.execute(explained.encode(), {"owner": owner, "id": record})
        ((plan,),) = await cursor.fetchall()
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


async def connected(url: str, owner: str) -> psycopg.AsyncConnection:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("SELECT set_config('aforesaid.owner', %s, false)", (owner,))
    return connection


async def test_the_past_is_not_read_however_long_ago_it_was_analysed(
    owner: str, databases: Databases
) -> None:
    """The server plans by what it knows of a table, which here is nothing, and keeps its plans: one session
    makes them before the log grows, one after."""
    url = databases.furnished()
    backend = PostgresBackend(url)
    await backend.open()
    store = backend.of(owner)
    short, long = [(await store.create(started(new_id(), now=store.now()))).id for _ in range(2)]
    await backend.close()
    async with await connected(url, owner) as early, await connected(url, owner) as late:
        await early.execute(NOT_ANALYSED)
        few = {name: await blocks_touched(early, asked, owner, short) for name, asked in QUESTIONS.items()}
        await early.execute(MUCH_SAID.encode(), {"owner": owner, "id": long})
        await early.execute("UPDATE aforesaid.conversations SET next_sequence = 20001 WHERE id = %s", (long,))
        many = {
            name: [await blocks_touched(session, asked, owner, long) for session in (early, late)]
            for name, asked in QUESTIONS.items()
        }
    # Twenty messages may lie in as many places, and the index over all is a level or two higher; that is all.
    assert {name: read for name, read in many.items() if max(read) > few[name] + 40} == {}


async def test_what_may_not_sort_is_not_compiled_either(backend: PostgresBackend) -> None:
    """Up to PostgreSQL 17 a sort that is not allowed costs so much that it seems worth compiling: 0.1 s."""
    async with backend.connection() as connection:
        cursor = await connection.execute(
            "SELECT proname, proconfig FROM pg_proc"
            " WHERE pronamespace = 'aforesaid'::regnamespace AND 'enable_sort=off' = ANY (proconfig)"
        )
        settings = dict(await cursor.fetchall())
    assert {"messages_with_keys", "page", "tail"} <= set(settings)
    assert [name for name, given in settings.items() if "jit=off" not in given] == []


async def test_a_rewrite_that_is_refused_leaves_everything(
    store: PostgresStore, owner: str, postgres_url: str
) -> None:
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, TURN)
    async with await connected(postgres_url, owner) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation, match="an id stands twice"):
            await connection.execute(
                "SELECT aforesaid.turn(%s, %s, %s, now(), NULL, true, NULL, NULL, ARRAY['user', 'user'],"
                " NULL, ARRAY['k', 'k'], ARRAY['{}', '{}'])",
                (owner, owner, record.id),
            )
    assert [entry.message.content for entry in await store.tail(record.id, limit=9)] == [
        message.content for message in TURN
    ]
