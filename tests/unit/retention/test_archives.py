"""Archives: out of the store and back, equal; safe against crashes, writers and altered files."""

import asyncio
import base64
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import aforesaid
from aforesaid._internal.files import Lock
from aforesaid.contracts import JOURNAL, ConversationStore
from aforesaid.encryption import KeySealer, MasterKeys, PassphraseSealer, ProviderSealer
from aforesaid.errors import (
    ArchiveNotFound,
    ConversationNotFound,
    InvalidSetting,
    KeyUnavailable,
    RevisionConflict,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.layers.base import BackendWrapper
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.lifetimes import Archiving
from aforesaid.retention.erasure import KIND, Intent
from aforesaid.testing import FixedClock
from aforesaid.transfer.archives import ArchiveFolder, OwnerArchives, Sealer
from aforesaid.transfer.archives import files as archive_files
from tests.servers.remote import open_at
from tests.stored_bodies import Bodies, edit_bodies, read_bodies

DAY = timedelta(days=1)
PNG = base64.b64encode(b"\x89PNG\r\n a picture").decode()


async def live(manager: ConversationManager, *, session: str = "kitchen") -> str:
    record = await manager.get_or_create_conversation(session, channel="text")
    await manager.update_metadata(record.id, subject="Dinner", tags=["food"], notes="n")
    async with manager.turn(record.id) as turn:
        turn.user("find me a chicken dinner", message_id="m1")
        turn.assistant([{"type": "tool_use", "id": "c", "name": "search", "input": {"q": "chicken \ud800"}}])
        turn.user([{"type": "tool_result", "tool_use_id": "c", "content": "lemon chicken"}])
        turn.user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}])
    await manager.redact(record.id, "m1")
    await manager.store.put_document("summaries", "1", b"chicken", conversation_id=record.id)
    return record.id


async def everything(manager: ConversationManager, conversation_id: str) -> tuple[Any, ...]:
    store, blobs = manager.store, manager.scope.blobs
    assert blobs is not None
    return (
        await store.get(conversation_id),
        await store.page(conversation_id, limit=1000),
        await store.sessions(conversation_id),
        await store.documents("summaries", conversation_id=conversation_id),
        [await blobs.get(conversation_id, one) for one in await blobs.list(conversation_id)],
    )


async def test_what_cannot_be_read_is_not_archived_and_so_not_lost(
    memory: aforesaid.Memory, clock: FixedClock, caplog: pytest.LogCaptureFixture
) -> None:
    erin = memory.of("erin")
    damaged = await live(erin)
    whole = await live(erin, session="hall")
    backend = memory.backend
    while isinstance(backend, BackendWrapper):
        backend = backend.inner
    await edit_bodies(backend, "erin", damaged, _break_the_second)
    stored = await read_bodies(backend, "erin", damaged)
    with pytest.raises(StoreDamaged, match="1 of its 4 messages are unreadable"):
        await erin.archive(damaged)
    assert await erin.archives() == []
    assert await read_bodies(backend, "erin", damaged) == stored
    clock.advance(2 * DAY)
    assert await memory.archive_old(Archiving(after=DAY)) == 1
    assert [one.conversation_id for one in await erin.archives()] == [whole]
    assert f"{damaged} is not archived" in caplog.text


def _break_the_second(bodies: Bodies) -> None:
    bodies[sorted(bodies)[1]] = b'{"role":"nobody"}'


async def test_a_resumed_erasure_leaves_archives_of_what_was_made_since(
    memory: aforesaid.Memory, clock: FixedClock
) -> None:
    erin = memory.of("erin")
    archived, moved = await live(erin), await live(erin, session="hall")
    await erin.archive(archived)
    intent = Intent(owner="erin", conversation_id=None, started_at=clock())
    await memory.backend.of(JOURNAL).put_document(KIND, intent.key, msgspec.json.encode(intent))
    clock.advance(DAY)
    fresh = await live(erin, session="phone")
    await erin.archive(moved)
    made = await erin.archive(fresh)
    (receipt,) = await memory.resume_erasures()
    assert receipt.erased["archives"] == 2
    assert await erin.archives() == [made]


async def test_everybody_with_archives_is_known_by_name(tmp_path: Path) -> None:
    for name, sealer in (("erin", None), ("sam", KeySealer(bytes(32)))):
        folder = ArchiveFolder(tmp_path / "archives", sealer=sealer)
        async with aforesaid.open(
            retention=aforesaid.Retention(archives=folder, sweep_every=None),
            models=aforesaid.Models(embedder=None),
        ) as memory:
            record = await memory.of(name).get_or_create_conversation("kitchen")
            await memory.of(name).archive(record.id)
    assert set(await folder.owners()) == {"erin", "sam"}
    assert set(await ArchiveFolder(tmp_path / "archives").owners()) == {"erin", None}
    assert await ArchiveFolder(tmp_path / "none").owners() == []


async def test_a_conversation_comes_back_equal(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    before = await everything(erin, conversation_id)
    archive = await erin.archive(conversation_id)
    assert (archive.messages, archive.documents, archive.blobs) == (4, 1, 1)
    assert await erin.archives() == [archive]
    assert await memory.of("bob").archives() == []
    with pytest.raises(ConversationNotFound):
        await erin.get_conversation(conversation_id)
    assert await erin.session("kitchen") is None
    record = await erin.restore(conversation_id)
    assert await everything(erin, conversation_id) == before
    assert record == before[0]
    assert await erin.archives() == []
    with pytest.raises(ArchiveNotFound):
        await erin.restore(conversation_id)
    added = await erin.add_message(conversation_id, "user", "and dessert?")
    assert added.message_count == 5


async def test_archiving_twice_is_archiving_once(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    first, second = await asyncio.gather(erin.archive(conversation_id), erin.archive(conversation_id))
    assert first == second
    assert await erin.archive(conversation_id) == first
    with pytest.raises(ConversationNotFound):
        await memory.of("bob").archive(conversation_id)
    with pytest.raises(ArchiveNotFound):
        await memory.of("bob").restore(conversation_id)


async def test_a_turn_that_comes_meanwhile_is_not_lost(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    put = OwnerArchives.put

    async def put_while_somebody_writes(self: OwnerArchives, *given: Any) -> Any:
        await erin.add_message(conversation_id, "user", "wait")
        return await put(self, *given)

    monkeypatch.setattr(OwnerArchives, "put", put_while_somebody_writes)
    with pytest.raises(RevisionConflict):
        await erin.archive(conversation_id)
    assert (await erin.messages(conversation_id))[-1].content == "wait"
    assert await erin.archives() == []


async def test_a_deletion_that_comes_meanwhile_leaves_no_archive(
    local: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin = local.of("erin")
    conversation_id = await live(erin)
    put, forget = OwnerArchives.put, OwnerArchives.forget
    gone_from_the_store = asyncio.Event()
    deletions: list[asyncio.Task[None]] = []

    async def put_when_it_is_deleted(self: OwnerArchives, *given: Any) -> Any:
        deletions.append(asyncio.create_task(erin.delete_conversation(conversation_id)))
        await gone_from_the_store.wait()
        return await put(self, *given)

    async def forget_and_tell(self: OwnerArchives, conversation_id: str) -> int:
        gone_from_the_store.set()
        return await forget(self, conversation_id)

    monkeypatch.setattr(OwnerArchives, "put", put_when_it_is_deleted)
    monkeypatch.setattr(OwnerArchives, "forget", forget_and_tell)
    await erin.archive(conversation_id)
    await asyncio.gather(*deletions)
    assert await erin.archives() == []


async def test_a_deletion_takes_the_archive_too(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation_id, other = await live(erin), await live(erin, session="hall")
    await erin.archive(conversation_id)
    kept = await erin.archive(other)
    await erin.delete_conversation(conversation_id)
    assert await erin.archives() == [kept]


@pytest.mark.parametrize("call", ["put", "delete"])
async def test_who_is_cancelled_meanwhile_leaves_it_in_one_place(
    local: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Archiving is held up in `put`, restoring in `delete`: what is begun comes to its end."""
    erin = local.of("erin")
    conversation_id = await live(erin)
    if call == "delete":
        await erin.archive(conversation_id)
    begun, go_on = asyncio.Event(), asyncio.Event()
    real = getattr(OwnerArchives, call)

    async def slow(self: OwnerArchives, *given: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await real(self, *given)

    monkeypatch.setattr(OwnerArchives, call, slow)
    moving = asyncio.create_task(
        erin.archive(conversation_id) if call == "put" else erin.restore(conversation_id)
    )
    await begun.wait()
    moving.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert (await erin.store.get(conversation_id) is None) == (call == "put")
    assert len(await erin.archives()) == (call == "put")


async def test_who_is_cancelled_while_taking_the_lock_does_not_keep_it(
    local: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin = local.of("erin")
    conversation_id = await live(erin)
    begun, go_on, taken = threading.Event(), threading.Event(), threading.Event()
    acquire = Lock.acquire

    def slow(self: Lock) -> None:
        begun.set()
        go_on.wait(30)
        acquire(self)
        taken.set()

    with monkeypatch.context() as patched:
        patched.setattr(Lock, "acquire", slow)
        waiting = asyncio.create_task(erin.archive(conversation_id))
        assert await asyncio.to_thread(begun.wait, 240)
        waiting.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await asyncio.to_thread(taken.wait, 240)
    await asyncio.wait_for(erin.archive(conversation_id), 240)


@pytest.mark.parametrize("call", ["redact", "clear_history"])
async def test_what_a_failed_restoring_left_behind_goes_with_the_words(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    await erin.add_message(conversation_id, "user", "no onions", message_id="m5")
    await erin.archive(conversation_id)

    async def full(self: OwnerArchives, conversation_id: str) -> int:
        raise StoreUnavailable("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(OwnerArchives, "delete", full)
        with pytest.raises(StoreUnavailable):
            await erin.restore(conversation_id)
    assert len(await erin.archives()) == 1
    if call == "redact":
        await erin.redact(conversation_id, "m5")
    else:
        await erin.clear_history(conversation_id)
    assert await erin.archives() == []


async def test_what_ran_out_in_the_archive_gets_its_lifetime_anew(
    memory: aforesaid.Memory, clock: FixedClock
) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    await erin.archive(conversation_id)
    clock.advance(DAY * 90)
    record = await erin.restore(conversation_id)
    assert record.expires_at == clock() + DAY * 30
    assert len(await erin.messages(conversation_id)) == 4


async def test_a_session_that_went_on_elsewhere_is_left_there(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    await erin.archive(conversation_id)
    later = await erin.get_or_create_conversation("kitchen")
    await erin.restore(conversation_id)
    bound = await erin.session("kitchen")
    assert bound is not None
    assert bound.id == later.id
    assert await erin.store.sessions(conversation_id) == []


async def test_an_archive_does_not_take_the_place_of_what_went_on(
    memory: aforesaid.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between writing the archive and deleting the conversation."""
    erin = memory.of("erin")
    conversation_id = await live(erin)
    store_type = type(erin.store)

    async def nothing(self: ConversationStore, conversation_id: str, **named: Any) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(store_type, "delete", nothing)
        await erin.archive(conversation_id)
    await erin.scope.blobs.delete(conversation_id) if erin.scope.blobs else None
    await erin.add_message(conversation_id, "user", "still here")
    with pytest.raises(aforesaid.AforesaidError, match="not overwritten"):
        await erin.restore(conversation_id)
    assert len(await erin.messages(conversation_id)) == 5
    assert (await erin.archive(conversation_id)).messages == 5


@pytest.fixture
async def local(tmp_path: Path) -> Any:
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db",
        retention=aforesaid.Retention(sweep_every=None, archives=tmp_path / "archives"),
        images=aforesaid.ImageOptions(policy="blobs", blobs=tmp_path / "blobs"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        yield memory


def the_file(folder: Path) -> Path:
    (file,) = (folder / "archives").rglob("*.archive")
    return file


class TestTheFile:
    async def test_its_head_says_what_it_is_and_nothing_of_what_was_said(
        self, local: aforesaid.Memory, tmp_path: Path
    ) -> None:
        conversation_id = await live(local.of("erin"))
        await local.of("erin").archive(conversation_id)
        file = the_file(tmp_path)
        head, _, content = file.read_bytes().partition(b"\n")
        known = msgspec.json.decode(head)
        assert known["aforesaid"] == "archive"
        assert known["conversation_id"] == conversation_id
        assert known["size"] == len(content)
        assert b"erin" not in head
        assert b"chicken" not in head
        assert file.stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
    async def test_an_altered_one_is_refused_and_nothing_is_stored(
        self, local: aforesaid.Memory, tmp_path: Path, place: float
    ) -> None:
        erin = local.of("erin")
        conversation_id = await live(erin)
        await erin.archive(conversation_id)
        file = the_file(tmp_path)
        content = bytearray(file.read_bytes())
        head = content.index(b"\n") + 1
        content[head + int((len(content) - head - 1) * place)] ^= 1
        file.write_bytes(content)
        with pytest.raises(StoreDamaged, match="altered"):
            await erin.restore(conversation_id)
        assert await erin.store.get(conversation_id) is None
        file.write_bytes(bytes(content)[: len(content) // 2])
        with pytest.raises(StoreDamaged):
            await erin.restore(conversation_id)
        file.write_bytes(b"another program's\n")
        with pytest.raises(StoreForeign):
            await erin.restore(conversation_id)

    async def test_another_owners_file_is_not_taken_for_ones_own(
        self, local: aforesaid.Memory, tmp_path: Path
    ) -> None:
        conversation_id = await live(local.of("erin"))
        await local.of("erin").archive(conversation_id)
        assert local.archives is not None
        theirs = local.archives.of("bob").file(conversation_id)
        theirs.parent.mkdir()
        the_file(tmp_path).rename(theirs)
        with pytest.raises(StoreDamaged, match="belongs to another owner"):
            await local.of("bob").restore(conversation_id)

    async def test_without_a_place_for_them_there_are_none(self) -> None:
        with pytest.raises(InvalidSetting, match="archives"):
            await ConversationManager().archives()


SEALERS: dict[str, Callable[[], Sealer]] = {
    "key": lambda: KeySealer(b"k" * 32),
    "passphrase": lambda: PassphraseSealer("correct horse"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEALERS)
async def test_a_sealed_archive_opens_with_its_key_only(kind: str, tmp_path: Path) -> None:
    sealed = ArchiveFolder(tmp_path / "archives", sealer=SEALERS[kind]())
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None, archives=sealed),
        images=aforesaid.ImageOptions(policy="blobs", blobs=tmp_path / "blobs"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        erin = memory.of("erin")
        conversation_id = await live(erin)
        before = await everything(erin, conversation_id)
        archive = await erin.archive(conversation_id)
        assert archive.sealed is not None
        assert archive.sealed["cipher"] == "AES-256-GCM"
        for other, error in (
            (KeySealer(b"x" * 32), StoreDamaged),
            (PassphraseSealer("wrong"), StoreDamaged),
            (None, StoreForeign),
        ):
            with pytest.raises(error):
                await ArchiveFolder(sealed.folder, sealer=other).of("erin").read(conversation_id)
        file = the_file(tmp_path)
        head, _, content = file.read_bytes().partition(b"\n")
        file.write_bytes(head.replace(b'"messages":4', b'"messages":5') + b"\n" + content)
        with pytest.raises(StoreDamaged):
            await erin.restore(conversation_id)
        file.write_bytes(head + b"\n" + content)
        await erin.restore(conversation_id)
        assert await everything(erin, conversation_id) == before


async def test_an_encrypted_memory_seals_its_archives_with_its_master_key(url: str, tmp_path: Path) -> None:
    master = MasterKeys(b"k" * 32)
    async with open_at(url, sweep_every=None, encryption=master, archives=tmp_path / "archives") as memory:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(record.id, "user", "the secret")
        before = await erin.store.page(record.id, limit=9)
        archive = await erin.archive(record.id)
        assert archive.sealed is not None
        assert archive.sealed["master"] == master.current
        await erin.restore(record.id)
        assert await erin.store.page(record.id, limit=9) == before
        await erin.archive(record.id)
        other = ArchiveFolder(tmp_path / "archives", sealer=ProviderSealer(MasterKeys(b"x" * 32)))
        with pytest.raises(KeyUnavailable):
            await other.of("erin").read(record.id)


CHILD = """
import asyncio, os, signal, sys
import aforesaid
from aforesaid._internal import files
from aforesaid.transfer.archives import files as archive_files
url, folder, conversation_id, call = sys.argv[1:]
module = files if call == "sync_folder" else archive_files
real = getattr(module, call)
def kill(*given):
    if call != "write": real(*given)
    os.kill(os.getpid(), signal.SIGKILL)
async def main():
    retention = aforesaid.Retention(sweep_every=None, archives=folder + "/archives")
    images = aforesaid.ImageOptions(policy="blobs", blobs=folder + "/blobs")
    async with aforesaid.open(url, retention=retention, images=images) as memory:
        setattr(module, call, kill)
        await memory.of("erin").archive(conversation_id)
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", ["write", "sync_folder", "read"])
async def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, call: str) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    places: dict[str, Any] = {
        "embedder": None,
        "images": "blobs",
        "blobs": tmp_path / "blobs",
        "archives": tmp_path / "archives",
    }
    async with open_at(url, sweep_every=None, **places) as memory:
        conversation_id = await live(memory.of("erin"))
        before = await everything(memory.of("erin"), conversation_id)
    root = Path(__file__).parents[3]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CHILD, url, str(tmp_path), conversation_id, call],
        env={"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    async with open_at(url, sweep_every=None, **places) as memory:
        erin = memory.of("erin")
        assert await everything(erin, conversation_id) == before
        await erin.archive(conversation_id)
        assert await erin.store.get(conversation_id) is None
        await erin.restore(conversation_id)
        assert await everything(erin, conversation_id) == before
        assert not [name for name in os.listdir(tmp_path / "archives") if name.endswith(".archive")]
    assert archive_files.SUFFIX == ".archive"


async def test_a_damaged_archive_hides_no_other(tmp_path: Path) -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(archives=tmp_path / "archives", sweep_every=None)
    ) as memory:
        erin = memory.of("erin")
        ids = [await live(erin, session=name) for name in ("kitchen", "hall", "porch")]
        for one in ids:
            await erin.archive(one)
        files = {file.stem: file for file in (tmp_path / "archives").rglob(f"*{archive_files.SUFFIX}")}
        files[ids[0]].write_bytes(b"garbage\n")
        altered = bytearray(files[ids[1]].read_bytes())
        altered[-3] ^= 1
        files[ids[1]].write_bytes(altered)
        assert {one.conversation_id for one in await erin.archives()} == {*ids[1:]}
        assert memory.archives is not None
        assert await memory.archives.owners() == ["erin"]
        manifest = await erin.export(tmp_path / "folder")
        assert [one.conversation_id for one in manifest.archives] == [ids[2]]
        assert manifest.unreadable == tuple(sorted(ids[:2]))
        assert manifest.counts["archives"] == 1
        async with aforesaid.open(
            "memory://", retention=aforesaid.Retention(archives=tmp_path / "others", sweep_every=None)
        ) as other:
            await other.of("erin").import_(tmp_path / "folder")
            assert [one.conversation_id for one in await other.of("erin").archives()] == [ids[2]]
        gone = await memory.archives.remove_copies("erin", None, until=erin.store.now())
        assert gone == {"archives": 3}, "an erasure that is resumed removes what cannot be read too"
