"""The JSON file store is a store, and its file is what the documentation says."""

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from aforesaid.contracts import Backend
from aforesaid.errors import (
    InvalidMessage,
    InvalidSetting,
    RevisionConflict,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.model.conversations import Changes, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.encoded_logs import encode_messages
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.json_file.document import read_document, write_document
from aforesaid.stores.owner_data import OwnerData
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock, StoreContract, store_machine
from aforesaid.testing.contract.base import assistant, contents, new_conversation, user
from tests.examples import examples

EXAMPLE = Path(__file__).parents[2] / "data" / "conversations.json"
DOOR = "01952f3e-5a10-7c44-9f21-3b6d2c8e4a01"
DOCS = Path(__file__).parents[3] / "docs" / "stores" / "json-file.md"
HOUR = timedelta(hours=1)
CHILD = Path(__file__).parents[2] / "processes" / "json_file_writer.py"


class TestJsonFileStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, tmp_path: Path) -> AsyncIterator[Backend]:
        async with opened(tmp_path / "conversations.json", clock=clock) as backend:
            yield backend


def fresh_backend(clock: FixedClock) -> JsonFileBackend:
    return JsonFileBackend(Path(tempfile.mkdtemp(prefix="aforesaid-")) / "conversations.json", clock=clock)


class _RestartingMachine(store_machine(fresh_backend)):  # type: ignore[misc]
    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(Path(self.real.path).parent)

    @rule()
    def restart(self) -> None:
        self.runner.run(self.real.close())
        self.runner.run(self.real.open())


TestMachine = _RestartingMachine.TestCase
TestMachine.settings = settings(examples(20), stateful_step_count=30)


@contextlib.asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[JsonFileBackend]:
    backend = JsonFileBackend(path, **options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.json"


@pytest.fixture
def backup(path: Path) -> Path:
    return path.with_name("conversations.json.backup")


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


# Restart and the document


async def test_everything_survives_a_restart(path: Path) -> None:
    clock = FixedClock()
    async with opened(path, clock=clock) as backend:
        erin = backend.of("erin")
        record = await erin.resume("kitchen", new_conversation(erin, subject="lights", tags=("home", "é")))
        await erin.append(record.id, [user("late", message_id="m1"), assistant(["done", {"n": -(2**80)}])])
        await erin.append(record.id, [user("early", timestamp=datetime(2026, 1, 1, tzinfo=UTC))])
        await erin.rewrite(record.id, [user("one", message_id="m1", tokens={"o200k_base": 1}), user("two")])
        await erin.update(record.id, Changes(ttl=timedelta(days=1, microseconds=7), notes="a\nb"))
        bob = backend.of("bob")
        await bob.create(new_conversation(bob, ttl=None, channel="email"))
        before = await state_of(backend)
    async with opened(path, clock=clock) as backend:
        assert await state_of(backend) == before
        again = await backend.of("erin").append(record.id, [user("one", message_id="m1"), user("three")])
        assert (len(again.known), again.new[0].sequence) == (1, 6)


async def state_of(backend: Backend) -> Any:
    """All that can be read."""
    state = {}
    async for owner in backend.owners():
        store = backend.of(owner)
        records = (await store.find(Query())).conversations
        logs = [await store.page(record.id, limit=100) for record in records]
        state[owner] = (records, logs, await store.session("kitchen"))
    return state


async def test_the_example_file_reads_as_documented(path: Path) -> None:
    path.write_bytes(EXAMPLE.read_bytes())
    async with opened(path, clock=FixedClock()) as backend:
        assert [owner async for owner in backend.owners()] == ["erin", "tom"]
        erin = backend.of("erin")
        record = await erin.session("kitchen")
        assert record is not None
        assert (record.id, record.subject, record.tags) == (DOOR, "the front door", ("home",))
        assert (record.ttl, record.message_count, record.revision) == (timedelta(days=30), 4, 2)
        entries = await erin.page(DOOR, limit=10)
        assert [entry.message.role for entry in entries] == ["user", "assistant", "tool", "assistant"]
        assert [entry.sequence for entry in entries] == [1, 2, 3, 4]
        assert entries[3].message.content == "Yes, since 22:10. Gute Nacht 🌙"


def test_the_example_file_is_what_the_store_writes() -> None:
    text = EXAMPLE.read_bytes()
    assert write_document(read_document(text, where="the example")) == text


async def test_each_message_has_one_line(path: Path) -> None:
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        await store.append(record.id, [user("two\nlines"), assistant("one")])
    lines = path.read_text().splitlines()
    (first,) = [line for line in lines if "two\\nlines" in line]
    assert json.loads(first.strip().rstrip(","))["message"]["content"] == "two\nlines"
    assert '  "version": 2,' in lines


async def test_half_pairs_and_nul_survive_a_restart(path: Path) -> None:
    content = {"text": "NUL \0, half a pair \ud800 and \udfff", "\ud800": [None, 1e-7]}
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        await store.append(record.id, [user(content, extra={"also": content}), user("and more")])
    async with opened(path) as backend:
        (entry, _) = await backend.of("erin").page(record.id, limit=2)
        assert entry.message.content == content
        assert entry.message.extra == {"also": content}


async def test_unknown_keys_are_passed_over(path: Path) -> None:
    tree = json.loads(EXAMPLE.read_text())
    tree["note"] = "edited by hand"
    erin = tree["owners"]["erin"]
    for place in (erin, erin["conversations"][0], erin["conversations"][0]["record"]):
        place["note"] = {"any": ["thing"]}
    erin["conversations"][0]["messages"][0]["note"] = 1
    erin["conversations"][0]["messages"][0]["message"]["note"] = 2
    path.write_text(json.dumps(tree, indent=4), encoding="utf-8-sig")
    async with opened(path, clock=FixedClock()) as backend:
        assert len(await backend.of("erin").page(DOOR, limit=10)) == 4


async def test_a_message_may_be_taken_out_or_added_by_hand(path: Path) -> None:
    tree = json.loads(EXAMPLE.read_text())
    (conversation,) = tree["owners"]["erin"]["conversations"]
    del conversation["messages"][3]
    conversation["messages"][0] = {
        "sequence": 9,
        "revision": 2,
        "stored_at": "2026-03-01T09:29:00Z",
        "message": {"role": "user", "content": "by hand"},
    }
    path.write_text(json.dumps(tree))
    async with opened(path, clock=FixedClock()) as backend:
        erin = backend.of("erin")
        entries = await erin.page(DOOR, limit=10)
        assert contents(entries)[0] == "by hand"
        record = await erin.get(DOOR)
        assert record is not None
        assert (record.message_count, record.last_message_from) == (3, "tool")
        assert record.last_message_at == entries[-1].message.timestamp
        appended = await erin.append(DOOR, [user("goes on")])
        assert appended.new[0].sequence == 10


async def test_what_could_be_written_but_not_read_is_refused(path: Path) -> None:
    depths = [*range(50, 1200, 25), 5_000]
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        attempts = [store.append(record.id, [user(nested(depth))]) for depth in depths]
        results = await asyncio.gather(*attempts, return_exceptions=True)
    refused = [result for result in results if isinstance(result, InvalidMessage)]
    assert "nested too deep" in str(refused[-1])
    async with opened(path) as backend:
        kept = await backend.of("erin").page(record.id, limit=100)
        assert len(kept) == len(depths) - len(refused)
        assert len(kept) > 10


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


# Damaged, foreign, missing


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"",
        lambda text: text.replace(b'"channel": "', b'"channel": "smoke '),
        lambda text: text.replace(b'"sequence":2', b'"sequence":1'),
        lambda text: text.replace(b'"version": 2', b'"version": "one"'),
        lambda text: text.replace("🌙".encode(), b"\xff\xfe"),
        lambda text: text.replace(b'00Z",\n            "updated_at"', b'00",\n            "updated_at"'),
        lambda text: text.replace(b'"unread_count": 4', b'"unread_count": NaN'),
    ],
    ids=["torn", "empty", "record", "sequence twice", "version", "not UTF-8", "no time zone", "NaN"],
)  # fmt: skip
async def test_a_damaged_file_is_named_and_left_alone(
    path: Path, backup: Path, spoil: Callable[[bytes], bytes]
) -> None:
    good = EXAMPLE.read_bytes()
    backup.write_bytes(good)
    path.write_bytes(spoil(good))
    assert path.read_bytes() != good
    with pytest.raises(StoreDamaged) as caught:
        await JsonFileBackend(path).open()
    assert str(path) in str(caught.value)
    assert str(backup) in str(caught.value)
    assert (path.read_bytes(), backup.read_bytes()) == (spoil(good), good)
    assert names_in(path.parent) == {path.name, backup.name}


async def test_the_backup_is_the_version_before(path: Path, backup: Path) -> None:
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        await store.append(record.id, [user("first")])
        before = path.read_bytes()
        await store.append(record.id, [user("second")])
    assert backup.read_bytes() == before
    path.write_bytes(b"garbage")
    path.write_bytes(backup.read_bytes())  # what the error says to do
    async with opened(path) as backend:
        assert contents(await backend.of("erin").page(record.id, limit=9)) == ["first"]


async def test_where_there_are_no_links_the_backup_is_a_copy(
    path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    async with opened(path) as backend:
        store = backend.of("erin")
        await store.create(new_conversation(store))
        before = path.read_bytes()
        await store.create(new_conversation(store))
    assert backup.read_bytes() == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


async def test_what_is_deleted_is_not_kept_in_the_backup(path: Path, backup: Path) -> None:
    clock = FixedClock()
    async with opened(path, clock=clock) as backend:
        store = backend.of("erin")
        records = [await store.create(new_conversation(store, ttl=HOUR)) for _ in range(3)]
        for number, record in enumerate(records):
            await store.append(record.id, [user(f"secret-{number}")])
        await store.delete(records[0].id)
        assert secrets_in(path, backup) == {"secret-1", "secret-2"}
        await store.rewrite(records[1].id, [])
        assert secrets_in(path, backup) == {"secret-2"}
        clock.advance(HOUR)
        assert await backend.purge_expired() == 2
        assert secrets_in(path, backup) == set()


def secrets_in(*paths: Path) -> set[str]:
    return {secret for path in paths for secret in re.findall(r"secret-\d", path.read_text())}


async def test_a_missing_file_with_a_backup_is_not_a_new_one(path: Path, backup: Path) -> None:
    backup.write_bytes(EXAMPLE.read_bytes())
    with pytest.raises(StoreDamaged, match="backup"):
        await JsonFileBackend(path).open()
    assert names_in(path.parent) == {backup.name}


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"version": 2}', '{"name": "app", "version": 1}'])
async def test_a_file_of_another_program_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(StoreForeign, match=str(path)):
        await JsonFileBackend(path).open()
    assert path.read_text() == text
    assert names_in(path.parent) == {path.name}


async def test_a_file_of_a_newer_release_is_left_alone(path: Path) -> None:
    newer = EXAMPLE.read_bytes().replace(b'"version": 2', b'"version": 99')
    path.write_bytes(newer)
    with pytest.raises(StoreForeign, match="newer release"):
        await JsonFileBackend(path).open()
    assert path.read_bytes() == newer


# The file among others


async def test_files_are_private_and_left_overs_go(path: Path, backup: Path) -> None:
    path.write_bytes(EXAMPLE.read_bytes())
    path.chmod(0o644)
    for left_over in ("unfinished", "backup.unfinished"):
        path.with_name(f"{path.name}.{left_over}").write_text("{")
    async with opened(path, clock=FixedClock()) as backend:
        assert names_in(path.parent) == {path.name, f"{path.name}.lock"}
        await backend.of("erin").append(DOOR, [user("more")])
        assert names_in(path.parent) == {path.name, backup.name, f"{path.name}.lock"}
        for name in names_in(path.parent):
            assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600
    assert names_in(path.parent) == {path.name, backup.name}


async def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "data" / "real.json", tmp_path / "conversations.json"
    real.parent.mkdir()
    link.symlink_to(real)
    async with opened(link) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
    assert link.is_symlink()
    assert record.id in real.read_text()


async def test_a_second_backend_is_refused_until_the_first_is_closed(path: Path) -> None:
    first = JsonFileBackend(path)
    await first.open()
    with pytest.raises(StoreUnavailable) as caught:
        await JsonFileBackend(path).open()
    assert str(path) in str(caught.value)
    assert f"pid {os.getpid()}" in str(caught.value)
    await first.close()
    async with opened(path):
        pass


async def test_a_second_process_is_refused_until_the_first_is_gone(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, CHILD, path, "0"], stdout=subprocess.PIPE, env=child_env()
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StoreUnavailable, match=f"{path} is in use by another process .pid {child.pid}"):
            await JsonFileBackend(path).open()
        child.kill()
    async with opened(path):
        pass


def child_env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("name", ["missing/conversations.json", "folder", "conversations.json/x.json"])
async def test_a_place_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "conversations.json").write_bytes(EXAMPLE.read_bytes())
    with pytest.raises(StoreUnavailable, match=name):
        await JsonFileBackend(tmp_path / name).open()
    assert names_in(tmp_path) == {"folder", "conversations.json"}


@pytest.fixture
def guarded_folder() -> Iterator[Path]:
    """A folder whose write permission counts: for root none does, so root steps down for the test."""
    with tempfile.TemporaryDirectory(prefix="aforesaid-") as name:
        was_root = os.geteuid() == 0
        if was_root:
            os.chown(name, 65534, 65534)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            Path(name).chmod(0o700)
            if was_root:
                os.seteuid(0)


async def test_a_read_only_folder_is_refused_at_once(guarded_folder: Path) -> None:
    guarded_folder.chmod(0o500)
    with pytest.raises(StoreUnavailable, match="Permission denied"):
        await JsonFileBackend(guarded_folder / "conversations.json").open()


async def test_a_folder_that_becomes_read_only_loses_nothing(guarded_folder: Path) -> None:
    async with opened(guarded_folder / "conversations.json") as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        guarded_folder.chmod(0o500)
        with pytest.raises(StoreUnavailable, match="Permission denied"):
            await store.append(record.id, [user("lost")])
        assert await store.get(record.id) == record
        guarded_folder.chmod(0o700)
        await store.append(record.id, [user("kept")])
        assert contents(await store.page(record.id, limit=9)) == ["kept"]


# When writing fails


def failing(number: int) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


def failing_at(real: Callable[..., Any], number: int, code: int) -> Callable[..., Any]:
    """The function, but its call of this number fails; a `write` that fails has written half before."""
    calls = 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != number:
            return real(*args, **options)
        if real is REAL_WRITE:
            real(args[0], args[1][: len(args[1]) // 2])
        raise OSError(code, os.strerror(code))

    return call


async def in_one_batch(backend: JsonFileBackend, attempts: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """What these writes came to. The writer is held up until all of them are waiting."""
    reached, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold_up(_: Any) -> bool:
        loop.call_soon_threadsafe(reached.set)
        return go_on.wait(timeout=120)

    held_up = asyncio.create_task(backend.write("somebody", hold_up))
    await asyncio.wait_for(reached.wait(), 120)
    waiting = asyncio.gather(*attempts, return_exceptions=True)
    await asyncio.sleep(0)  # each of them runs up to where it waits for the writer
    go_on.set()
    assert await held_up
    return await waiting


REAL_WRITE = os.write

FAULTS = {
    "before the write": ("open", 1, errno.ENOSPC, False),
    "half-way through the write": ("write", 1, errno.ENOSPC, False),
    "before the fsync": ("fsync", 1, errno.EIO, False),
    "before the backup": ("replace", 1, errno.EIO, False),
    "before the replace": ("replace", 2, errno.EROFS, False),
    "before the folder's fsync": ("fsync", 2, errno.EIO, False),
    "half-way through a backup that forgets": ("write", 2, errno.ENOSPC, True),
    "before the fsync of a backup that forgets": ("fsync", 2, errno.EIO, True),
    "before the replace that forgets": ("replace", 2, errno.EROFS, True),
    "before the folder's fsync that forgets": ("fsync", 3, errno.EIO, True),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_write_that_fails_is_undone_for_everybody(
    path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, number, code, remove_copies = FAULTS[fault]
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        await store.append(record.id, [user("kept")])
        before, text = await state_of(backend), path.read_bytes()
        with monkeypatch.context() as broken:
            broken.setattr(os, name, failing_at(getattr(os, name), number, code))
            attempts = [
                store.append(record.id, [user("lost", message_id="m")]),
                store.append(record.id, [user("lost", message_id="m")]),
                store.update(record.id, Changes(subject="lost")),
                store.update(record.id, Changes(subject="refused"), expected_revision=0),
                store.create(new_conversation(store)),
                store.delete(record.id if remove_copies else new_id()),
            ]
            results = await in_one_batch(backend, attempts)
        assert [type(result) for result in results] == [StoreUnavailable] * len(attempts)
        assert os.strerror(code) in str(results[0])
        assert await state_of(backend) == before
        assert path.read_bytes() == text
        assert not any("unfinished" in name for name in names_in(path.parent))
        await store.append(record.id, [user("m", message_id="m")])
    async with opened(path) as backend:
        assert contents(await backend.of("erin").page(record.id, limit=9)) == ["kept", "m"]


async def test_readers_see_nothing_that_could_still_be_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    real = os.replace

    def slow(*args: Any) -> None:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(timeout=120)
        real(*args)

    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        monkeypatch.setattr(os, "replace", slow)
        writing = asyncio.create_task(store.append(record.id, [user("on its way")]))
        await asyncio.wait_for(reached.wait(), 120)
        assert await store.get(record.id) == record
        assert await store.page(record.id, limit=9) == []
        assert not writing.done()
        go_on.set()
        await writing
        assert contents(await store.page(record.id, limit=9)) == ["on its way"]


async def test_waiting_writers_share_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.create(new_conversation(store))
        syncs = count_calls(monkeypatch, "fsync")
        await in_one_batch(backend, [store.append(record.id, [user(number)]) for number in range(100)])
        assert len(await store.page(record.id, limit=1000)) == 100
    assert len(syncs) == 2  # the file's and the folder's


async def test_every_write_is_synced_before_it_takes_the_name_and_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill cannot show and a power cut would: the order of the calls."""
    async with opened(path) as backend:
        store = backend.of("erin")
        calls: list[str] = []
        for name in ("write", "fsync", "link", "replace"):
            monkeypatch.setattr(os, name, noting(name, getattr(os, name), calls))
        await store.create(new_conversation(store))
        await store.create(new_conversation(store))
        monkeypatch.undo()  # closing is not what is looked at
    assert calls == ["write", "fsync", "link", "replace", "replace", "fsync"] * 2


def noting(name: str, real: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        calls.append(name)
        return real(*args)

    return call


async def test_what_changes_nothing_writes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path) as backend:
        store = backend.of("erin")
        record = await store.resume("kitchen", new_conversation(store))
        await store.append(record.id, [user("known", message_id="m1")])
        writes = count_calls(monkeypatch, "replace")
        await store.append(record.id, [user("known", message_id="m1")])
        await store.append(record.id, [])
        await store.resume("kitchen", new_conversation(store))
        await store.bind("kitchen", record.id)
        await store.unbind("phone")
        await store.delete(new_id())
        await backend.purge_expired()
        with pytest.raises(RevisionConflict):
            await store.append(record.id, [user("x")], expected_revision=9)
    assert writes == []


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    real, calls = getattr(os, name), list[tuple[Any, ...]]()

    def call(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(os, name, call)
    return calls


async def test_an_error_in_the_work_itself_undoes_the_batch(path: Path) -> None:
    """A shelf never raises half-way; should it ever, nothing half-done is stored."""
    async with opened(path) as backend:

        def broken(owner_data: Any) -> None:
            owner_data.create(started(new_id(), now=backend.clock()), now=backend.clock())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await backend.write("erin", broken)
        assert [owner async for owner in backend.owners()] == []


# What it costs


@pytest.mark.parametrize("messages", [100, 1_000, 10_000])
def test_the_documented_bytes_of_a_write_are_right(messages: int) -> None:
    (documented,) = re.findall(rf"^\| {messages:,} \| ([\d,]+) kB \|", DOCS.read_text(), re.MULTILINE)
    measured = len(write_document({"erin": household(messages)})) / 1000
    assert measured == pytest.approx(int(documented.replace(",", "")), rel=0.05)


def household(messages: int) -> OwnerData:
    """Conversations of 50 messages each, 80 characters to a message."""
    owner_data, now = OwnerData(), datetime(2026, 3, 1, 9, 30, 0, 123456, tzinfo=UTC)
    for _ in range(messages // 50):
        record = owner_data.create(started(new_id(), now=now), now=now)
        owner_data.append(record.id, encode_messages([user("x" * 80) for _ in range(50)]), now=now)
    return owner_data


# URLs


async def test_a_url_with_three_slashes_is_absolute(tmp_path: Path) -> None:
    backend = backend_for(f"file://{tmp_path}/with%20space%23.json")
    await backend.open()
    await backend.close()
    assert names_in(tmp_path) == {"with space#.json"}


@pytest.mark.parametrize("url", ["file:kept/conversations.json", "file:./kept/conversations.json"])
async def test_a_url_without_slashes_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    backend = backend_for(url)
    await backend.open()
    await backend.close()
    assert (tmp_path / "kept" / "conversations.json").is_file()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file://conversations.json", "'conversations.json' is read as the name of a machine"),
        ("file://data/conversations.json", "'data' is read as the name of a machine"),
        ("file:", "no path"),
        ("file:///", "no path"),
        ("file:///a#b.json", "%23"),
        ("file:///a%00b.json", "NUL"),
        ("file:///a.json?mode=x", "mode"),
    ],
)
def test_a_url_that_would_be_misread_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        backend_for(url)


def test_localhost_is_this_machine() -> None:
    backend = backend_for("file://localhost/srv/conversations.json")
    assert isinstance(backend, JsonFileBackend)
    assert backend.path == "/srv/conversations.json"


def test_a_message_is_kept_in_its_wire_form(path: Path) -> None:
    """A document's messages are wire bodies: what `Message` knows is there under its own name."""
    (line,) = [line for line in EXAMPLE.read_text().splitlines() if '"sequence":3' in line]
    message = json.loads(line.strip().rstrip(","))["message"]
    assert set(message) <= set(Message.__struct_fields__)
