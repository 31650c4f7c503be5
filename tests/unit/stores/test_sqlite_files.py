"""The file of an open SQLite store is removed, replaced or locked: a turn is stored in the file that has the
name, or refused in time."""

import asyncio
import os
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from aforesaid.errors import InvalidSetting, StoreBusy, StoreReplaced, StoreUnavailable
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.sqlite.workers import Writer
from aforesaid.stores.urls import backend_for
from tests.processes.opening import OPENED, opening_together

SECONDS = 120
"""Far longer than anything here takes; only what hangs meets it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "memory.db"


@pytest.fixture
async def backend(path: Path) -> AsyncIterator[SQLiteBackend]:
    backend = SQLiteBackend(str(path))
    await backend.open()
    yield backend
    await backend.close()


async def conversation(backend: SQLiteBackend) -> str:
    store = backend.of("erin")
    return (await store.create(started(new_id(), now=store.now()))).id


def said(text: str) -> list[Message]:
    return [Message(role="user", content=text, message_id=text)]


async def texts(path: Path, conversation_id: str) -> list[object]:
    """The messages in the file that has the name now, as a fresh process reads them."""
    backend = SQLiteBackend(str(path))
    await backend.open()
    try:
        entries = await backend.of("erin").tail(conversation_id, limit=1000)
        return [entry.message.content for entry in entries]
    finally:
        await backend.close()


def remove(path: Path) -> None:
    path.unlink()


def remove_with_log(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()


def remove_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def remove_shared_memory(path: Path) -> None:
    Path(f"{path}-shm").unlink()


def replace_by_empty(path: Path) -> None:
    fresh = path.with_name("fresh.db")
    fresh.touch()
    os.replace(fresh, path)


def replace_by_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    os.replace(copy, path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replace_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.mkdir()


CHANGES: list[Callable[[Path], None]] = [
    remove,
    remove_with_log,
    remove_log,
    remove_shared_memory,
    replace_by_empty,
    replace_by_copy,
    move_away,
    replace_folder,
]


@pytest.mark.parametrize("change", CHANGES)
class TestTheFileIsRemovedOrReplaced:
    async def test_no_write_is_acknowledged(
        self, path: Path, backend: SQLiteBackend, change: Callable[[Path], None]
    ) -> None:
        store = backend.of("erin")
        one = await conversation(backend)
        await store.append(one, said("before"))
        await asyncio.to_thread(change, path)
        with pytest.raises(StoreReplaced, match=r"memory\.db.*nothing was stored.*open it again"):
            await store.append(one, said("after"))
        with pytest.raises(StoreReplaced):
            await store.create(started(new_id(), now=store.now()))
        with pytest.raises(StoreReplaced):
            await store.delete(one)

    async def test_reads_are_refused_once_it_is_known(
        self, path: Path, backend: SQLiteBackend, change: Callable[[Path], None]
    ) -> None:
        one = await conversation(backend)
        await asyncio.to_thread(change, path)
        with pytest.raises(StoreReplaced):
            await backend.of("erin").append(one, said("after"))
        with pytest.raises(StoreReplaced):
            await backend.of("erin").get(one)

    async def test_many_turns_at_once_are_all_refused(
        self, path: Path, backend: SQLiteBackend, change: Callable[[Path], None]
    ) -> None:
        one = await conversation(backend)
        await asyncio.to_thread(change, path)
        turns = (backend.of("erin").append(one, said(f"{number}")) for number in range(200))
        results = await asyncio.gather(*turns, return_exceptions=True)
        assert all(isinstance(result, StoreReplaced) for result in results)

    async def test_opened_again_it_works(
        self, path: Path, backend: SQLiteBackend, change: Callable[[Path], None]
    ) -> None:
        one = await conversation(backend)
        await asyncio.to_thread(change, path)
        with pytest.raises(StoreReplaced):
            await backend.of("erin").append(one, said("after"))
        await backend.close()
        await backend.open()
        fresh = await conversation(backend)
        await backend.of("erin").append(fresh, said("again"))
        assert await texts(path, fresh) == ["again"]


async def test_a_file_that_comes_back_is_used_again_and_lacks_what_was_refused(
    path: Path, backend: SQLiteBackend
) -> None:
    one = await conversation(backend)
    await backend.of("erin").append(one, said("before"))
    moved = path.with_name("moved.db")
    await asyncio.to_thread(path.rename, moved)
    with pytest.raises(StoreReplaced):
        await backend.of("erin").append(one, said("refused"))
    await asyncio.to_thread(moved.rename, path)
    assert (await backend.of("erin").get(one)) is not None
    await backend.of("erin").append(one, said("after"))
    assert await texts(path, one) == ["before", "after"]


async def test_closing_leaves_the_log_of_the_file_that_has_the_name(
    path: Path, backend: SQLiteBackend, tmp_path: Path
) -> None:
    """The last connection to close removes the log by its name: it must not be the log of another file."""
    await conversation(backend)
    other = tmp_path / "other"
    other.mkdir()
    restored = SQLiteBackend(str(other / "memory.db"))
    await restored.open()
    one = await conversation(restored)
    await restored.of("erin").append(one, said("restored"))

    def restore() -> None:
        for suffix in ("", "-wal", "-shm"):
            os.replace(f"{other / 'memory.db'}{suffix}", f"{path}{suffix}")

    await asyncio.to_thread(restore)
    with pytest.raises(StoreReplaced):
        await conversation(backend)
    await backend.close()
    assert await texts(path, one) == ["restored"]
    await restored.close()


async def test_a_link_that_leads_elsewhere_is_noticed(path: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    second.touch()
    path.symlink_to(first)
    backend = SQLiteBackend(str(path))
    await backend.open()
    one = await conversation(backend)

    def lead_elsewhere() -> None:
        path.unlink()
        path.symlink_to(second)

    await asyncio.to_thread(lead_elsewhere)
    with pytest.raises(StoreReplaced):
        await backend.of("erin").append(one, said("after"))
    await backend.close()


async def test_a_change_of_the_working_folder_is_no_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = SQLiteBackend("relative.db")
    await backend.open()
    one = await conversation(backend)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    await backend.of("erin").append(one, said("still here"))
    await backend.close()
    assert await texts(tmp_path / "relative.db", one) == ["still here"]


@pytest.mark.parametrize("seed", range(6))
async def test_whenever_it_is_removed_what_was_acknowledged_was_in_the_file(
    path: Path, backend: SQLiteBackend, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The file is moved away at a random moment of the writing thread. Whatever was acknowledged afterwards
    would be a turn that only the old file has."""
    store = backend.of("erin")
    ids = [await conversation(backend) for _ in range(8)]
    chance = random.Random(seed)
    moment = chance.randrange(200)
    moved = threading.Event()
    count = 0
    settled: list[bool] = []
    tell = Writer._deliver

    def step(writer: Writer) -> None:
        nonlocal count
        settled.extend(job.error is None and moved.is_set() for job in writer._undelivered)
        tell(writer)
        count += 1
        if count == moment:
            path.rename(path.with_name("moved.db"))
            moved.set()

    monkeypatch.setattr(Writer, "_deliver", step)

    async def talk(one: str) -> None:
        for number in range(200):
            await store.append(one, said(f"{number}"))

    results = await asyncio.gather(*map(talk, ids), return_exceptions=True)
    assert moved.is_set()
    assert all(isinstance(result, StoreReplaced) for result in results)


# Opening together


@pytest.mark.parametrize("lock", ["SHARED", "IMMEDIATE", "EXCLUSIVE"])
async def test_opening_a_new_file_waits_for_another_process_that_creates_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """The other process lets go when this one has begun to wait."""
    holder = apsw.Connection(str(path))
    holder.set_busy_timeout(SECONDS * 1000)
    holder.execute("BEGIN" if lock == "SHARED" else f"BEGIN {lock}")
    holder.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    waited = threading.Event()
    monkeypatch.setattr("aforesaid.stores.sqlite.connections.time.sleep", lambda _: waited.set())
    backend = SQLiteBackend(str(path), lock_timeout=SECONDS)
    opening = asyncio.create_task(backend.open())
    waiting = asyncio.create_task(asyncio.to_thread(waited.wait, SECONDS))
    await asyncio.wait([opening, waiting], return_when=asyncio.FIRST_COMPLETED)
    waited.set()
    holder.execute("COMMIT")
    holder.close()
    await opening
    await backend.close()
    await waiting


async def test_many_that_open_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    for number in range(40):
        backends = [SQLiteBackend(str(tmp_path / f"{number}.db")) for _ in range(8)]
        await asyncio.gather(*(backend.open() for backend in backends))
        await asyncio.gather(*(backend.close() for backend in backends))


@pytest.mark.slow
async def test_many_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    answers = await asyncio.to_thread(opening_together, tmp_path, processes=8, rounds=12)
    assert answers == [[OPENED] * 12] * 8


# Waiting for a lock


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the lock of the writer."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(SECONDS * 1000)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


class TestAnotherProcessHoldsTheLock:
    @pytest.fixture
    def url(self, path: Path) -> str:
        return f"sqlite:///{path}?lock_timeout=0.2"

    async def test_a_write_is_refused_in_time(self, path: Path, url: str) -> None:
        backend = backend_for(url)
        await backend.open()
        store = backend.of("erin")
        one = (await store.create(started(new_id(), now=store.now()))).id
        with locked(path), pytest.raises(StoreBusy, match="another process"):
            async with asyncio.timeout(SECONDS):
                await store.append(one, said("refused"))
        await store.append(one, said("stored"))
        await backend.close()
        assert await texts(path, one) == ["stored"]

    async def test_waits_do_not_add_up_in_the_queue(self, path: Path) -> None:
        """Ten batches of turns: only the first waits, the others have waited behind it."""
        backend = SQLiteBackend(str(path), lock_timeout=0.5)
        await backend.open()
        store = backend.of("erin")
        one = (await store.create(started(new_id(), now=store.now()))).id
        waits = 0

        def wait(attempt: int, sleep: Callable[[float], None] = time.sleep) -> None:
            nonlocal waits
            waits += 1
            sleep(attempt)

        with locked(path), pytest.MonkeyPatch.context() as patch:
            patch.setattr("aforesaid.stores.sqlite.connections.time.sleep", wait)
            turns = (store.append(one, said(f"{number}")) for number in range(640))
            results = await asyncio.gather(*turns, return_exceptions=True)
        assert all(isinstance(result, StoreBusy) for result in results)
        assert waits <= 0.5 / 0.0002 + 640
        await backend.close()

    async def test_opening_is_refused_in_time(self, path: Path, url: str) -> None:
        holder = apsw.Connection(str(path))
        holder.pragma("locking_mode", "exclusive")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusy):
            async with asyncio.timeout(SECONDS):
                await backend_for(url).open()
        holder.close()

    async def test_the_default_is_a_few_seconds(self, path: Path) -> None:
        assert SQLiteBackend(str(path)).lock_timeout == 5.0

    @pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon", ""])
    async def test_a_timeout_that_is_none_is_refused(self, path: Path, value: str) -> None:
        with pytest.raises(InvalidSetting, match="lock_timeout"):
            backend_for(f"sqlite:///{path}?lock_timeout={value}")


def test_both_are_reasons_to_spool() -> None:
    assert issubclass(StoreBusy, StoreUnavailable)
    assert issubclass(StoreReplaced, StoreUnavailable)
