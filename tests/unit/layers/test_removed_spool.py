"""Files of a spool are removed or replaced while they are open: nothing that was accepted is lost."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aforesaid.errors import StoreUnavailable
from aforesaid.layers.resilient.spool import files as spool_files
from aforesaid.layers.resilient.spool.files import SpoolFiles


def left_in(folder: Path) -> list[bytes]:
    """What the next process finds."""
    files = SpoolFiles(folder, limit=10**6)
    try:
        return [payload for _, payload in files.adopt().operations]
    finally:
        files.close()


def remove_files(folder: Path) -> None:
    for path in folder.glob("*.spool"):
        path.unlink()


def remove_everything(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def remove_lock(folder: Path) -> None:
    for path in folder.glob("*.lock"):
        path.unlink()


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def replace_files(folder: Path) -> None:
    for path in folder.glob("*.spool"):
        fresh = path.with_suffix(".fresh")
        fresh.touch()
        os.replace(fresh, path)


CHANGES: list[Callable[[Path], None]] = [
    remove_files,
    remove_everything,
    remove_lock,
    remove_folder,
    move_folder,
    replace_files,
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_process_finds_what_was_accepted_before_and_after(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = tmp_path / "spool"
    files = SpoolFiles(folder, limit=10**6)
    done, *_ = files.append([b"done", b"before"])
    files.mark_done([done])
    change(folder)
    files.append([b"after"])
    files.close()
    assert sorted(left_in(folder)) == [b"after", b"before"]


@pytest.mark.parametrize("change", [remove_files, remove_folder, replace_files])
def test_an_operation_is_refused_when_its_file_goes_while_it_is_written(
    tmp_path: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool"
    files = SpoolFiles(folder, limit=10**6)
    files.append([b"before"])
    sync = spool_files._sync

    def change_then_sync(descriptor: int) -> None:
        change(folder)
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(spool_files, "_sync", change_then_sync)
        with pytest.raises(StoreUnavailable):
            files.append([b"refused"])
    files.append([b"after"])
    files.close()
    assert sorted(left_in(folder)) == [b"after", b"before"]


@pytest.mark.parametrize("seed", range(30))
def test_at_random_moments(tmp_path: Path, seed: int) -> None:
    """Whatever is removed between two steps: what waits after the last append is found, and nothing else that
    was never accepted."""
    chance = random.Random(seed)
    folder = tmp_path / "spool"
    files = SpoolFiles(folder, limit=10**6)
    waiting = dict.fromkeys(files.append([b"first"]), b"first")
    for number in range(40):
        if chance.random() < 0.2 and folder.exists():
            chance.choice([remove_files, remove_everything, remove_lock, remove_folder])(folder)
        if chance.random() < 0.3 and waiting:
            ref = chance.choice(list(waiting))
            files.mark_done([ref])
            del waiting[ref]
        payload = b"%d" % number
        waiting |= dict.fromkeys(files.append([payload]), payload)
    assert [files.read([ref]) for ref in waiting] == [[payload] for payload in waiting.values()]
    files.close()
    assert set(waiting.values()) <= set(left_in(folder)) <= {b"first", *(b"%d" % one for one in range(40))}
