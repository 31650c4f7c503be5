"""`aforesaid backup`: a copy of a whole store in one file, and back."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aforesaid
from aforesaid.cli.app import app
from aforesaid.server.auth.keys import ApiKeys

TURNS = 30


def invoked(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == status, done.output + repr(done.exception)
    return done.output


async def filled(url: str) -> str:
    """Store conversations, notes and contacts of two owners, and an API key; return the key."""
    async with aforesaid.open(url, models=aforesaid.Models(embedder=None)) as memory:
        for owner in ("erin", "bob"):
            manager = memory.of(owner)
            record = await manager.get_or_create_conversation("kitchen")
            for number in range(TURNS):
                await manager.add_message(record.id, "user", f"{owner} says {number}")
            await manager.remember(f"{owner} likes leeks")
        text, _ = await ApiKeys(memory.backend).create(["erin"], scope="write", name="tablet")
        return text


async def contents(url: str) -> dict[str, list[str]]:
    async with aforesaid.open(url, models=aforesaid.Models(embedder=None)) as memory:
        found = {}
        for owner in ("erin", "bob"):
            manager = memory.of(owner)
            record = await manager.get_or_create_conversation("kitchen")
            page = await manager.messages(record.id, limit=1000)
            notes = [note.text for note in await manager.recall()]
            found[owner] = [str(message.content) for message in page] + notes
        return found


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_what_is_backed_up_is_there_after_a_restore(tmp_path: Path, kind: str) -> None:
    source = f"{kind}:///{tmp_path}/memory.{kind}" if kind == "sqlite" else f"file://{tmp_path}/memory.json"
    key = asyncio.run(filled(source))
    file = tmp_path / "backup.db"
    said = invoked("backup", "create", str(file), "--url", source)
    assert "2 conversations of 2 owners, 1 API key" in said
    assert "verified" in said
    assert sorted(path.name for path in tmp_path.glob("backup*")) == ["backup.db"]
    assert os.stat(file).st_mode & 0o077 == 0
    target = f"sqlite:///{tmp_path}/restored.db"
    assert "restored and verified" in invoked("backup", "restore", str(file), "--url", target)
    assert asyncio.run(contents(target)) == asyncio.run(contents(source))

    async def accepted() -> bool:
        async with aforesaid.open(target) as memory:
            found = await ApiKeys(memory.backend).find(key)
            return found is not None and found.name == "tablet"

    assert asyncio.run(accepted())
    # The second time finds everything there.
    assert "restored and verified" in invoked("backup", "restore", str(file), "--url", target)


def test_an_encrypted_store_stays_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFORESAID_MASTER_KEY", "a2" * 21 + "a=")
    source = f"sqlite:///{tmp_path}/memory.db"

    async def fill() -> None:
        async with aforesaid.open(source, layers=_sealed()) as memory:
            record = await memory.of("erin").get_or_create_conversation("kitchen")
            await memory.of("erin").add_message(record.id, "user", "the safe code is qxzjv")

    def _sealed() -> aforesaid.Layers:
        from aforesaid.layers.build import layers_in
        from aforesaid.settings import Settings

        return layers_in(Settings.load(), source)

    asyncio.run(fill())
    file = tmp_path / "backup.db"
    invoked("backup", "create", str(file), "--url", source)
    assert b"qxzjv" not in file.read_bytes()
    target = f"sqlite:///{tmp_path}/restored.db"
    invoked("backup", "restore", str(file), "--url", target)
    assert "qxzjv" in invoked("search", "safe code", "--owner", "erin", "--url", target)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/memory.db"
    asyncio.run(filled(source))
    file = tmp_path / "backup.db"
    invoked("backup", "create", str(file), "--url", source)
    before = file.read_bytes()
    CliRunner().invoke(app, ["backup", "create", str(file), "--url", source])
    assert file.read_bytes() == before

    async def other() -> None:
        async with aforesaid.open(f"sqlite:///{tmp_path}/other.db") as memory:
            await memory.of("carol").get_or_create_conversation("kitchen")

    asyncio.run(other())
    refused = CliRunner().invoke(
        app, ["backup", "restore", str(file), "--url", f"sqlite:///{tmp_path}/other.db"]
    )
    assert refused.exit_code != 0
    assert "not empty" in refused.output


def test_a_missing_backup_is_said(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["backup", "restore", str(tmp_path / "none.db")])
    assert refused.exit_code != 0
    assert "there is no backup" in refused.output


def test_a_failed_backup_leaves_no_file(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/none.db"
    failed = CliRunner().invoke(app, ["backup", "create", str(tmp_path / "b.db"), "--url", missing])
    assert failed.exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_as_json(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/memory.db"
    asyncio.run(filled(source))
    found = json.loads(invoked("backup", "create", str(tmp_path / "b.db"), "--url", source, "--json"))
    assert (found["owners"], found["conversations"], found["api_keys"]) == (2, 2, 1)
    assert found["bytes"] > 1000
