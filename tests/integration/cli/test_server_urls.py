"""The commands through a server: what acts for an owner works, what needs the store itself says so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aforesaid.server.auth.keys import ApiKeys
from tests.integration.cli.conftest import Run
from tests.servers.remote import Served, served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(f"sqlite:///{tmp_path}/served.db", archives=tmp_path / "archives") as running:
        yield running


@pytest.fixture
def demo(run: Run, server: Served, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The demo, put there through the server."""
    made = json.loads(run("demo", "--json", "--url", server.url).stdout)
    monkeypatch.setenv("AFORESAID_URL", server.url)
    return made


def test_what_is_there_is_listed_shown_and_counted(run: Run, demo: Any) -> None:
    conversation_id = demo["conversation"]["id"]
    (listed,) = json.loads(run("conversations", "--json").stdout)
    assert (listed["id"], listed["owner"]) == (conversation_id, "erin")
    assert "Is the back door locked?" in run("show", conversation_id).stdout
    assert json.loads(run("stats", "--json").stdout)["messages"] == 6
    assert "potatoes" in run("search", "potatoes", "--owner", "erin").stdout
    assert "of 6 messages" in run("context", conversation_id).stdout


def test_what_an_owner_decides_works(run: Run, demo: Any, tmp_path: Path) -> None:
    conversation_id = demo["conversation"]["id"]
    run("retention", "--owner", "erin", "--days", "7", "--yes")
    assert "7 days" in run("retention", "--owner", "erin").stdout
    assert "Nothing to purge" in run("purge", "--dry-run").stdout
    run("archive", conversation_id)
    (archived,) = json.loads(run("archives", "--json").stdout)
    assert archived["archive"]["conversation_id"] == conversation_id
    run("restore", conversation_id)
    run("export", "--owner", "erin", "--folder", str(tmp_path / "out"))
    assert (tmp_path / "out" / "manifest.json").exists()
    assert json.loads(run("erase", "--owner", "erin", "--yes", "--json").stdout)["erased"]["messages"] == 6
    run("import", str(tmp_path / "out"))
    assert json.loads(run("stats", "--json").stdout)["messages"] == 6


def test_notes_are_kept_and_forgotten(run: Run, demo: Any) -> None:
    run("notes", "add", "the bedroom lights are dim at nine", "--owner", "erin")
    assert "dim at nine" in run("notes", "list", "--owner", "erin").stdout
    run("notes", "forget", "bedroom lights", "--owner", "erin", "--yes")
    assert "dim at nine" not in run("notes", "list", "--owner", "erin").stdout


def test_one_talks_with_the_recall_agent_through_a_server(run: Run, demo: Any) -> None:
    said = run("chat", "--owner", "erin", standard_input=b"what did I say about potatoes?\n/quit\n").stdout
    assert "potatoes" in said


def test_a_key_that_does_not_reach_so_far_is_said_before_anybody_talks(
    run: Run, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = server.begin(ApiKeys(server.memory.backend).create(["erin"])).result(30)
    monkeypatch.setenv("AFORESAID_KEY", key)
    refused = run("chat", "--url", server.url, "--owner", "sam", standard_input=b"hello\n", code=1)
    assert "the key has no access to this owner" in refused.stderr
    assert not refused.stdout
    run("chat", "--url", server.url, "--owner", "erin", standard_input=b"/quit\n")


@pytest.mark.parametrize(
    "command",
    [
        ("migrate",),
        ("doctor",),
        ("reindex",),
        ("export",),
        ("import", "-"),
        ("copy", "SERVER", "memory://"),
        ("copy", "memory://", "SERVER"),
    ],
    ids=" ".join,
)
def test_a_command_that_needs_the_store_itself_refuses_a_server(
    run: Run, server: Served, command: tuple[str, ...]
) -> None:
    given = [server.url if part == "SERVER" else part for part in command]
    more = [] if "copy" in command else ["--url", server.url]
    refused = run(*given, *more, code=2)
    expected = "aforesaid: this command needs a store, not a server: run it with --url of the store\n"
    assert refused.stderr == expected


@pytest.mark.parametrize("command", [("search", "x", "--words"), ("archives", "--folder", "x")])
def test_an_option_that_needs_the_store_itself_refuses_a_server(
    run: Run, server: Served, command: tuple[str, ...]
) -> None:
    option = next(part for part in command if part.startswith("--"))
    refused = run(*command, "--url", server.url, code=2)
    expected = f"aforesaid: {option} needs the URL of a store; a server uses its own setting\n"
    assert refused.stderr == expected


def test_a_server_that_is_not_there_is_an_error_of_the_store(run: Run) -> None:
    assert "cannot be reached" in run("stats", "--url", "http://127.0.0.1:9", code=4).stderr


def test_the_key_comes_from_the_environment_and_is_not_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFORESAID_KEY", "ak_verysecret")
    assert "ak_verysecret" not in run("config").stdout
    said = run("stats", "--url", "http://example.org", code=2).stderr
    assert "unencrypted" in said
    assert "ak_verysecret" not in said
