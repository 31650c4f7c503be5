"""The spool's files: whole frames or none, after any damage, also in files of dead processes."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.errors import SpoolFull, StoreUnavailable
from aforesaid.layers.resilient.spool import Spool
from aforesaid.layers.resilient.spool import files as spool_files
from aforesaid.layers.resilient.spool.files import SpoolFiles
from aforesaid.layers.resilient.spool.frames import OPERATION, frame, payload_of, scan

payloads = st.lists(st.binary(max_size=40), max_size=6)


def adopted(files: SpoolFiles) -> list[bytes]:
    return [payload for _, payload in files.adopt().operations]


def found(content: bytes) -> list[bytes]:
    return [content[one.payload] for one in scan(content).operations]


def framed(payloads: list[bytes], first: int = 0) -> list[bytes]:
    return [frame(OPERATION, first + place, payload) for place, payload in enumerate(payloads)]


@given(payloads, st.binary(max_size=60))
def test_a_file_cut_anywhere_gives_the_frames_that_are_whole(given_: list[bytes], tail: bytes) -> None:
    frames = framed(given_)
    content = b"".join(frames)
    assert found(content) == given_
    for cut in range(len(content)):
        whole = 0
        while sum(map(len, frames[: whole + 1])) <= cut and whole < len(frames):
            whole += 1
        assert found(content[:cut]) == given_[:whole]
        assert scan(content[:cut]).end == sum(map(len, frames[:whole]))
        assert scan(content[:cut]).damaged == []


@given(payloads, payloads, st.binary(min_size=1, max_size=60))
def test_damage_in_the_middle_costs_what_is_damaged(
    before: list[bytes], after: list[bytes], noise: bytes
) -> None:
    first = b"".join(framed(before))
    second = b"".join(framed(after, len(before)))
    result = scan(first + noise + second)
    assert found(first + noise + second) == before + after
    kept = b"".join((first + noise + second)[start:end] for start, end in result.damaged)
    is_torn = not after and (b"RSP2".startswith(noise) or not noise.strip(b"\0"))
    assert kept == (b"" if is_torn else noise)


@given(st.binary(max_size=40), st.data())
def test_a_flipped_bit_is_noticed(payload: bytes, data: st.DataObject) -> None:
    content = bytearray(frame(OPERATION, 3, payload))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    assert payload_of(bytes(content)) is None


def test_zeros_after_a_power_cut_are_cut_off(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path, limit=10**6)
    files.append([b"one", b"two"])
    files.close()
    (path,) = tmp_path.glob("*.spool")
    with path.open("ab") as file:
        file.write(bytes(4096))
    files = SpoolFiles(tmp_path, limit=10**6)
    assert adopted(files) == [b"one", b"two"]
    files.close()


def test_what_is_done_is_not_adopted_and_a_finished_file_is_removed(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path, limit=10**6)
    refs = files.append([b"0", b"1", b"2", b"3"])
    files.mark_done([refs[0], refs[2]])
    files.close()
    files = SpoolFiles(tmp_path, limit=10**6)
    refs = [ref for ref, _ in files.adopt().operations]
    assert files.read(refs) == [b"1", b"3"]
    files.mark_done(refs)
    assert list(tmp_path.iterdir()) == []
    files.close()


def test_marks_are_not_needed(tmp_path: Path) -> None:
    """A power cut may take marks away: then an operation is handed over once more."""
    files = SpoolFiles(tmp_path, limit=10**6)
    refs = files.append([b"0", b"1"])
    (path,) = tmp_path.glob("*.spool")
    size = path.stat().st_size
    files.mark_done(refs[:1])
    files.close()
    os.truncate(path, size)
    files = SpoolFiles(tmp_path, limit=10**6)
    assert adopted(files) == [b"0", b"1"]
    files.close()


def test_damage_is_set_aside_and_the_rest_is_read(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path, limit=10**6)
    files.append([b"one", b"two", b"three"])
    files.close()
    (path,) = tmp_path.glob("*.spool")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"two", b"TWO"))
    files = SpoolFiles(tmp_path, limit=10**6)
    assert adopted(files) == [b"one", b"three"]
    assert b"TWO" in path.with_suffix(".damaged").read_bytes()
    files.close()


def test_a_file_that_is_held_is_not_adopted(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path, limit=10**6)
    files.append([b"mine"])
    other = SpoolFiles(tmp_path, limit=10**6)
    assert adopted(other) == []
    files.close()
    assert adopted(other) == [b"mine"]
    other.close()


def test_a_set_that_the_disk_does_not_give_is_left_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for payload in (b"one", b"two"):
        files = SpoolFiles(tmp_path, limit=10**6)
        files.append([payload])
        files.close()
    files, other = SpoolFiles(tmp_path, limit=10**6), SpoolFiles(tmp_path, limit=10**6)
    failures = iter([OSError(errno.EMFILE, "Too many open files")])
    real = spool_files._read

    def fail_once(*args: int) -> bytes:
        if error := next(failures, None):
            raise error
        return real(*args)

    monkeypatch.setattr(spool_files, "_read", fail_once)
    ((_, first),), _, failed = files.adopt()
    assert isinstance(failed, StoreUnavailable)
    assert files.size == len(frame(OPERATION, 0, first))
    (second,) = adopted(other)
    assert {first, second} == {b"one", b"two"}
    files.close()
    other.close()


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path / "made", limit=10**6)
    files.append([b"mine"])
    (path,) = (tmp_path / "made").glob("*.spool")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    files.close()


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_disk_that_is_full_refuses_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    files = SpoolFiles(tmp_path, limit=10**6)
    files.append([b"one"])
    real: Callable[..., Any] = os.write

    def full(descriptor: int, *content: Any) -> int:
        if content:
            real(descriptor, bytes(content[0])[:5])
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(os, "write", full)
        else:
            patch.setattr("aforesaid.layers.resilient.spool.files._sync", full)
        with pytest.raises(SpoolFull, match="no space left"):
            files.append([b"two"])
    assert files.read(files.append([b"three"])) == [b"three"]
    files.close()
    files = SpoolFiles(tmp_path, limit=10**6)
    assert sorted(adopted(files)) == [b"one", b"three"]
    files.close()


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    files = SpoolFiles(blocked / "spool", limit=10**6)
    with pytest.raises(StoreUnavailable, match="cannot be used") as caught:
        files.append([b"one"])
    assert isinstance(caught.value.__cause__, OSError)


def test_forgetting_leaves_nothing_of_what_was_meant(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path, limit=10**6)
    refs = files.append([b"keep 1", b"secret 1", b"keep 2", b"secret done"])
    files.mark_done([refs[3]])
    gone = files.forget(lambda payload: payload.startswith(b"secret"))
    assert gone == [refs[1]]
    assert files.read([refs[0], refs[2]]) == [b"keep 1", b"keep 2"]
    (path,) = tmp_path.glob("*.spool")
    assert b"secret" not in path.read_bytes()
    more = files.append([b"more"])
    files.mark_done([refs[0]])
    files.close()
    files = SpoolFiles(tmp_path, limit=10**6)
    assert adopted(files) == [b"keep 2", b"more"]
    assert more[0].number == 4, "numbers are never used twice in a file"
    files.close()


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), RuntimeError("a bug")])
async def test_whatever_fails_in_the_thread_reaches_the_caller_as_one_of_our_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    spool = Spool(tmp_path, limit=10**6, deadline=1.0)
    kept = await spool.write(b"one", lambda ref: ref)
    with monkeypatch.context() as patch:
        patch.setattr("aforesaid.layers.resilient.spool.files._sync", fail)
        with pytest.raises(StoreUnavailable) as caught:
            await spool.write(b"two", lambda ref: ref)
        assert caught.value.__cause__ is error
        patch.setattr("aforesaid.layers.resilient.spool.files._read", fail)
        with pytest.raises(StoreUnavailable) as caught:
            await spool.read([kept])
        assert caught.value.__cause__ is error
    assert await spool.read([kept, await spool.write(b"three", lambda ref: ref)]) == [b"one", b"three"]
    await spool.close()
