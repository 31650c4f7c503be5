"""`aforesaid doctor`: what is wrong is named, with what to do, and with an exit code."""

import asyncio
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import aforesaid
from aforesaid.cli.doctor import Finding, checkup
from aforesaid.encryption import generate_master_key
from aforesaid.layers.build import Layers, spool_folder
from aforesaid.layers.options import encryption_in
from aforesaid.layers.resilient import resilient
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.settings import ResilienceConfig, Settings
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.stores.urls import backend_for
from aforesaid.telemetry import Telemetry
from tests.faults import Failing
from tests.integration.cli.conftest import Run
from tests.servers.postgres import Databases

AWAY = "redis://127.0.0.1:1/0"


def with_spool(folder: Path) -> Settings:
    return Settings(resilience=ResilienceConfig(spool_folder=str(folder)))


def of(findings: list[Finding], about: str) -> Finding:
    worst = [f for f in findings if f.about == about and f.state != "well"]
    return worst[0] if worst else next(f for f in findings if f.about == about)


def test_all_is_well(run: Run) -> None:
    run("demo")
    shown = run("doctor").stdout
    for about in ("store", "schema", "spool", "clock", "free disk", "permissions"):
        assert about in shown
    assert "problem" not in shown
    found = json.loads(run("doctor", "--json").stdout)
    assert {finding["state"] for finding in found} <= {"well", "warning"}


def test_a_store_that_is_away_is_a_problem_with_advice(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AFORESAID_SPOOL_FOLDER", str(tmp_path))
    done = run("doctor", "--url", AWAY, "--json", code=1)
    (store,) = [finding for finding in json.loads(done.stdout) if finding["about"] == "store"]
    assert store["state"] == "problem"
    assert "start the server" in store["advice"]


async def test_operations_in_the_spool_are_reported(tmp_path: Path) -> None:
    failing = Failing(InMemoryBackend())
    layer = resilient(failing, folder=spool_folder(AWAY, tmp_path), metrics=Telemetry(), background=False)
    await layer.open()
    store = layer.of("erin")
    failing.down()
    await store.resume("kitchen", started(new_id(), now=store.now()))
    soon = datetime.now(UTC) + timedelta(hours=1)
    findings = await checkup(AWAY, with_spool(tmp_path), clock=lambda: soon)
    spool = of(findings, "spool")
    assert spool.state == "warning"
    assert "1 operations waiting" in spool.found
    assert "the oldest for 1:00:0" in spool.found
    await layer.close()


async def test_dead_letters_are_a_problem(tmp_path: Path) -> None:
    folder = spool_folder(AWAY, tmp_path)
    folder.mkdir()
    (folder / "dead-letters.jsonl").write_text("{}\n{}\n")
    spool = of(await checkup(AWAY, with_spool(tmp_path)), "spool")
    assert (spool.state, "2 dead letters" in spool.found) == ("problem", True)


async def test_a_spool_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    found = of(await checkup(AWAY, with_spool(blocked)), "permissions (spool)")
    assert found.state == "problem"
    assert "AFORESAID_SPOOL_FOLDER" in str(found.advice)


async def test_a_nearly_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = shutil.disk_usage(tmp_path)
    for free, state in ((50 * 1024**2, "problem"), (500 * 1024**2, "warning"), (50 * 1024**3, "well")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        findings = await checkup(f"sqlite:///{tmp_path}/memory.db", Settings())
        assert of(findings, "free disk (store)").state == state


async def test_a_wrong_clock_is_reported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    backend = SQLiteBackend(f"{tmp_path}/memory.db")
    await backend.open()
    store = backend.of("erin")
    record = await store.create(started(new_id(), now=store.now(), ttl=None))
    await store.append(record.id, [Message(role="user", content="x")])
    await backend.close()
    late = datetime.now(UTC) - timedelta(hours=3)
    clock = of(await checkup(url, Settings(), clock=lambda: late), "clock")
    assert (clock.state, "ahead of this clock" in clock.found) == ("problem", True)
    lost = of(await checkup(url, Settings(), clock=lambda: datetime(1970, 1, 2, tzinfo=UTC)), "clock")
    assert lost.state == "problem"


async def test_a_file_that_others_can_read_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    backend = SQLiteBackend(str(file))
    await backend.open()
    await backend.close()
    await asyncio.to_thread(file.chmod, 0o644)
    found = of(await checkup(f"sqlite:///{file}", Settings()), "permissions")
    assert found.state == "warning"
    assert found.advice == f"chmod 600 {file}"


async def test_a_look_makes_no_file(tmp_path: Path) -> None:
    findings = await checkup(f"sqlite:///{tmp_path}/memory.db", Settings())
    assert of(findings, "store").found.endswith("the first turn creates it")
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_encryption_needs_no_ciphers(run: Run, tmp_path: Path) -> None:
    run("demo")
    script = (
        "import sys; sys.modules['cryptography'] = None; from aforesaid.cli.app import app; app(['doctor'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout
    assert "off for this store" in done.stdout


def test_a_wrong_master_key_is_a_problem(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFORESAID_MASTER_KEY", generate_master_key())
    run("demo", "--url", "sqlite:///sealed.db")
    run("doctor", "--url", "sqlite:///sealed.db")
    monkeypatch.setenv("AFORESAID_MASTER_KEY", generate_master_key())
    done = run("doctor", "--url", "sqlite:///sealed.db", "--json", code=1)
    (found,) = [each for each in json.loads(done.stdout) if each["about"] == "encryption"]
    assert found["state"] == "problem"
    assert "AFORESAID_MASTER_KEY" in found["advice"]


async def test_an_encrypted_log_that_was_changed_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    monkeypatch.setenv("AFORESAID_MASTER_KEY", generate_master_key())
    settings = Settings.load()
    encryption = encryption_in(settings.protection)
    assert encryption is not None
    async with aforesaid.open(url, layers=Layers(encryption=encryption)) as memory:
        erin = memory.of("erin")
        record = await erin.get_or_create_conversation("kitchen")
        for number in range(3):
            await erin.append(record.id, [Message(role="user", content=f"message {number}")])
    logs = of(await checkup(url, settings), "encrypted logs")
    assert logs.state == "well"
    assert "unchanged in 1 sampled conversations" in logs.found

    def remove_first() -> None:
        db = apsw.Connection(f"{tmp_path}/memory.db")
        db.execute("DELETE FROM messages WHERE sequence = 1")
        db.close()

    await asyncio.to_thread(remove_first)
    logs = of(await checkup(url, settings), "encrypted logs")
    assert logs.state == "problem"
    assert record.id in logs.found
    assert "keys verify" in (logs.advice or "")


@pytest.mark.parametrize(("seconds", "state"), [(0, "well"), (30, "warning"), (600, "problem")])
async def test_a_clock_that_differs_from_the_store_s_is_reported(
    one_redis_url: str, tmp_path: Path, seconds: int, state: str
) -> None:
    backend = backend_for(one_redis_url)
    await backend.open()  # an empty server has nothing to check
    await backend.close()
    behind = timedelta(seconds=seconds)
    findings = await checkup(one_redis_url, with_spool(tmp_path), clock=lambda: datetime.now(UTC) - behind)
    clock = of(findings, "clock (store)")
    assert clock.state == state
    assert ("ahead of this machine" in clock.found) == (seconds > 0)


async def test_a_missing_extension_is_a_warning_with_advice(databases: Databases, tmp_path: Path) -> None:
    url = databases.furnished()
    findings = await checkup(url, with_spool(tmp_path))
    assert of(findings, "clock (store)").state == "well"
    extensions = of(findings, "extensions")
    assert extensions.state == "warning"  # the packaged server of the tests has no pgvector
    assert "vector" in extensions.found
    assert "CREATE EXTENSION" in str(extensions.advice)
