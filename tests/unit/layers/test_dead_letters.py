"""Dead letters: one file that all processes of a store share."""

import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid._internal import files
from aforesaid.errors import ConversationNotFound, SpoolFull, StoreUnavailable
from aforesaid.layers.resilient import dead_letters
from aforesaid.layers.resilient.operations import Operation, Unbound, encode

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def keep(folder: Path, owner: str) -> None:
    payload = encode(Operation(owner=owner, at=NOW, action=Unbound(session_id="kitchen")))
    dead_letters.add(folder, payload, ConversationNotFound("x"), now=NOW)


def test_what_is_set_aside_while_others_are_forgotten_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "bob")
    waits_or_is_through = threading.Event()

    def keep_hers() -> None:
        keep(tmp_path, "erin")
        waits_or_is_through.set()

    keeping = threading.Thread(target=keep_hers)
    replace: Callable[[Path, Path], None] = os.replace

    def replace_later(fresh: Path, old: Path) -> None:
        keeping.start()
        assert waits_or_is_through.wait(240)
        replace(fresh, old)

    monkeypatch.setattr(os, "replace", replace_later)
    monkeypatch.setattr(time, "sleep", lambda _: waits_or_is_through.set())
    assert dead_letters.remove(tmp_path, "bob", None) == 1
    keeping.join()
    assert dead_letters.count(tmp_path) == 1


def test_a_process_that_holds_the_letters_for_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST_WAIT", 0)
    with files.held(tmp_path / "dead-letters.lock"), pytest.raises(StoreUnavailable, match="too long"):
        keep(tmp_path, "erin")
    keep(tmp_path, "erin")
    assert [path.name for path in tmp_path.iterdir()] == [dead_letters.NAME]


# Torn letters

ERROR = ConversationNotFound("x")
SECRET = "the combination is 4711"


def operation(owner: str, words: str = SECRET) -> bytes:
    return encode(Operation(owner=owner, at=NOW, action=Unbound(session_id=words)))


def raw(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


def torn_then_whole(folder: Path, *, cut: int, torn: str, whole: str) -> None:
    """A letter of which a kill has left the first bytes, then a whole one."""
    path = folder / dead_letters.NAME
    dead_letters.add(folder, operation("zoe", "first"), ERROR, now=NOW)
    size = path.stat().st_size
    dead_letters.add(folder, operation(torn), ERROR, now=NOW)
    os.truncate(path, size + cut)
    dead_letters.add(folder, operation(whole, "last"), ERROR, now=NOW)


def letter_size(folder: Path, owner: str) -> int:
    dead_letters.add(folder / "measured", operation(owner), ERROR, now=NOW)
    return (folder / "measured" / dead_letters.NAME).stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("owner", ["erin", 'quo"ted \\ "owner":"bob"'])
def test_a_letter_torn_at_any_byte_leaves_its_neighbours_whole_and_is_erased(
    tmp_path: Path, owner: str
) -> None:
    for cut in range(letter_size(tmp_path, owner)):
        folder = tmp_path / str(cut)
        torn_then_whole(folder, cut=cut, torn=owner, whole="bob")
        assert dead_letters.count(folder) - (1 - dead_letters.count_torn(folder) if cut else 0) == 2, cut
        dead_letters.remove(folder, owner, None)
        assert SECRET.encode() not in raw(folder), cut
        assert b"first" in raw(folder) and b"last" in raw(folder)  # noqa: PT018
        assert dead_letters.count(folder) == 2, cut
        assert dead_letters.remove(folder, "bob", None) == 1
        assert dead_letters.remove(folder, "zoe", None) == 1
        assert raw(folder) == b"", cut


def test_a_torn_letter_of_another_owner_is_left_alone(tmp_path: Path) -> None:
    torn_then_whole(tmp_path, cut=letter_size(tmp_path, "erin") - 3, torn="erin", whole="bob")
    assert dead_letters.remove(tmp_path, "bob", None) == 1
    assert SECRET.encode() in raw(tmp_path)
    assert dead_letters.count_torn(tmp_path) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [True, False], ids=["truncates", "cannot truncate"])
def test_a_disk_that_is_full_at_any_byte_loses_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: bool
) -> None:
    write: Callable[[int, bytes], int] = os.write

    def no(*_: int) -> None:
        raise OSError(errno.EIO, "broken")

    for room in range(letter_size(tmp_path, "erin") - 1):
        folder = tmp_path / f"{cuts} {room}"
        keep(folder, "bob")
        left = [room]

        def short(descriptor: int, content: bytes, left: list[int] = left) -> int:
            if bytes(content).strip().isdigit():
                return write(descriptor, content)  # the lock notes its process
            if not left[0]:
                raise OSError(errno.ENOSPC, "no space left")
            written = write(descriptor, content[: left[0]])
            left[0] -= written
            return written

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", short)
            if not cuts:
                patched.setattr(os, "ftruncate", no)
            with pytest.raises(SpoolFull):
                dead_letters.add(folder, operation("erin"), ERROR, now=NOW)
        assert dead_letters.count_torn(folder) == (0 if cuts else bool(room)), room
        dead_letters.add(folder, operation("erin"), ERROR, now=NOW)
        assert dead_letters.count(folder) == 2, room
        dead_letters.remove(folder, "erin", None)
        assert SECRET.encode() not in raw(folder), room
        assert dead_letters.count(folder) == 1, room


def test_a_rewrite_that_was_killed_leaves_no_copy_behind(tmp_path: Path) -> None:
    keep(tmp_path, "erin")
    (tmp_path / f"{dead_letters.NAME}.unfinished").write_bytes((tmp_path / dead_letters.NAME).read_bytes())
    (tmp_path / dead_letters.NAME).unlink()
    assert dead_letters.remove(tmp_path, "erin", None) == 0
    assert raw(tmp_path) == b""


def test_a_rewrite_for_which_there_is_no_room_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "erin")
    keep(tmp_path, "bob")
    before = raw(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(SpoolFull):
            dead_letters.remove(tmp_path, "erin", None)
    assert raw(tmp_path) == before


@given(history=st.lists(st.tuples(st.sampled_from(["erin", "bob"]), st.floats(0, 1)), max_size=8))
def test_random_histories_of_torn_letters_are_erased(history: list[tuple[str, float]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, (owner, share) in enumerate(history):
            path = folder / dead_letters.NAME
            before = path.stat().st_size if path.exists() else 0
            dead_letters.add(folder, operation(owner, f"{owner} says {place}"), ERROR, now=NOW)
            after = path.stat().st_size
            os.truncate(path, before + round((after - before) * share))
        whole = sum(share == 1 for owner, share in history if owner == "bob")
        dead_letters.remove(folder, "erin", None)
        assert b"erin says" not in raw(folder)
        assert dead_letters.count(folder) >= whole
