"""Exports and imports through a server leave nothing in the temporary folder, even killed."""

import os
import threading
from pathlib import Path

import httpx
import pytest

from aforesaid._internal.scratch import ScratchFile, ScratchFolder, open_scratch
from tests.integration.server.test_process import started
from tests.servers.waiting import LONGEST

MARK = "markxyzzyq"
TEXT = f"{MARK} {'words ' * 100_000}"


def filled(address: str) -> None:
    turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": TEXT}]}
    for _ in range(8):
        stored = httpx.post(f"{address}/v1/sessions/turns", json=turn, timeout=LONGEST)
        assert stored.is_success, stored.text[:500]


def residue(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]


def test_a_server_that_is_killed_during_an_export_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    url = f"sqlite:///{tmp_path}/memory.db"
    with started(tmp_path, "--url", url, TMPDIR=str(temporary)) as (process, address):
        filled(address)
        begun = threading.Event()

        def export() -> None:
            try:
                with httpx.stream("GET", f"{address}/v1/export", timeout=LONGEST) as response:
                    assert response.status_code == 200
                    begun.set()
                    response.read()
            except httpx.TransportError:
                pass  # the server is gone

        reading = threading.Thread(target=export)
        reading.start()
        while not begun.is_set():
            assert reading.is_alive() or begun.is_set()
        process.kill()
        process.wait()
        reading.join(LONGEST)
    assert list(temporary.iterdir()) == []
    assert residue(temporary) == []


def test_a_temporary_file_reads_as_it_was_written() -> None:
    data = os.urandom(3_000_001)
    with open_scratch() as file:
        file.write(data[:1000])
        file.write(data[1000:])
        for at in (0, 1, 15, 16, 17, 1_048_575, 1_048_577, 2_999_999):
            file.seek(at)
            assert file.read(1000) == data[at : at + 1000]
        file.seek(0)
        assert file.read() == data


def test_what_a_temporary_file_has_on_disk_is_encrypted() -> None:
    file = ScratchFile()
    file.write(TEXT.encode() * 3)
    assert file._file is not None
    file._file.seek(0)
    assert MARK.encode() not in file._file.read()
    file.seek(0)
    assert file.read(len(MARK)) == MARK.encode()
    file.close()


def test_files_of_a_temporary_folder_may_be_written_by_turns() -> None:
    folder = ScratchFolder()
    first, second = (folder / "first").create(), (folder / "second").create()
    for number in range(5):
        first.write(b"%d" % number * 300_000)
        second.write(b"%d" % (9 - number) * 300_000)
    first.close()
    second.close()
    assert (folder / "first").read_bytes() == b"".join(b"%d" % number * 300_000 for number in range(5))
    assert (folder / "second").size() == 1_500_000
    assert folder.names() == ["first", "second"]
    with pytest.raises(FileNotFoundError):
        (folder / "third").open()
    with pytest.raises(FileExistsError):
        (folder / "first").create()
    folder.close()
