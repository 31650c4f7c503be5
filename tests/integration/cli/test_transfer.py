"""Copying, exporting, importing and migrating, as an operator meets them."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import aforesaid
from aforesaid.stores._sql_files import migrations
from aforesaid.stores.sqlite.connections import PACKAGE
from tests.builders import STORES, empty_url
from tests.integration.cli.conftest import Run
from tests.servers.postgres import Databases
from tests.servers.redis import running
from tests.stored_samples import DATA, restore_redis

DEMO = "sqlite:///aforesaid-demo.db"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(aforesaid.__file__).parents[1])}
"""For commands in a process of their own: the package under test, also where another one is installed."""
SAMPLE = Path(__file__).parents[2] / "data" / "sqlite-v1.db"


@pytest.fixture(autouse=True)
def demo(run: Run) -> None:
    run("demo")


def shown(run: Run, url: str) -> Any:
    (listed,) = json.loads(run("conversations", "--json", "--url", url).stdout)
    return json.loads(run("show", listed["id"], "--json", "--url", url).stdout)


@pytest.fixture(params=[store for store in STORES if store != "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


class TestCopy:
    def test_there_and_back_again(self, run: Run, target: str) -> None:
        first = json.loads(run("copy", DEMO, target, "--json").stdout)
        assert (first["conversations"], first["copied"], first["entries"]) == (1, 1, 6)
        assert shown(run, target) == shown(run, DEMO)
        again = json.loads(run("copy", DEMO, target, "--json").stdout)
        assert (again["copied"], again["unchanged"], again["entries"]) == (0, 1, 0)
        back = json.loads(run("copy", target, "sqlite:///back.db", "--json").stdout)
        assert (back["copied"], back["sessions"]) == (1, 1)
        assert shown(run, "sqlite:///back.db") == shown(run, DEMO)

    def test_in_words(self, run: Run) -> None:
        words = run("copy", DEMO, "file:copy.json").stdout
        transferred, documents = words.splitlines()
        assert transferred == (
            "1 conversation of 1 owner: 1 copied and verified, 0 unchanged; 6 messages, 1 session new"
        )
        # They are analytics, of which each process writes what it has noted.
        assert re.fullmatch("[0-9]+ documents new", documents)

    def test_a_bar_moves_on_a_terminal(self, tmp_path: Path) -> None:
        code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
        command = [sys.executable, "-m", "aforesaid", "copy", DEMO, "file:copy.json"]
        done = subprocess.run(
            [sys.executable, "-c", code, *command],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        assert b"copying" in done.stdout
        assert "━".encode() in done.stdout
        assert b"1/1" in done.stdout

    def test_a_source_that_is_not_there_is_not_made(self, run: Run, tmp_path: Path) -> None:
        assert "does not exist" in run("copy", "sqlite:///none.db", "file:copy.json", code=4).output
        assert not (tmp_path / "none.db").exists()

    def test_a_target_that_changed_has_its_own_exit_code(self, run: Run) -> None:
        run("copy", DEMO, "sqlite:///other.db")
        db = apsw.Connection("other.db")
        db.execute("UPDATE conversations SET revision = revision + 1, subject = 'changed here'")
        db.close()
        describe = run("copy", DEMO, "sqlite:///other.db", code=1).output
        assert "1 of 1 conversations were not overwritten" in describe
        assert shown(run, "sqlite:///other.db")["subject"] == "changed here"


class TestExportAndImport:
    def test_a_file_there_and_back(self, run: Run, target: str, tmp_path: Path) -> None:
        words = run("export", "--output", "export.jsonl").output
        assert "1 conversation of 1 owner exported, 6 messages" in words
        assert stat.S_IMODE((tmp_path / "export.jsonl").stat().st_mode) == 0o600
        first = json.loads(run("import", "export.jsonl", "--url", target, "--json").stdout)
        assert (first["copied"], first["entries"], first["sessions"]) == (1, 6, 1)
        assert shown(run, target) == shown(run, DEMO)
        assert "0 copied and verified, 1 unchanged" in run("import", "export.jsonl", "--url", target).stdout

    def test_standard_output_and_input(self, run: Run) -> None:
        text = run("export", "--owner", "erin").stdout_bytes
        assert sum(b'"document":' not in line for line in text.splitlines()) == 9
        run("import", "-", "--url", "sqlite:///other.db", standard_input=text)
        assert shown(run, "sqlite:///other.db") == shown(run, DEMO)
        assert run("export", "--owner", "nobody").stdout_bytes.count(b"\n") == 2

    def test_through_a_pipe(self, run: Run, tmp_path: Path) -> None:
        program = f"{sys.executable} -m aforesaid"
        command = f"{program} export -u {DEMO} | {program} import - -u sqlite:///other.db --json"
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=True
        )
        assert json.loads(done.stdout)["copied"] == 1
        assert shown(run, "sqlite:///other.db") == shown(run, DEMO)

    def test_a_closed_standard_output_is_reported(self, tmp_path: Path) -> None:
        done = subprocess.run(
            f"{sys.executable} -m aforesaid export -u {DEMO} >&-",
            shell=True,
            check=False,
            cwd=tmp_path,
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert (done.returncode, done.stderr) == (4, "aforesaid: standard output is closed\n")

    def test_what_is_cut_off_is_refused_with_its_line(self, run: Run, tmp_path: Path) -> None:
        text = run("export").stdout_bytes
        (tmp_path / "cut.jsonl").write_bytes(text[:-40])
        describe = run("import", "cut.jsonl", "--url", "file:other.json", code=4).output
        assert f"cut off in line {len(text.splitlines())}" in describe
        assert json.loads(run("conversations", "--json", "--url", "file:other.json").stdout) == []

    def test_a_pipe_is_written_into_and_stays_one(self, run: Run, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # a writer can open it without waiting
        try:
            run("export", "--output", "pipe")
            describe = os.read(reading, 1_000_000)
        finally:
            os.close(reading)
        assert _between(describe) == _between(run("export").stdout_bytes)
        assert pipe.is_fifo()

    def test_a_link_goes_on_to_lead_where_it_led(self, run: Run, tmp_path: Path) -> None:
        kept = tmp_path / "elsewhere" / "kept.jsonl"
        kept.parent.mkdir()
        kept.write_text("old")
        (tmp_path / "link").symlink_to(kept)
        run("export", "--output", "link")
        assert (tmp_path / "link").readlink() == kept
        assert _between(kept.read_bytes()) == _between(run("export").stdout_bytes)
        assert list(kept.parent.iterdir()) == [kept]

    def test_files_that_cannot_be_used_are_named(self, run: Run, tmp_path: Path) -> None:
        assert "cannot read none.jsonl" in run("import", "none.jsonl", code=4).output
        assert "cannot write" in run("export", "--output", "no/folder/x.jsonl", code=4).output
        (tmp_path / "folder").mkdir()
        assert "/folder: Is a directory" in run("export", "--output", "folder", code=4).output
        assert list(tmp_path.glob("*.part")) == []


def _between(export: bytes) -> list[bytes]:
    """The lines of an export without the first, which has its time, and the last, which has its digest."""
    return export.splitlines()[1:-1]


class TestMigrate:
    def test_a_store_that_is_up_to_date(self, run: Run) -> None:
        needed = len(migrations(PACKAGE))
        assert f"has schema {needed} and is up to date" in run("migrate", "--check").stdout
        found = json.loads(run("migrate", "--json").stdout)
        assert found == {"url": DEMO, "found": needed, "needed": needed, "migrated": False}

    def test_a_new_file(self, run: Run, tmp_path: Path) -> None:
        needed = len(migrations(PACKAGE))
        describe = run("migrate", "--check", "--url", "sqlite:///new.db", code=1).stdout
        assert f"has schema 0 and needs {needed}" in describe
        assert not (tmp_path / "new.db").exists()
        assert f"from schema 0 to {needed}" in run("migrate", "--url", "sqlite:///new.db").stdout
        run("migrate", "--check", "--url", "sqlite:///new.db")

    def test_an_old_file(self, run: Run, tmp_path: Path) -> None:
        shutil.copy(SAMPLE, tmp_path / "old.db")
        needed = len(migrations(PACKAGE))
        before = (tmp_path / "old.db").read_bytes()
        describe = json.loads(
            run("migrate", "--check", "--json", "--url", "sqlite:///old.db", code=int(needed > 1)).stdout
        )
        assert (describe["found"], describe["needed"]) == (1, needed)
        assert (tmp_path / "old.db").read_bytes() == before
        run("migrate", "--url", "sqlite:///old.db")
        run("migrate", "--check", "--url", "sqlite:///old.db")

    def test_a_file_of_a_newer_release(self, run: Run) -> None:
        db = apsw.Connection("aforesaid-demo.db")
        db.pragma("user_version", 99)
        db.close()
        assert "has schema 99 and needs" in run("migrate", "--check", code=1).stdout
        assert "newer release" in run("migrate", code=4).output

    def test_postgres(self, run: Run, databases: Databases) -> None:
        url = databases.new()
        assert "has schema 0 and needs" in run("migrate", "--check", "--url", url, code=1).stdout
        assert "migrated from schema 0" in run("migrate", "--url", url).stdout
        describe = run("migrate", "--check", "--url", url).stdout
        assert "is up to date" in describe
        assert "***" in describe

    def test_a_store_without_a_schema_needs_none(self, run: Run) -> None:
        assert "has no schema" in run("migrate", "--url", "memory://").stdout
        assert "has no schema" in run("migrate", "--check", "--url", "memory://").stdout

    def test_files_and_servers_have_a_version(self, run: Run, tmp_path: Path) -> None:
        path = shutil.copy(DATA / "json-v1.json", tmp_path / "memory.json")
        with running() as port:
            restore_redis(f"redis://127.0.0.1:{port}/0", (DATA / "redis-v1.json").read_text())
            for url in (f"file://{path}", f"redis://127.0.0.1:{port}/0"):
                assert "has schema 1 and needs 2" in run("migrate", "--check", "--url", url, code=1).stdout
                assert "migrated from schema 1 to 2" in run("migrate", "--url", url).stdout
                assert "is up to date" in run("migrate", "--check", "--url", url).stdout


class TestForeignFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        turn = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}]
        told = {"last_active": "2026-03-01T09:20:00", "turns": [{"messages": turn}]}
        path = tmp_path / "chats.json"
        path.write_text(json.dumps({"+15550100": told, "+15550101": {}}))
        return str(path)

    def test_a_chat_memory_is_imported_once(self, run: Run, file: str, target: str) -> None:
        place = ("--url", target, "--owner", "household")
        dry = run("import", "chat-memory", file, *place, "--dry-run").stdout
        assert dry.startswith("1 conversation, 2 messages new: would be imported\n")
        words = run("import", "chat-memory", file, *place).stdout
        assert words == (
            "1 conversation, 2 messages new: imported\n! +15550101: turns must be a list\n! 1 part skipped\n"
        )
        again = json.loads(run("import", "chat-memory", file, *place, "--json").stdout)
        assert (again["messages"], again["known"]) == (0, 2)
        assert len(shown(run, target)["messages"]) == 2

    def test_what_is_missing_is_named(self, run: Run, file: str) -> None:
        assert "FORMAT must be one of chat-memory" in run("import", "diary", file, "-o", "me", code=2).output
        assert "--owner is needed" in run("import", "chat-memory", file, code=2).output
        assert "dry run" in run("import", file, "--dry-run", code=2).output
        run("import", "chat-memory", file, file, "-o", "me", code=2)
