"""Blob stores: what was put comes back or is known to be damaged, and goes with its conversation."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from aforesaid.errors import InvalidId, InvalidInput, InvalidSetting, StoreDamaged, StoreUnavailable
from aforesaid.model.ids import new_id
from aforesaid.stores.blobs import BlobBackend, FolderBlobs, InMemoryBlobs, blobs_at, owner_key

PLACES: dict[str, Callable[[Path], BlobBackend]] = {
    "memory": lambda _: InMemoryBlobs(),
    "folder": lambda folder: FolderBlobs(folder / "deep" / "blobs"),
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(params=PLACES)
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobBackend:
    return PLACES[request.param](tmp_path)


async def test_what_was_put_comes_back(blobs: BlobBackend) -> None:
    erin, first, second = blobs.of("erin"), new_id(), new_id()
    for data in (b"one", b"two", b"", b"one"):
        await erin.put(first, digest(data), data)
    await erin.put(second, digest(b"one"), b"one")
    assert await erin.get(first, digest(b"two")) == b"two"
    assert await erin.get(first, digest(b"")) == b""
    assert await erin.get(second, digest(b"two")) is None
    assert await erin.list(first) == sorted(map(digest, (b"one", b"two", b"")))
    assert await erin.conversations() == sorted([first, second])


async def test_a_conversation_is_erased_by_itself(blobs: BlobBackend) -> None:
    erin, first, second = blobs.of("erin"), new_id(), new_id()
    for conversation_id in (first, second):
        await erin.put(conversation_id, digest(b"one"), b"one")
    await erin.delete(first)
    await erin.delete(first)
    assert await erin.list(first) == []
    assert await erin.get(second, digest(b"one")) == b"one"
    await erin.delete(second)
    assert await erin.conversations() == []
    assert await blobs.keys() == []


async def test_owners_do_not_see_each_other(blobs: BlobBackend) -> None:
    conversation_id = new_id()
    await blobs.of("erin").put(conversation_id, digest(b"one"), b"one")
    await blobs.of("dan").delete(conversation_id)
    assert await blobs.of("dan").get(conversation_id, digest(b"one")) is None
    assert await blobs.of("dan").conversations() == []
    assert await blobs.of("erin").get(conversation_id, digest(b"one")) == b"one"
    assert await blobs.keys() == [owner_key("erin")]
    assert await blobs.at(owner_key("erin")).conversations() == [conversation_id]


async def test_names_that_are_none_are_refused(blobs: BlobBackend) -> None:
    erin = blobs.of("erin")
    with pytest.raises(InvalidInput, match="sha256 must be the digest of the data"):
        await erin.put(new_id(), digest(b"other"), b"one")
    for name in ("../../etc/passwd", "A" * 64, ""):
        with pytest.raises(InvalidInput, match="sha256 must be"):
            await erin.get(new_id(), name)
    for name in ("../erin", "", "."):
        with pytest.raises(InvalidId):
            await erin.put(name, digest(b"one"), b"one")
        with pytest.raises(InvalidId):
            await erin.delete(name)
    with pytest.raises(InvalidId):
        blobs.of("")
    assert await erin.conversations() == []


async def test_many_puts_at_once_are_one(blobs: BlobBackend) -> None:
    erin, conversation_id, data = blobs.of("erin"), new_id(), b"x" * 100_000
    await asyncio.gather(*(erin.put(conversation_id, digest(data), data) for _ in range(20)))
    assert await erin.list(conversation_id) == [digest(data)]
    assert await erin.get(conversation_id, digest(data)) == data


# Folders


async def test_files_are_private_and_named_by_their_content(tmp_path: Path) -> None:
    conversation_id = new_id()
    await FolderBlobs(tmp_path / "blobs").of("+15551234567").put(conversation_id, digest(b"one"), b"one")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file == tmp_path / "blobs" / owner_key("+15551234567") / conversation_id / digest(b"one")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "5551234567" not in str(file.relative_to(tmp_path))


async def test_a_damaged_blob_is_an_error_until_it_is_put_again(tmp_path: Path) -> None:
    erin, conversation_id = FolderBlobs(tmp_path).of("erin"), new_id()
    await erin.put(conversation_id, digest(b"one"), b"one")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(b"on")
    with pytest.raises(StoreDamaged, match=digest(b"one")):
        await erin.get(conversation_id, digest(b"one"))
    await erin.put(conversation_id, digest(b"one"), b"one")
    assert await erin.get(conversation_id, digest(b"one")) == b"one"


async def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    erin, conversation_id = FolderBlobs(tmp_path).of("erin"), new_id()
    await erin.put(conversation_id, digest(b"one"), b"one")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await erin.put(conversation_id, digest(b"two"), b"two")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [digest(b"one")]


async def test_bytes_are_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, move = os.fsync, os.replace

    def noted_sync(opened: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(opened).st_mode) else "file")
        sync(opened)

    def noted_move(*paths: Path) -> None:
        calls.append("name")
        move(*paths)

    erin, conversation_id = FolderBlobs(tmp_path).of("erin"), new_id()
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_move)
    await erin.put(conversation_id, digest(b"one"), b"one")
    assert calls == ["folder", "folder", "file", "name", "folder"]


async def test_a_draft_that_a_crash_left_is_no_blob(tmp_path: Path) -> None:
    erin, conversation_id = FolderBlobs(tmp_path).of("erin"), new_id()
    await erin.put(conversation_id, digest(b"one"), b"one")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.with_name(f".{digest(b'two')}.{new_id()}").write_bytes(b"tw")
    assert await erin.list(conversation_id) == [digest(b"one")]
    await erin.delete(conversation_id)
    assert list(tmp_path.rglob("*")) == []


async def test_a_file_of_another_program_is_no_conversation(tmp_path: Path) -> None:
    erin, conversation_id = FolderBlobs(tmp_path).of("erin"), new_id()
    await erin.put(conversation_id, digest(b"one"), b"one")
    for folder in (tmp_path, tmp_path / owner_key("erin"), tmp_path / owner_key("erin") / conversation_id):
        (folder / "desktop.ini").write_text("x")
    assert await FolderBlobs(tmp_path).keys() == [owner_key("erin")]
    assert await erin.conversations() == [conversation_id]
    assert await erin.list(conversation_id) == [digest(b"one")]


async def test_a_place_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("taken")
    erin = FolderBlobs(tmp_path / "file").of("erin")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await erin.put(new_id(), digest(b"one"), b"one")
    with pytest.raises(StoreUnavailable, match="cannot be"):
        await erin.conversations()


async def test_file_work_is_done_off_the_event_loop(tmp_path: Path) -> None:
    erin, conversation_id = FolderBlobs(tmp_path / "blobs").of("erin"), new_id()
    with blockbuster_ctx():
        await erin.put(conversation_id, digest(b"one"), b"one")
        await erin.get(conversation_id, digest(b"one"))
        await erin.list(conversation_id)
        await erin.conversations()
        await erin.delete(conversation_id)


def test_a_place_is_a_folder_or_a_backend(tmp_path: Path) -> None:
    backend = InMemoryBlobs()
    assert blobs_at(backend) is backend
    for place in (tmp_path, str(tmp_path)):
        found = blobs_at(place)
        assert isinstance(found, FolderBlobs)
        assert found.folder == tmp_path
    for place in ("s3://bucket", ""):
        with pytest.raises(InvalidSetting, match="blobs must be a folder"):
            blobs_at(place)
