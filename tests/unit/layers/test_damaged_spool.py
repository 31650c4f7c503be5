"""Damaged spools: an operation that was accepted is replayed or set aside, whatever happens to the file."""

import asyncio
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.errors import SpoolFull
from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.dead_letters import spool_state
from aforesaid.layers.resilient.operations import Operation, Unbound, encode
from aforesaid.layers.resilient.replay import adopt, forget
from aforesaid.layers.resilient.spool.files import SpoolFiles
from aforesaid.layers.resilient.spool.frames import DONE, MAGIC, OPERATION, frame, numbers, scan
from aforesaid.model.conversations import Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.unit.layers.conftest import LayerSetup

LIMIT = 10**6
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAYLOADS = [encode(Operation(owner="erin", at=NOW, action=Unbound(session_id=f"room {n}"))) for n in range(4)]


def in_new_form() -> bytes:
    """Four operations, of which 0 and 1 are done."""
    frames = [frame(OPERATION, number, payload) for number, payload in enumerate(PAYLOADS)]
    return b"".join([*frames[:3], frame(DONE, 0, numbers([0, 1])), frames[3]])


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def all_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


def adopted(folder: Path) -> list[bytes]:
    """Adopt the spool and take everything in as done, as a process with a store does."""
    files = SpoolFiles(folder, limit=LIMIT)
    try:
        taken = files.adopt()
        assert taken.failed is None
        files.mark_done([ref for ref, _ in taken.operations])
        return [payload for _, payload in taken.operations]
    finally:
        files.close()


@pytest.mark.slow
@pytest.mark.parametrize("content", [in_new_form()], ids=["numbered"])
def test_no_flipped_bit_makes_another_operation_disappear(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Of operations 2 and 3, which are not done, each is adopted, or it is the damaged one and its frame is
    kept, for a flip of every bit."""
    caplog.set_level(logging.CRITICAL)
    for bit in range(len(content) * 8):
        damaged = flipped(content, bit)
        path = tmp_path / "left-00000001.spool"
        path.write_bytes(damaged)
        taken = adopted(tmp_path)
        kept = all_files(tmp_path)
        assert not path.exists()
        lost = [payload for payload in PAYLOADS[2:] if payload not in taken]
        assert len(lost) <= 1, bit
        for payload in lost:
            start = content.index(payload)
            assert start - 21 <= bit // 8 < start + len(payload), bit
            assert damaged[start : start + len(payload)] in kept, bit
        assert [payload for payload in PAYLOADS if payload in taken] == taken, "the order is kept"
        for left in tmp_path.iterdir():
            left.unlink()


def test_a_damaged_operation_that_is_done_costs_nothing(tmp_path: Path) -> None:
    """Operations 0 and 1 are done and 0 is damaged: 2 and 3 are adopted, and nothing else."""
    (tmp_path / "left-00000001.spool").write_bytes(in_new_form().replace(b"room 0", b"rOom 0"))
    assert adopted(tmp_path) == PAYLOADS[2:]
    assert list(tmp_path.iterdir()) == []


def cut_forms() -> Iterator[tuple[bytes, int]]:
    for content in (in_new_form(),):
        yield from product([content], range(len(content)))


def test_a_file_cut_anywhere_gives_what_is_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    for content, cut in cut_forms():
        (tmp_path / "left-00000001.spool").write_bytes(content[:cut])
        taken = adopted(tmp_path)
        done = content.index(MAGIC, content.index(PAYLOADS[2]) + len(PAYLOADS[2]))
        for number, payload in enumerate(PAYLOADS):
            is_whole = content.index(payload) + len(payload) <= cut
            is_done = number < 2 and cut >= content.index(MAGIC, done + 1)
            assert not is_whole or is_done or payload in taken, (number, cut)
        for left in tmp_path.iterdir():
            left.unlink()


def test_a_torn_tail_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "left-00000001.spool").write_bytes(in_new_form()[:-3])
    assert adopted(tmp_path) == PAYLOADS[2:3]
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, 4), max_size=12))
def test_repeated_and_reordered_frames_lose_nothing(order: list[int]) -> None:
    """Any sequence of the frames of a spool. An operation whose frame is there is pending, or done because a
    mark says so."""
    frames = [frame(OPERATION, number, payload) for number, payload in enumerate(PAYLOADS)]
    parts = [*frames, frame(DONE, 0, numbers([0, 1]))]
    found = scan(content := b"".join(parts[place] for place in order))
    expected = {place for place in order if place < 4} - ({0, 1} if 4 in order else set())
    assert sorted(content[one.payload] for one in found.pending) == [PAYLOADS[n] for n in sorted(expected)]
    assert found.damaged == []


def test_two_files_joined_into_one_lose_nothing(tmp_path: Path) -> None:
    """Both have operations 0 and 1, with other content; the owner of the mark is unknown."""
    others = [payload.replace(b"room", b"attic") for payload in PAYLOADS]
    joined = b"".join(frame(OPERATION, number, payload) for number, payload in enumerate(others))
    (tmp_path / "left-00000001.spool").write_bytes(in_new_form() + joined)
    assert set(PAYLOADS[2:] + others) <= set(adopted(tmp_path))


def test_a_missing_file_costs_only_its_own_operations(tmp_path: Path) -> None:
    for number, payload in enumerate(PAYLOADS):
        path = tmp_path / f"left-{number:08d}.spool"
        path.write_bytes(frame(OPERATION, 0, payload))
    (tmp_path / "left-00000001.spool").unlink()
    assert adopted(tmp_path) == [PAYLOADS[0], *PAYLOADS[2:]]


def test_an_empty_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "left-00000001.spool").touch()
    assert adopted(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["left-00000001.spool", "notes.spool", "-.spool", "a[b]-1.spool"])
@pytest.mark.parametrize("content", [b"dear diary", os.urandom(1000), b"RSP2" * 50, b"RSP1" * 50])
def test_foreign_content_is_kept(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "folder-1.spool").mkdir()
    assert adopted(tmp_path) == []
    assert content in all_files(tmp_path)
    assert spool_state(tmp_path).damaged == 1


def test_a_frame_of_a_kind_that_is_not_known_is_kept(tmp_path: Path) -> None:
    newer = frame(7, 1, b"of a newer release")
    (tmp_path / "left-00000001.spool").write_bytes(in_new_form() + newer)
    assert adopted(tmp_path) == PAYLOADS[2:]
    assert newer in all_files(tmp_path)


# Through the layer

WORDS = [f"sentence number {number}" for number in range(3)]


async def spooled(setup: LayerSetup) -> tuple[Conversation, Path]:
    """A conversation that the store has, three turns for it in the spool, and the file of the spool."""
    store = setup.layer.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    setup.failing.down()
    for place, words in enumerate(WORDS):
        await store.append(record.id, [Message(role="user", content=words, message_id=f"m{place}")])
    (path,) = await asyncio.to_thread(lambda: list(setup.folder.glob("*.spool")))
    return record, path


async def stored(setup: LayerSetup, record: Conversation) -> list[object]:
    return [entry.message.content for entry in await setup.memory.of("erin").page(record.id, limit=99)]


def put(path: Path, content: bytes) -> None:
    """Change the content of a file that is open."""
    with path.open("r+b") as file:
        file.truncate()
        file.write(content)


def kept_aside(folder: Path) -> bytes:
    paths = [*folder.glob("*.damaged"), *folder.glob(dead_letters.NAME)]
    return b"".join(path.read_bytes() for path in paths)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "adopting"])
@pytest.mark.slow
async def test_a_flip_in_any_byte_costs_at_most_one_turn_which_is_set_aside(
    setup: LayerSetup, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The lane goes on behind a damaged frame, in order, and the turn that is lost is counted and kept."""
    caplog.set_level(logging.CRITICAL)
    record, path = await spooled(setup)
    content = await asyncio.to_thread(path.read_bytes)
    await setup.layer.close()
    for place in range(len(content)):
        damaged = flipped(content, place * 8 + place % 8)
        await asyncio.to_thread(path.write_bytes, content if not restarted else damaged)
        setup.failing.down()
        setup.layer = setup.make()
        counted = setup.layer.damaged.value
        await setup.layer.open()
        if not restarted:
            await asyncio.to_thread(put, path, damaged)
        assert await setup.back(), place
        found = await stored(setup, record)
        lost = [words for words in WORDS if words not in found]
        assert len(lost) <= 1, place
        assert found == [words for words in WORDS if words in found], place
        aside = await asyncio.to_thread(kept_aside, setup.folder)
        for words in lost:
            start = content.index(words.encode())
            assert damaged[start : start + len(words)] in aside, place
            assert setup.layer.damaged.value == counted + 1, place
            assert (await asyncio.to_thread(spool_state, setup.folder)).damaged == 1, place
        assert not await asyncio.to_thread(lambda: list(setup.folder.glob("*.spool")))
        await setup.memory.of("erin").rewrite(record.id, [])
        await setup.layer.close()
        for left in await asyncio.to_thread(lambda: list(setup.folder.iterdir())):
            await asyncio.to_thread(left.unlink)


async def test_erasing_finds_what_is_intact_and_names_what_is_damaged(setup: LayerSetup) -> None:
    """A frame is damaged while the process runs; erasing removes the other turns and names the file."""
    record, path = await spooled(setup)
    content = await asyncio.to_thread(path.read_bytes)
    await asyncio.to_thread(put, path, content.replace(b"sentence number 1", b"sentEnce number 1"))
    setup.failing.up()
    assert (await forget(setup.layer, "erin"))["spool_entries"] == 2
    (remains,) = await setup.layer.scrub("erin")
    assert ".damaged" in remains
    assert await setup.back()
    assert await stored(setup, record) == []


async def test_an_operation_that_cannot_be_decoded_is_set_aside_as_soon_as_the_disk_has_room(
    setup: LayerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = SpoolFiles(setup.folder, limit=LIMIT)
    await asyncio.to_thread(left.append, [b'{"of": "a newer release"}', b'{"and": "another"}'])
    await asyncio.to_thread(left.close)

    def full(*_: object, **__: object) -> None:
        raise SpoolFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "add", full)
        with pytest.raises(SpoolFull):
            await adopt(setup.layer)
    await adopt(setup.layer)
    assert (await setup.layer.health()).dead_letters == 2
    assert not await asyncio.to_thread(lambda: list(setup.folder.glob("*.spool")))


async def test_a_letter_without_an_owner_is_named_when_an_owner_is_erased(setup: LayerSetup) -> None:
    left = SpoolFiles(setup.folder, limit=LIMIT)
    await asyncio.to_thread(left.append, [b"not even \xff JSON"])
    await asyncio.to_thread(left.close)
    await adopt(setup.layer)
    (remains,) = await setup.layer.scrub("erin")
    assert dead_letters.NAME in remains
