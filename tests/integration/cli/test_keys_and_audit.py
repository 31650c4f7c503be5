"""Keys and the audit trail, as an operator meets them."""

import getpass
import json
from pathlib import Path

import pytest

from aforesaid.encryption import master_keys_from
from tests.integration.cli.conftest import Run

DEMO = "sqlite:///aforesaid-demo.db"
SEALED = "sqlite:///sealed.db"


@pytest.fixture
def key(run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    key = run("keys", "generate").stdout.strip()
    run("demo")
    monkeypatch.setenv("AFORESAID_MASTER_KEY", key)
    return key


def test_a_generated_key_is_a_key_and_each_is_another(run: Run) -> None:
    first, second = (run("keys", "generate").stdout.strip() for _ in range(2))
    assert master_keys_from(first).current != master_keys_from(second).current


def test_a_store_is_encrypted_by_copying_it_and_read_with_the_key_alone(
    run: Run, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("copy", DEMO, SEALED, "--encrypt")
    (listed,) = json.loads(run("conversations", "--json", "--url", SEALED).stdout)
    shown = json.loads(run("show", listed["id"], "--json", "--url", SEALED).stdout)
    texts = [message["content"] for message in shown["messages"] if isinstance(message["content"], str)]
    assert texts
    raw = (tmp_path / "sealed.db").read_bytes()
    assert not [text for text in texts if text.encode() in raw]
    assert b"aforesaid/sealed" in raw
    # The plain store is refused while the key is set; the sealed one says nothing without it.
    plain = run("show", listed["id"], "--url", DEMO).stdout
    assert "not encrypted" in plain
    assert texts[0] not in plain
    run("copy", SEALED, "sqlite:///opened.db", "--decrypt")
    monkeypatch.delenv("AFORESAID_MASTER_KEY")
    assert "there is no master key here" in run("show", listed["id"], "--url", SEALED).stdout
    assert texts[0] in run("show", listed["id"], "--json", "--url", "sqlite:///opened.db").stdout


def test_a_master_key_is_replaced(run: Run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("copy", DEMO, SEALED, "--encrypt")
    new = run("keys", "generate").stdout.strip()
    (listed,) = json.loads(run("conversations", "--json", "--url", SEALED).stdout)
    monkeypatch.setenv("AFORESAID_MASTER_KEY", new)
    for command in (("show", listed["id"]), ("conversations",)):
        failed = run(*command, "--url", SEALED, code=4)
        assert master_keys_from(key).current in failed.stderr
    monkeypatch.setenv("AFORESAID_MASTER_KEY", f"{new} {key}")
    assert "1 data keys rewrapped with the new master key" in run("keys", "rotate", "--url", SEALED).stdout
    monkeypatch.setenv("AFORESAID_MASTER_KEY", new)
    run("show", listed["id"], "--url", SEALED)
    done = json.loads(run("keys", "rotate", "--deep", "--json", "--url", SEALED).stdout)
    assert (done["rewrapped"], done["waiting"]) == (0, 1)
    assert done["messages"] > 0
    describe = run("keys", "rotate", "--deep", "--url", SEALED).stdout
    assert "1 old data key kept for other processes" in describe
    assert "when all spools are empty" in " ".join(describe.split())
    run("show", listed["id"], "--url", SEALED)


def test_archives_open_with_the_new_master_key_alone(
    run: Run, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("copy", DEMO, SEALED, "--encrypt")
    (listed,) = json.loads(run("conversations", "--json", "--url", SEALED).stdout)
    run("archive", listed["id"], "--url", SEALED, "--folder", "archives")
    new = run("keys", "generate").stdout.strip()
    monkeypatch.setenv("AFORESAID_MASTER_KEY", f"{new} {key}")
    monkeypatch.setenv("AFORESAID_ARCHIVE_FOLDER", "archives")
    assert "1 archive: rewrapped" in run("keys", "rotate", "--url", SEALED).stdout
    monkeypatch.setenv("AFORESAID_MASTER_KEY", new)
    assert "archive" not in run("keys", "rotate", "--url", SEALED).stdout
    run("restore", listed["id"], "--url", SEALED)


def test_archives_that_need_another_master_key_are_counted(
    run: Run, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("demo", "--url", SEALED)
    (listed,) = json.loads(run("conversations", "--json", "--url", SEALED).stdout)
    run("archive", listed["id"], "--url", SEALED, "--folder", "archives")
    new, newest = (run("keys", "generate").stdout.strip() for _ in range(2))
    monkeypatch.setenv("AFORESAID_MASTER_KEY", f"{new} {key}")
    assert "archive" not in run("keys", "rotate", "--url", SEALED).stdout  # it does not know of them
    monkeypatch.setenv("AFORESAID_MASTER_KEY", f"{newest} {new}")
    describe = run("keys", "rotate", "--url", SEALED, "--folder", "archives").stdout
    assert "1 archive could not be decrypted" in describe
    done = json.loads(run("keys", "rotate", "--url", SEALED, "--folder", "archives", "--json").stdout)
    assert (done["archives"], done["archives_left"]) == (0, 1)


def test_without_a_master_key_nothing_is_rotated_or_encrypted(run: Run) -> None:
    run("demo")
    assert "AFORESAID_MASTER_KEY" in run("keys", "rotate", code=2).stderr
    assert "AFORESAID_MASTER_KEY" in run("copy", DEMO, SEALED, "--encrypt", code=2).stderr


def test_a_store_that_is_not_there_is_not_made_by_rotating(run: Run, key: str, tmp_path: Path) -> None:
    run("keys", "rotate", "--url", "sqlite:///missing.db", code=4)
    assert not (tmp_path / "missing.db").exists()


def test_the_demo_is_encrypted_where_the_settings_say_so(run: Run, key: str, tmp_path: Path) -> None:
    run("demo", "--url", SEALED)
    assert b"potatoes" not in (tmp_path / "sealed.db").read_bytes()


def test_secrets_are_not_shown(run: Run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFORESAID_AUDIT_KEY", key)
    monkeypatch.setenv("AFORESAID_KEYRING_URL", "postgresql://erin:hidden@localhost/keys")
    for shown in (run("config").stdout, run("config", "--json").stdout):
        assert key not in shown
        assert "hidden" not in shown
        assert "***" in shown


def test_what_commands_do_is_noted_and_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("demo")
    monkeypatch.setenv("AFORESAID_AUDIT_FILE", "audit.jsonl")
    (listed,) = json.loads(run("conversations", "--json").stdout)
    run("show", listed["id"])
    run("show", "01952f3e-0000-7000-8000-000000000000", code=3)
    events = json.loads(run("audit", "show", "--json").stdout)
    assert {event["action"] for event in events} >= {"list", "look", "read"}
    (reading,) = [event for event in events if event["action"] == "read"]
    assert (reading["actor"], reading["source"]) == (getpass.getuser(), "command line")
    denied = json.loads(run("audit", "show", "--outcome", "denied", "--json").stdout)
    assert {event["outcome"] for event in denied} == {"denied"}
    reads = run("audit", "export", "--action", "read", "--owner", listed["owner"]).stdout.splitlines()
    assert [json.loads(line)["conversation"] for line in reads] == [listed["id"]]
    assert run("audit", "export", "--owner", "nobody").stdout == ""
    assert "denied" in run("audit", "show").stdout


def test_a_trail_is_verified(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("demo")
    monkeypatch.setenv("AFORESAID_AUDIT_FILE", "audit.jsonl")
    run("conversations")
    sound = run("audit", "verify").stdout
    known = sound.split("The last is ")[1].strip()
    run("conversations")
    run("audit", "verify", "--known", known)
    run("audit", "verify", "--known", "not a line", code=2)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"action":"list"', b'"action":"look"', 1))
    assert "was altered" in run("audit", "verify", code=1).stdout
    assert json.loads(run("audit", "verify", "--json", code=1).stdout)["problems"]
    monkeypatch.delenv("AFORESAID_AUDIT_FILE")
    assert "AFORESAID_AUDIT_FILE" in run("audit", "verify", code=2).stderr
