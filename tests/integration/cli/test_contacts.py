"""Contacts and links, as an operator meets them."""

import json
from pathlib import Path
from typing import Any

import pytest

from aforesaid.model.ids import new_id
from tests.integration.cli.conftest import Run
from tests.servers.remote import served

ERIN = ("--owner", "erin")


@pytest.fixture
def demo(run: Run) -> Any:
    return json.loads(run("demo", "--json").stdout)["conversation"]["id"]


@pytest.fixture
def ann(run: Run, demo: str) -> Any:
    options = ("--nickname", "Nan", "--email", "ann@example.org", "--phone", "12", "--company", "Acme")
    return json.loads(run("clients", "add", "Ann Oakley", *ERIN, *options, "--json").stdout)


def test_contacts_are_added_shown_changed_listed_and_removed(run: Run, ann: Any) -> None:
    assert (ann["name"], ann["nicknames"], ann["company"]) == ("Ann Oakley", ["Nan"], "Acme")
    assert "ann@example.org" in run("clients", "show", ann["id"], *ERIN).stdout
    changed = run("clients", "edit", ann["id"], *ERIN, "--phone", "34", "--clear", "email", "--json").stdout
    assert (json.loads(changed)["phone"], json.loads(changed)["email"]) == ("34", None)
    assert "Ann Oakley" in run("clients", "list", *ERIN).stdout
    assert len(json.loads(run("clients", "list", "oakly", *ERIN, "--json").stdout)) == 1
    assert "No contacts" in run("clients", "list", "zzz", *ERIN).stdout
    assert "No contacts" in run("clients", "list", "--owner", "bob").stdout
    run("clients", "remove", ann["id"], *ERIN, code=1)
    assert "removed" in run("clients", "remove", ann["id"], *ERIN, "--yes").stdout
    assert (
        json.loads(run("clients", "remove", ann["id"], *ERIN, "--yes", "--json").stdout)["removed"] is False
    )
    run("clients", "show", ann["id"], *ERIN, code=3)


def test_bad_input_is_named(run: Run, ann: Any) -> None:
    run("clients", "add", " ", *ERIN, code=2)
    run("clients", "add", "Bo", *ERIN, "--email", "nowhere", code=2)
    run("clients", "edit", ann["id"], *ERIN, "--clear", "name", code=2)
    run("clients", "show", "7", *ERIN, code=2)
    assert json.loads(run("clients", "show", ann["id"], *ERIN, "--json").stdout) == ann


def test_a_file_is_imported_and_its_bad_lines_named(run: Run, demo: str, tmp_path: Path) -> None:
    file = tmp_path / "contacts.csv"
    file.write_text("name,email\nAnn,ann@example.org\nBo,nowhere\nCy,\n", "utf-8")
    shown = run("clients", "import", str(file), *ERIN, code=1).stdout
    assert "2 contacts added" in shown
    assert "line 3: email" in shown
    again = json.loads(run("clients", "import", str(file), *ERIN, "--json", code=1).stdout)
    assert (again["added"], again["known"], again["bad"][0]["text"]) == ([], 2, "Bo,nowhere")
    run("clients", "import", str(tmp_path / "missing.csv"), *ERIN, code=2)


def test_whom_a_text_names(run: Run, ann: Any) -> None:
    shown = run("clients", "identify", "Mrs Oakley called", *ERIN).stdout
    assert "Ann Oakley" in shown
    assert "No contact" in run("clients", "identify", "the lights", *ERIN).stdout
    assert json.loads(run("clients", "identify", "the lights", *ERIN, "--json").stdout) is None
    run("clients", "add", "Bo Oakley", *ERIN)
    match = json.loads(run("clients", "identify", "Oakley called", *ERIN, "--by-ear", "--json").stdout)
    assert match["client"] is None
    assert {one["contact"]["name"] for one in match["candidates"]} == {"Ann Oakley", "Bo Oakley"}
    assert "Candidates" in run("clients", "identify", "Oakley called", *ERIN).stdout


def test_a_conversation_is_linked_and_unlinked(run: Run, ann: Any, demo: str) -> None:
    assert "is about Ann Oakley" in run("clients", "link", demo, ann["id"], *ERIN).stdout
    assert json.loads(run("show", demo, "--json").stdout)["client_id"] == ann["id"]
    assert "has no client" in run("clients", "unlink", demo, *ERIN).stdout
    by_text = run("clients", "link", demo, "Ann Oakley called", *ERIN, "--json").stdout
    assert json.loads(by_text)["client_name"] == "Ann Oakley"
    run("clients", "link", demo, "the lights", *ERIN, code=3)
    run("clients", "link", demo, new_id(), *ERIN, code=3)
    run("clients", "link", new_id(), ann["id"], *ERIN, code=3)


def test_contacts_may_be_behind_a_server(run: Run) -> None:
    with served("memory://") as server:
        there = ("--url", server.url)
        run("chat", *there, standard_input=b"hello\n")
        (record,) = json.loads(run("conversations", *there, "--json").stdout)
        run("clients", "add", "Ann Oakley", *there)
        assert "Ann Oakley" in run("clients", "identify", "Mrs Oakley called", *there).stdout
        assert "is about Ann Oakley" in run("clients", "link", record["id"], "Ann Oakley", *there).stdout
        assert "has no client" in run("clients", "unlink", record["id"], *there).stdout
        run("clients", "link", record["id"], "the lights", *there, code=3)
