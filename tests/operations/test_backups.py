"""Backups of stores that a server writes to meanwhile."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.servers import redis
from tests.servers.postgres import PostgresServer
from tests.servers.running import ROOT, server
from tests.servers.waiting import LONGEST


def aforesaid(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "aforesaid", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=["postgres", "redis", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/memory.db"
        return
    if request.param == "redis":
        with redis.running() as port:
            yield f"redis://127.0.0.1:{port}/0"
        return
    database = PostgresServer()
    database.start()
    yield database.url
    database.stop()


class Writing(threading.Thread):
    """Stores turns until it is stopped."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._stopping = threading.Event()
        self.stored = 0

    def run(self) -> None:
        with httpx.Client(base_url=self._address, timeout=LONGEST) as client:
            while not self._stopping.is_set():
                turn = {
                    "session_id": f"s{self.stored % 7}",
                    "messages": [{"role": "user", "content": str(self.stored)}],
                }
                assert client.post("/v1/sessions/turns", json=turn, timeout=LONGEST).status_code == 201
                self.stored += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join(LONGEST)


def test_a_store_in_use_is_backed_up_and_restored(tmp_path: Path, url: str) -> None:
    one = server(tmp_path, url, AFORESAID_RATE_WRITE="0")
    one.start()
    try:
        writing = Writing(one.address)
        writing.start()
        while writing.stored < 50:
            threading.Event().wait(0.05)
        before = writing.stored
        aforesaid("backup", "create", "backup.db", "--url", url, folder=tmp_path)
        writing.stop()
    finally:
        one.stop()
    target = f"sqlite:///{tmp_path}/restored.db"
    assert "verified" in aforesaid("backup", "restore", "backup.db", "--url", target, folder=tmp_path)
    restored = server(tmp_path, target)
    restored.start()
    try:
        found = httpx.get(f"{restored.address}/v1/stats", timeout=LONGEST).json()
    finally:
        restored.stop()
    # Everything that was acknowledged before the backup began is in it.
    assert before <= found["messages"] <= writing.stored


def test_pg_dump_needs_a_role_that_bypasses_row_level_security(tmp_path: Path) -> None:
    database = PostgresServer()
    database.start()
    try:
        one = server(tmp_path, database.url)
        one.start()
        turn = {"session_id": "kitchen", "messages": [{"role": "user", "content": "hello"}]}
        assert httpx.post(f"{one.address}/v1/sessions/turns", json=turn, timeout=LONGEST).status_code == 201
        one.stop()
        with psycopg.connect(database.url) as connection:
            found = connection.execute(
                "SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user"
            )
            assert found.fetchone() == (True,)
        dump = [str(database.program("pg_dump")), "--file", str(tmp_path / "dump.sql"), database.url]
        done = subprocess.run(dump, capture_output=True, text=True, check=False, timeout=LONGEST)
        assert done.returncode == 0, done.stderr
        assert "hello" in (tmp_path / "dump.sql").read_text()
    finally:
        database.stop()
