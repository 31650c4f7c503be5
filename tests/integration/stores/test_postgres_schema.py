"""The database's schema: made once, brought up to date, left alone when it is not ours. And the pool."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from aforesaid.errors import (
    InvalidSetting,
    MissingExtra,
    StoreClosed,
    StoreError,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.model.conversations import Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores._sql_files import migrations, queries, sql_file
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.stores.postgres.connections import PACKAGE, translated
from aforesaid.stores.urls import backend_for
from tests.servers.postgres import Databases

CATALOG = {
    "columns": """
        SELECT table_schema, table_name, column_name, data_type, is_nullable, column_default, collation_name,
            generation_expression
        FROM information_schema.columns WHERE table_schema IN ('aforesaid', 'api')""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'aforesaid'::regnamespace""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname IN ('aforesaid', 'api')",
    "functions": """
        SELECT oid::regprocedure::text, pg_get_functiondef(oid), array_remove(proacl::text[], NULL) IS NULL
        FROM pg_proc WHERE pronamespace = 'aforesaid'::regnamespace""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname IN ('aforesaid', 'api')",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "policies": """
        SELECT tablename, policyname, permissive, cmd, qual, with_check FROM pg_policies
        WHERE schemaname = 'aforesaid'""",
    "security": """
        SELECT relname, relrowsecurity, relforcerowsecurity, relispartition, reloptions FROM pg_class
        WHERE relnamespace IN ('aforesaid'::regnamespace, 'api'::regnamespace)""",
}


@pytest.fixture
def fresh_url(databases: Databases) -> str:
    return databases.new()


@pytest.fixture
def fresh(fresh_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        yield connection


async def opened(url: str) -> PostgresBackend:
    backend = PostgresBackend(url)
    await backend.open()
    return backend


def catalog(connection: psycopg.Connection[Any]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(connection.execute(sql.encode()).fetchall(), key=repr) for name, sql in CATALOG.items()
    }


def test_the_schema_is_all_migrations_applied(databases: Databases) -> None:
    with psycopg.connect(databases.new()) as one, psycopg.connect(databases.new()) as other:
        one.execute(sql_file(PACKAGE, "schema.sql").encode())
        for _, sql in migrations(PACKAGE):
            other.execute(sql.encode())
        expected, found = catalog(one), catalog(other)
    assert found == expected
    assert all(expected.values())


async def test_many_who_open_at_once_make_the_schema_once(
    fresh_url: str, fresh: psycopg.Connection[Any]
) -> None:
    backends = await asyncio.gather(*(opened(fresh_url) for _ in range(8)))
    for backend in backends:
        await backend.close()
    made = fresh.execute("SELECT version FROM aforesaid.migrations ORDER BY version").fetchall()
    assert made == [(number,) for number, _ in migrations(PACKAGE)]


async def test_a_newer_release_is_left_as_it_is(fresh_url: str, fresh: psycopg.Connection[Any]) -> None:
    await (await opened(fresh_url)).close()
    fresh.execute("INSERT INTO aforesaid.migrations (version) VALUES (999)")
    with pytest.raises(StoreForeign, match=r"newer release of Aforesaid \(schema 999\)"):
        await opened(fresh_url)


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE SCHEMA api; CREATE TABLE api.conversations (id uuid)",
        "CREATE SCHEMA aforesaid; CREATE TABLE aforesaid.recordings (id uuid)",
    ],
)
async def test_what_another_program_has_made_is_left_as_it_is(
    fresh_url: str, fresh: psycopg.Connection[Any], theirs: str
) -> None:
    fresh.execute(theirs.encode())
    with pytest.raises(StoreForeign, match="another program"):
        await opened(fresh_url)
    assert fresh.execute("SELECT to_regclass('aforesaid.messages')").fetchone() == (None,)


async def test_an_api_schema_with_other_things_in_it_is_used(
    fresh_url: str, fresh: psycopg.Connection[Any]
) -> None:
    fresh.execute("CREATE SCHEMA api")
    fresh.execute("CREATE TABLE api.invoices (id uuid)")
    await (await opened(fresh_url)).close()
    assert fresh.execute("SELECT count(*) FROM api.conversations").fetchone() == (0,)


async def test_a_role_that_may_not_create_schemas_gets_an_error_that_names_the_reason(
    databases: Databases, fresh_url: str
) -> None:
    role = f"guest_{new_id()[:8]}_{new_id()[-6:]}"
    databases.role(role)
    guest = re.sub(r"//\w+:\w+@", f"//{role}:{role}@", fresh_url)
    with pytest.raises(StoreError, match="permission denied for database"):
        await opened(guest)


async def test_another_encoding_is_refused(databases: Databases, fresh_url: str) -> None:
    name = f"latin_{new_id()[-12:]}"
    databases.run(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StoreForeign, match="UTF8"):
            await opened(re.sub(r"/\w+$", f"/{name}", databases.admin_url))
    finally:
        databases.run(f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_server_that_is_not_there_is_unavailable_and_no_password_shows() -> None:
    backend = PostgresBackend("postgresql://me:swordfish@127.0.0.1:1/nothing")
    with pytest.raises(StoreUnavailable, match=r"nothing at 127\.0\.0\.1:1") as caught:
        await backend.open()
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://host/db?nonsense=1", "postgresql://host/db?sslmode"])
def test_a_url_that_cannot_be_read_is_an_error_without_its_password(url: str) -> None:
    with pytest.raises(InvalidSetting, match="postgresql://user@host") as caught:
        backend_for(url.replace("//", "//me:swordfish@"))
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_both_schemes_open_the_store(postgres_url: str, scheme: str) -> None:
    backend = backend_for(postgres_url.replace("postgresql://", f"{scheme}://"))
    await backend.open()
    assert (await backend.of("nobody yet").find(Query())).conversations == ()
    await backend.close()


async def test_a_pool_that_was_handed_in_is_used_and_stays_open(postgres_url: str) -> None:
    async with AsyncConnectionPool(
        postgres_url, min_size=1, max_size=2, kwargs={"row_factory": dict_row}, open=False
    ) as pool:
        backend = PostgresBackend(pool=pool)
        await backend.open()
        store = backend.of(f"pooled-{new_id()}")
        record = await store.resume("kitchen", started(new_id(), now=store.now()))
        await asyncio.gather(
            *(store.append(record.id, [Message(role="user", content=number)]) for number in range(10))
        )
        async with store.watch(record.id) as changes:
            await store.append(record.id, [Message(role="user", content="heard")])
            assert (await anext(changes)).revision == 11
        await backend.close()
        with pytest.raises(StoreClosed):
            await store.get(record.id)
        async with pool.connection() as connection:
            cursor = await connection.execute("SELECT count(*) AS n FROM aforesaid.messages")
            seen: Any = await cursor.fetchone()
            assert seen == {"n": 0}  # no owner's name was left on the connection
        await backend.open()
        assert len(await store.tail(record.id, limit=99)) == 11
        await backend.close()


async def test_a_pool_that_is_closed_makes_a_closed_store(postgres_url: str) -> None:
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(postgres_url, min_size=1, open=False)
    await pool.open()
    backend = PostgresBackend(pool=pool)
    await backend.open()
    await pool.close()
    with pytest.raises(StoreClosed):
        await backend.of("x").find(Query())
    await backend.close()


@pytest.mark.parametrize("given", [{}, {"url": "postgresql://x", "pool": object()}])
def test_a_url_or_a_pool_is_needed(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="one of the two"):
        PostgresBackend(**given)


async def test_closing_waits_for_what_was_accepted(postgres_url: str) -> None:
    backend = await opened(postgres_url)
    store = backend.of(f"closing-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    writing = [
        asyncio.create_task(store.append(record.id, [Message(role="user", content=number)]))
        for number in range(40)
    ]
    await asyncio.sleep(0)
    await backend.close()
    appended = await asyncio.gather(*writing)
    assert len({one.conversation.revision for one in appended}) == 40


async def test_who_is_cancelled_while_closing_leaves_no_connection(postgres_url: str) -> None:
    backend = PostgresBackend(postgres_url, max_connections=2)
    await backend.open()
    async with backend.connection() as under_way:
        closing = asyncio.create_task(backend.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert under_way.closed


async def test_cancelling_leaves_a_pool_that_works(postgres_url: str) -> None:
    backend = PostgresBackend(postgres_url, max_connections=2)
    await backend.open()
    store = backend.of(f"cancelled-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    for round_ in range(20):
        tasks: list[asyncio.Task[Any]] = []
        for number in range(4):
            turn = [Message(role="user", content=number)] * 2
            tasks.append(asyncio.create_task(store.append(record.id, turn)))
            tasks.append(asyncio.create_task(store.tail(record.id, limit=5)))
        for _ in range(round_):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(
        *(store.append(record.id, [Message(role="user", content="after")] * 2) for _ in range(8))
    )
    entries = await store.page(record.id, limit=10_000)
    assert [e.message.content for e in entries[::2]] == [e.message.content for e in entries[1::2]]
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    await backend.close()


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_call_that_is_cancelled_while_the_server_works_leaves_no_broken_connection(
    postgres_url: str, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    """Cancelled more than once: by a deadline, and again by the caller that waits for it."""
    backend = PostgresBackend(postgres_url, max_connections=1)
    await backend.open()
    store = backend.of(f"broken-off-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: store.append(record.id, [Message(role="user", content="broken off")] * 2),
        lambda: store.tail(record.id, limit=5),
    ]
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        for call in calls:
            await other.execute("LOCK TABLE aforesaid.conversations, aforesaid.messages")
            task = asyncio.create_task(call())
            while not await _somebody_waits_for_a_lock(other):
                pass
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([task])
            assert task.cancelled()
            await other.rollback()
            async with backend.connection() as connection:
                assert connection.pgconn.pipeline_status == PipelineStatus.OFF
                assert connection.pgconn.transaction_status == TransactionStatus.IDLE
    assert not [one for one in caplog.messages if "rollback" in one or "terminating" in one]
    await store.append(record.id, [Message(role="user", content="stored")])
    said = [entry.message.content for entry in await store.tail(record.id, limit=5)]
    assert (said.count("broken off"), said.count("stored")) in ((0, 1), (2, 1)), "a whole turn, or none"
    await backend.close()


async def _somebody_waits_for_a_lock(connection: psycopg.AsyncConnection[Any]) -> bool:
    waiting = await connection.execute(
        "SELECT FROM pg_locks WHERE NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return await waiting.fetchone() is not None


async def test_after_the_server_has_dropped_its_connections_the_store_comes_back(
    postgres_url: str, postgres_admin_url: str
) -> None:
    backend = PostgresBackend(postgres_url, max_connections=1)
    await backend.open()
    store = backend.of(f"dropped-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    async with await psycopg.AsyncConnection.connect(postgres_admin_url, autocommit=True) as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'aforesaid' AND datname = current_database()"
            " OR query LIKE '%%aforesaid.%%' AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StoreUnavailable):
        await store.get(record.id)
    assert await store.get(record.id) == record
    await backend.close()


async def test_many_dropped_idle_connections_fail_one_call_at_most(
    postgres_url: str, postgres_admin_url: str
) -> None:
    backend = PostgresBackend(postgres_url, max_connections=6)
    await backend.open()
    store = backend.of(f"dropped-{new_id()}")
    record = await store.create(started(new_id(), now=store.now()))
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(backend.connection()) for _ in range(6)]
        pids = [connection.info.backend_pid for connection in idle]
    async with await psycopg.AsyncConnection.connect(postgres_admin_url, autocommit=True) as admin:
        ended = await admin.execute(
            "SELECT bool_and(pg_terminate_backend(pid, 5000)) FROM unnest(%s::int[]) AS pid", [pids]
        )
        assert await ended.fetchone() == (True,)
    failed = 0
    for _ in range(8):
        try:
            assert await store.get(record.id) == record
        except StoreUnavailable:
            failed += 1
    assert failed <= 1
    await backend.close()


async def test_errors_of_the_driver_never_come_through(
    fresh_url: str, fresh: psycopg.Connection[Any]
) -> None:
    backend = await opened(fresh_url)
    store = backend.of("ann")
    record = await store.create(started(new_id(), now=store.now()))
    fresh.execute("ALTER TABLE aforesaid.messages RENAME TO gone")
    with pytest.raises(StoreError, match=r"aforesaid\.messages"):
        await store.tail(record.id, limit=1)
    with pytest.raises(StoreError) as caught:
        await store.append(record.id, [Message(role="user", content="words that errors must not repeat")])
    assert "words" not in str(caught.value)
    await backend.close()


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (psycopg.errors.DeadlockDetected, StoreUnavailable),
        (psycopg.errors.DiskFull, StoreUnavailable),
        (psycopg.errors.AdminShutdown, StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction, StoreUnavailable),
        (psycopg.InterfaceError, StoreUnavailable),
        (psycopg.errors.DataCorrupted, StoreError),
        (psycopg.errors.ProgramLimitExceeded, ValueError),
        (psycopg.ProgrammingError, StoreError),
    ],
)
def test_every_error_has_a_name_of_ours(error: type[psycopg.Error], ours: type[Exception]) -> None:
    with pytest.raises(ours), translated("server"):
        raise error("something")


def test_every_key_starts_with_the_owner(fresh: psycopg.Connection[Any]) -> None:
    with fresh.transaction():
        fresh.execute(sql_file(PACKAGE, "schema.sql").encode())
    keys = fresh.execute(
        "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'aforesaid'::regnamespace AND contype IN ('p', 'f', 'u')"
    ).fetchall()
    assert len(keys) > 20
    for name, table, definition in keys:
        if table not in ("aforesaid.migrations", "aforesaid.notification_key"):
            kind = r"(PRIMARY KEY|FOREIGN KEY|UNIQUE( NULLS NOT DISTINCT)?)"
            assert re.match(rf"{kind} \(owner, ", definition), (name, definition)
    indexed = {
        found[1]
        for (definition,) in fresh.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'conversations'"
        )
        if (found := re.search(r"\(owner, (\w+)", definition))
    }
    wanted = {"id", "client_id", "status", "priority", "channel", "last_message_at", "created_at"}
    assert wanted <= indexed


def test_every_query_names_the_owner() -> None:
    """Also where row-level security would do: who reads the query sees whose rows it touches."""
    exempt = {"schema_objects", "schema_version", "server_time", "set_owner", "purge_all_owners", "owners"}
    exempt |= {
        "listen",
        "announce_listener",
        "notify_listeners",
        "open_writers",
        "use_one_snapshot",
        "await_replication",
        "data_identity",
        "extension",
        "extensions_ready",
        "tables",
        "disk_usage",
    }
    for name, sql in queries(PACKAGE).items():
        assert name in exempt or "%(owner)s" in sql or "%(owners)s" in sql, name


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module in [name for name in sys.modules if name.startswith("aforesaid.stores.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr("aforesaid.stores.postgres")  # `from package import module` looks there first
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"aforesaid\[postgres\]"):
        backend_for("postgresql://localhost/x")
