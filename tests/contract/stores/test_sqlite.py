"""The SQLite store is a store; and what is its own: the file, the threads, the processes."""

import asyncio
import os
import re
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, settings

from aforesaid.contracts import Backend
from aforesaid.errors import InvalidInput, StoreDamaged, StoreForeign, StoreUnavailable
from aforesaid.model.conversations import Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores._sql_files import migrations, queries, sql_file
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.connections import PACKAGE, connect
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock, StoreContract, store_machine
from tests.examples import examples


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        backend = SQLiteBackend(str(tmp_path / "memory.db"), clock=clock)
        await backend.open()
        yield backend
        await backend.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


async def opened(path: Path) -> SQLiteBackend:
    backend = SQLiteBackend(str(path))
    await backend.open()
    return backend


@pytest.mark.slow
def test_random_operations_give_the_same_as_in_memory(tmp_path: Path) -> None:
    def make(clock: FixedClock) -> Backend:
        return SQLiteBackend(str(tmp_path / "machine.db"), clock=clock, synchronous="normal")

    machine = store_machine(make)
    case = machine.TestCase
    case.settings = settings(examples(100), stateful_step_count=25, suppress_health_check=list(HealthCheck))
    case().runTest()


class TestTheFile:
    async def test_what_was_stored_is_there_after_a_restart(self, path: Path) -> None:
        backend = await opened(path)
        store = backend.of("erin")
        record = await store.resume("kitchen", started(new_id(), now=store.now()))
        await store.append(record.id, [Message(role="user", content="remember me")])
        before = await store.get(record.id)
        await backend.close()

        backend = await opened(path)
        store = backend.of("erin")
        assert await store.session("kitchen") == before
        (entry,) = await store.tail(record.id, limit=5)
        assert entry.message.content == "remember me"
        await backend.close()

    async def test_only_its_owner_can_read_it(self, path: Path) -> None:
        await (await opened(path)).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_the_log_is_written_ahead_and_in_full_by_default(self, path: Path) -> None:
        backend = await opened(path)
        modes = await backend.writer.run(
            lambda db: (db.pragma("journal_mode"), db.pragma("synchronous"), db.pragma("secure_delete"))
        )
        assert modes == ("wal", 2, 1)
        await backend.close()

    async def test_the_url_can_ask_for_less(self, path: Path) -> None:
        backend = backend_for(f"sqlite:///{path}?synchronous=normal")
        assert isinstance(backend, SQLiteBackend)
        await backend.open()
        assert await backend.writer.run(lambda db: db.pragma("synchronous")) == 1
        await backend.close()

    @pytest.mark.parametrize(
        "url", ["sqlite:///x.db?synchronous=off", "sqlite:///x.db?sync=full", "sqlite://", "sqlite:///"]
    )
    def test_a_url_that_makes_no_sense_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidInput, match=r"synchronous|option|path"):
            backend_for(url)

    async def test_a_file_of_another_program_is_named_and_left_alone(self, path: Path) -> None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE bookmarks (url TEXT)")
        other.close()
        before = path.read_bytes()
        with pytest.raises(StoreForeign, match=str(path)):
            await opened(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        "content", [b"dear diary\n" * 500, os.urandom(8192), b"SQLite format 3\0" + b"x" * 5000]
    )
    async def test_a_file_that_is_no_database_is_named_and_left_alone(
        self, path: Path, content: bytes
    ) -> None:
        path.write_bytes(content)
        with pytest.raises((StoreDamaged, StoreForeign), match=str(path)):
            await opened(path)
        assert path.read_bytes() == content

    async def test_a_damaged_file_is_reported_and_named(self, path: Path) -> None:
        backend = await opened(path)
        store = backend.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        for number in range(200):
            await store.append(record.id, [Message(role="user", content=f"{number} " * 200)])
        await backend.close()
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(os.urandom(size - 8192))
        with pytest.raises(StoreDamaged, match=str(path)):
            backend = await opened(path)
            await backend.of("erin").page(record.id, limit=1000)
        await backend.close()

    async def test_a_file_of_a_newer_release_is_left_alone(self, path: Path) -> None:
        await (await opened(path)).close()
        newer = apsw.Connection(str(path))
        newer.execute("PRAGMA user_version = 999")
        newer.close()
        with pytest.raises(StoreForeign, match="newer release"):
            await opened(path)

    async def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable, match="nowhere"):
            await opened(tmp_path / "nowhere" / "memory.db")

    async def test_a_folder_in_its_place_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable, match=str(tmp_path)):
            await opened(tmp_path)

    async def test_a_full_disk_is_our_error_and_loses_nothing(self, path: Path) -> None:
        backend = await opened(path)
        store = backend.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        await store.append(record.id, [Message(role="user", content="kept")])
        pages = await backend.writer.run(lambda db: db.pragma("page_count"))
        await backend.writer.run(lambda db: db.pragma("max_page_count", pages + 1))
        with pytest.raises(StoreUnavailable, match="full") as caught:
            await store.append(record.id, [Message(role="user", content="x" * 100_000)])
        assert isinstance(caught.value.__cause__, apsw.FullError)
        await backend.writer.run(lambda db: db.pragma("max_page_count", 2**30))
        await store.append(record.id, [Message(role="user", content="after")])
        assert [e.message.content for e in await store.page(record.id, limit=9)] == ["kept", "after"]
        await backend.close()


class TestTheSchema:
    def test_the_schema_is_what_all_migrations_leave(self) -> None:
        whole, stepwise = apsw.Connection(":memory:"), apsw.Connection(":memory:")
        whole.execute(sql_file(PACKAGE, "schema.sql"))
        for _, sql in migrations(PACKAGE):
            stepwise.execute(sql)
        query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
        assert whole.execute(query).fetchall() == stepwise.execute(query).fetchall()

    async def test_many_who_open_first_apply_the_migrations_once(self, path: Path) -> None:
        backends = [SQLiteBackend(str(path)) for _ in range(8)]
        await asyncio.gather(*(backend.open() for backend in backends))
        store = backends[0].of("erin")
        await store.create(started(new_id(), now=store.now()))
        for backend in backends:
            assert len((await backend.of("erin").find(Query())).conversations) == 1
            await backend.close()

    async def test_every_read_by_conversation_uses_an_index(self, path: Path) -> None:
        await (await opened(path)).close()
        db = connect(str(path), synchronous="full")
        for name, sql in queries(PACKAGE).items():
            if name in ("purge_everybody", "owners", "append_messages") or name.startswith("insert"):
                continue
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", _nothing(sql))]
            # What a bounded query has found or is given is little, the residue is one row, and the numbers
            # that SQLite has assigned are one row per table.
            small = (
                "VIRTUAL TABLE",
                "SCAN m",
                "index_residue",
                "(subquery",
                "CONSTANT ROW",
                "sqlite_sequence",
            )
            scans = [s for s in plan if s.startswith("SCAN") and not any(name in s for name in small)]
            assert not scans, (name, plan)
            sorts = [step for step in plan if "TEMP B-TREE" in step]
            assert not sorts, (name, plan)
        db.close()


def _nothing(sql: str) -> tuple[None, ...] | dict[str, None]:
    """NULL for every parameter of the query."""
    names = set(re.findall(r":(\w+)", sql))
    if names:
        return dict.fromkeys(names)
    numbered = set(re.findall(r"\?\d", sql))
    return (None,) * (len(numbered) or sql.count("?"))


class TestGroupCommit:
    async def test_turns_that_wait_together_share_a_commit(self, path: Path) -> None:
        backend = await opened(path)
        store = backend.of("erin")
        records = [await store.create(started(new_id(), now=store.now())) for _ in range(64)]
        commits = 0

        def count() -> bool:
            nonlocal commits
            commits += 1
            return False

        await backend.writer.run(lambda db: db.set_commit_hook(count))
        await asyncio.gather(*(store.append(r.id, [Message(role="user", content="x")]) for r in records))
        assert commits < 16
        for record in records:
            assert len(await store.tail(record.id, limit=5)) == 1
        await backend.close()

    async def test_a_turn_that_is_refused_does_not_take_others_along(self, path: Path) -> None:
        backend = await opened(path)
        store = backend.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        attempts = [
            store.append(
                record.id, [Message(role="user", content=n)], expected_revision=99 if n % 3 else None
            )
            for n in range(30)
        ]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(result, Exception) for result in results) == 20
        stored = [entry.message.content for entry in await store.page(record.id, limit=99)]
        assert sorted(stored) == list(range(0, 30, 3))
        await backend.close()

    async def test_closing_finishes_what_was_accepted(self, path: Path) -> None:
        backend = await opened(path)
        store = backend.of("erin")
        record = await store.create(started(new_id(), now=store.now()))
        writing = [
            asyncio.create_task(store.append(record.id, [Message(role="user", content=n)])) for n in range(50)
        ]
        await asyncio.sleep(0)  # every task has handed its turn over
        await backend.close()
        await asyncio.gather(*writing)
        backend = await opened(path)
        assert len(await backend.of("erin").page(record.id, limit=99)) == 50
        await backend.close()


WRITER = """
import asyncio, sys
import aforesaid

async def main(path, conversation_id, name, tasks, turns):
    async with aforesaid.open(f"sqlite:///{path}", retention=aforesaid.Retention(sweep_every=None)) as memory:
        erin = memory.of("erin")
        async def write(task):
            for number in range(turns):
                async with erin.turn(conversation_id) as turn:
                    key = f"{name}/{task}/{number}"
                    turn.user(key)
                    turn.tool({"key": key})
                    turn.assistant(f"{key} done")
        await asyncio.gather(*(write(task) for task in range(tasks)))

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
"""


@pytest.mark.slow
async def test_ten_thousand_turns_by_four_processes_are_all_there_once_and_whole(path: Path) -> None:
    processes, tasks, turns = 4, 16, 157
    backend = await opened(path)
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WRITER,
            str(path),
            record.id,
            str(name),
            str(tasks),
            str(turns),
            stderr=asyncio.subprocess.PIPE,
        )
        for name in range(processes)
    ]
    for writer in writers:
        _, errors = await writer.communicate()
        assert (writer.returncode, errors.decode()) == (0, "")
    entries = await store.page(record.id, limit=100_000)
    expected = processes * tasks * turns
    assert expected >= 10_000
    assert len(entries) == expected * 3
    assert [entry.sequence for entry in entries] == list(range(1, expected * 3 + 1))
    keys = []
    for start in range(0, len(entries), 3):
        first, second, third = (entry.message.content for entry in entries[start : start + 3])
        assert second == {"key": first}
        assert third == f"{first} done"
        keys.append(first)
    assert len(set(keys)) == expected
    await backend.close()


async def bytes_of_a_turn(backend: SQLiteBackend, conversation_id: str, turns: int = 40) -> float:
    """Bytes that a turn adds to the write-ahead log."""
    other = apsw.Connection(backend.path)
    other.pragma("wal_checkpoint", "TRUNCATE")
    for number in range(turns):
        message = Message(role="user", content=f"turn {number:04}", message_id=new_id())
        await backend.of("erin").append(conversation_id, [message])
    size = os.path.getsize(f"{backend.path}-wal")
    other.close()
    return size / turns


async def test_a_turn_writes_as_many_bytes_to_a_long_conversation_as_to_a_short_one(path: Path) -> None:
    backend = await opened(path)
    store = backend.of("erin")
    short, long = [await store.create(started(new_id(), now=store.now())) for _ in range(2)]
    await store.append(short.id, [Message(role="user", content="x") for _ in range(10)])
    for _ in range(40):
        turn = [Message(role="user", content="x", message_id=new_id()) for _ in range(500)]
        await store.append(long.id, turn)
    few, many = await bytes_of_a_turn(backend, short.id), await bytes_of_a_turn(backend, long.id)
    assert many / few < 1.3
    await backend.close()


async def test_a_file_that_cannot_be_opened_whole_is_not_held(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[apsw.Connection] = []

    def refused(db: apsw.Connection) -> None:
        made.append(db)
        raise apsw.IOError("the disk says no")

    backend = SQLiteBackend(str(path))
    monkeypatch.setattr(backend.appender, "prepare", refused)
    with pytest.raises(StoreUnavailable, match=re.escape(str(path))):
        await backend.open()
    with pytest.raises(apsw.ConnectionClosedError):
        made[0].execute("SELECT 1")
