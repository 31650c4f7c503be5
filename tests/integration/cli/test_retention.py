"""Retention, archives, redaction, erasure and an owner's folder, as an operator meets them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Run


@pytest.fixture
def demo(run: Run) -> Any:
    return json.loads(run("demo", "--json").stdout)["conversation"]["id"]


def test_a_purge_can_be_looked_at_first(run: Run, demo: str) -> None:
    assert "Nothing to purge" in run("purge", "--dry-run").stdout
    (going,) = json.loads(run("purge", "--dry-run", "--within", "31", "--json").stdout)
    assert going["owner"] == "erin"
    assert going["expiring"]["conversation_id"] == demo
    assert going["expiring"]["why"] == "30 days, by default"
    shown = run("purge", "--dry-run", "--within", "31", "--owner", "erin").stdout
    assert "1 conversation would go" in shown
    run("purge", "--dry-run", "--within", "-1", code=2)
    assert json.loads(run("stats", "--json").stdout)["messages"] == 6


def test_rules_are_set_and_shown(run: Run, demo: str) -> None:
    assert "No rules" in run("retention", "--owner", "erin").stdout
    shown = run(
        "retention", "--owner", "erin", "--days", "90", "--channel", "voice=7", "--tag", "legal=0", "--yes"
    ).stdout
    assert "channel voice: 7 days" in shown
    assert "tag legal: keep" in shown
    assert "everything else: 90 days" in shown
    assert "1 conversation changed lifetime" in shown
    changed = run("retention", "--owner", "erin", "--channel", "voice=-1", "--json", "--yes").stdout
    assert json.loads(changed)["rules"]["channels"] == {}
    run("retention", "--owner", "erin", "--channel", "voice", "--yes", code=2)
    run("retention", "--owner", "erin", "--channel", "smoke signals=1", "--yes", code=2)


def test_rules_are_not_set_without_a_confirmation(run: Run, demo: str) -> None:
    run("retention", "--owner", "erin", "--days", "1", code=1)
    assert "No rules" in run("retention", "--owner", "erin").stdout


def test_expired_conversations_are_removed_after_a_confirmation(run: Run, demo: str) -> None:
    run("retention", "--owner", "erin", "--days", "0.0000000001", "--yes")  # nine microseconds
    run("purge", code=1)
    assert len(json.loads(run("purge", "--dry-run", "--json").stdout)) == 1
    assert "1 expired conversation removed" in run("purge", "--yes").stdout


def test_archives_go_out_and_come_back(run: Run, demo: str, tmp_path: Path) -> None:
    before = json.loads(run("show", demo, "--json").stdout)
    folder = str(tmp_path / "archives")
    assert "6 messages" in run("archive", demo, "--folder", folder).stdout
    run("show", demo, code=3)
    (listed,) = json.loads(run("archives", "--folder", folder, "--json").stdout)
    assert (listed["owner_name"], listed["archive"]["conversation_id"]) == ("erin", demo)
    assert demo[:8] in run("archives", "--folder", folder, "--owner", "erin").stdout
    run("restore", demo, "--folder", folder, "--owner", "sam", code=3)
    run("restore", demo, "--folder", folder)
    assert json.loads(run("show", demo, "--json").stdout) == before
    assert "No archives" in run("archives", "--folder", folder).stdout
    run("archive", demo, code=2)
    for arguments in ((), (demo, "--older-than", "3")):
        refused = run("archive", *arguments, "--folder", folder, code=2)
        assert "either a conversation ID or --older-than" in " ".join(refused.output.split())
    assert (
        "0 conversations archived" in run("archive", "--older-than", "1", "--folder", folder, "--yes").stdout
    )
    run("archive", "--older-than", "1", "--folder", folder, code=1)
    run("archive", "--older-than", "0", "--folder", folder, "--yes", code=2)


@pytest.mark.slow
def test_a_sealed_archive_needs_its_key_file(
    run: Run, demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("correct horse\n")
    monkeypatch.setenv("AFORESAID_ARCHIVE_FOLDER", str(tmp_path / "archives"))
    monkeypatch.setenv("AFORESAID_ARCHIVE_KEY_FILE", str(tmp_path / "key"))
    run("archive", demo)
    monkeypatch.delenv("AFORESAID_ARCHIVE_KEY_FILE")
    run("restore", demo, "--owner", "erin", code=4)
    assert "name the owner with --owner" in run("archives").stderr
    monkeypatch.setenv("AFORESAID_ARCHIVE_KEY_FILE", str(tmp_path / "missing"))
    run("restore", demo, "--owner", "erin", code=2)
    monkeypatch.setenv("AFORESAID_ARCHIVE_KEY_FILE", str(tmp_path / "key"))
    run("restore", demo, "--owner", "erin")


def test_a_message_is_redacted_after_asking(run: Run, demo: str) -> None:
    message_id = json.loads(run("show", demo, "--json").stdout)["messages"][0]["message_id"]
    run("redact", demo, message_id, code=1, standard_input=b"n\n")
    assert "Is the back door locked?" in run("show", demo).stdout
    run("redact", demo, message_id, standard_input=b"y\n")
    assert "[redacted]" in run("show", demo).stdout
    assert "back door locked" not in run("show", demo).stdout
    run("redact", demo, "nothing", "--yes", code=3)


def test_a_content_is_forgotten_everywhere_after_a_preview(run: Run, demo: str) -> None:
    message_id = json.loads(run("show", demo, "--json").stdout)["messages"][0]["message_id"]
    asked = run("redact", demo, message_id, "--everywhere", code=1, standard_input=b"n\n")
    assert "Is the back door locked?" in asked.stdout
    assert "Is the back door locked?" in run("show", demo).stdout
    receipt = json.loads(run("redact", demo, message_id, "--everywhere", "--yes", "--json").stdout)
    assert receipt["messages"] >= 1
    assert "Is the back door locked?" not in run("show", demo).stdout
    run("notes", "add", "The safe code is 7788", "--subject", "safe code", "--owner", "erin")
    done = run("notes", "forget", "safe code", "--everywhere", "--yes", "--owner", "erin").stdout
    assert "Forgotten: 1 note and 0 messages." in done


def test_erasing_asks_first_and_gives_a_receipt(run: Run, demo: str, tmp_path: Path) -> None:
    run("erase", "--owner", "erin", code=1, standard_input=b"n\n")
    assert json.loads(run("stats", "--json").stdout)["messages"] == 6
    receipt = json.loads(run("erase", demo, "--owner", "erin", "--yes", "--json").stdout)
    assert receipt["erased"] == {"conversations": 1, "messages": 6, "sessions": 1, "index_entries": 6}
    assert "analytics documents" in run("erase", "--owner", "erin", "--yes").stdout
    assert "nothing found" in run("erase", "--owner", "erin", "--yes").stdout
    run("notes", "add", "likes tea", "--owner", "erin")
    assert re.search(r"\n  notes +1\n", run("erase", "--owner", "erin", "--yes").stdout)
    assert json.loads(run("stats", "--json").stdout)["messages"] == 0
    for file in tmp_path.glob("aforesaid-demo.db*"):
        assert b"potatoes" not in file.read_bytes()
    run("erase", code=2)


def test_erasing_reaches_archives_in_a_folder_that_is_named(run: Run, demo: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "archives")
    run("archive", demo, "--folder", folder)
    receipt = json.loads(run("erase", "--owner", "erin", "--folder", folder, "--yes", "--json").stdout)
    assert receipt["erased"]["archives"] == 1
    assert "No archives" in run("archives", "--folder", folder).stdout


def test_an_owner_goes_into_a_folder_and_back(run: Run, demo: str, tmp_path: Path) -> None:
    before = json.loads(run("show", demo, "--json").stdout)
    folder = str(tmp_path / "erin")
    run("export", "--folder", folder, code=2)
    assert "1 conversations, 6 messages" in run("export", "--owner", "erin", "--folder", folder).stderr
    assert "potatoes" in (tmp_path / "erin" / "index.html").read_text()
    run("erase", "--owner", "erin", "--yes")
    run("import", folder)
    assert json.loads(run("show", demo, "--json").stdout) == before
    run("import", folder, "--owner", "sam")
    assert json.loads(run("stats", "--json").stdout)["owners"] == 2
    run("import", str(tmp_path), code=4)
