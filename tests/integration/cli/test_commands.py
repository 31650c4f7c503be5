"""The command line, as an operator meets it."""

import asyncio
import json
import subprocess
import sys
from datetime import datetime
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer

import aforesaid
from aforesaid.cli.runtime import DEFAULT_OWNER
from aforesaid.cli.serve import parse_options, run_lean, serve
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.settings import ENVIRONMENT
from tests.integration.cli.conftest import Run


@pytest.fixture
def demo(run: Run) -> Any:
    return json.loads(run("demo", "--json").stdout)


def test_the_demo_stores_restarts_and_shows_the_context(run: Run) -> None:
    shown = run("demo").stdout
    assert "6 new messages, 0 already stored" in shown
    assert "closed and reopened" in shown
    assert "How many potatoes did you say?" in shown
    assert "lock_state" in shown


def test_the_demo_may_be_repeated(run: Run) -> None:
    run("demo")
    assert "0 new messages, 6 already stored" in run("demo").stdout


def test_the_demo_as_json_is_a_record_and_a_context(demo: Any) -> None:
    assert demo["conversation"]["message_count"] == 6
    assert [message["role"] for message in demo["context"]][-1] == "user"
    assert len(demo["context"]) == 7


def test_conversations_are_listed(run: Run, demo: Any) -> None:
    assert "Doors and dinner" in run("conversations").stdout
    (listed,) = json.loads(run("conversations", "--json", "--owner", "erin", "--tag", "demo").stdout)
    assert listed["id"] == demo["conversation"]["id"]
    assert listed["owner"] == "erin"
    assert json.loads(run("conversations", "--json", "--status", "closed").stdout) == []
    assert "No conversations" in run("conversations", "--owner", "sam").stdout


def test_one_conversation_is_shown(run: Run, demo: Any) -> None:
    conversation_id = demo["conversation"]["id"]
    shown = run("show", conversation_id).stdout
    assert "Is the back door locked?" in shown
    assert "unlocked since 18:40" in shown
    page = json.loads(run("show", conversation_id, "--json", "--limit", "2", "--offset", "4").stdout)
    assert [message["role"] for message in page["messages"]] == ["user", "assistant"]
    assert "4 earlier; see them with --offset 2" in run("show", conversation_id, "--limit", "2").stdout
    assert (
        "2 more; continue with --offset 4"
        in run("show", conversation_id, "--limit", "2", "--offset", "2").stdout
    )


def test_a_session_and_the_start_of_an_id_find_a_conversation(run: Run, demo: Any) -> None:
    conversation_id = demo["conversation"]["id"]
    for wanted in ("kitchen", conversation_id[:8]):
        assert json.loads(run("show", wanted, "--json").stdout)["id"] == conversation_id
    run("show", "ffffffff", code=3)


def test_lists_fit_a_terminal_and_show_when_a_conversation_expires(run: Run, demo: Any) -> None:
    for command in (["conversations"], ["retention", "--owner", "erin"]):
        lines = run(*command).stdout.splitlines()
        assert all(len(line) <= 80 for line in lines)
        (row,) = (line for line in lines if demo["conversation"]["id"] in line)
        expires = datetime.fromisoformat(demo["conversation"]["expires_at"]).astimezone()
        assert f"{expires:%Y-%m-%d %H:%M}" in row


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout == f"aforesaid {aforesaid.__version__}\n"
    assert "Keep and remove" in run("-h").stdout


def test_a_context_is_explained(run: Run, demo: Any) -> None:
    conversation_id = demo["conversation"]["id"]
    shown = run("context", conversation_id, "--budget", "60", "--explain").stdout
    assert "2 of 6 messages, 4 left out" in shown
    assert "of 60" in shown
    assert "tokens" in shown
    explained = json.loads(run("context", conversation_id, "--budget", "60", "--explain", "--json").stdout)
    assert [one["sequence"] for one in explained["report"]["left_out"]] == [1, 2, 3, 4]
    request = json.loads(run("context", conversation_id, "--dialect", "openai_chat").stdout)
    assert [message["role"] for message in request["messages"]][:3] == ["user", "assistant", "tool"]


def test_statistics(run: Run, demo: Any) -> None:
    found = json.loads(run("stats", "--json").stdout)
    assert (found["owners"], found["conversations"], found["messages"]) == (1, 1, 6)
    assert (found["status"], found["messages_per_conversation"]) == ({"open": 1}, 6.0)
    assert "messages" in run("stats").stdout


def test_unanswered_words_are_shown(run: Run, demo: Any) -> None:
    async def ask() -> None:
        async with aforesaid.open("sqlite:///aforesaid-demo.db") as memory:
            question = Message(role="user", content="Is it cold?", message_id="q1")
            await memory.of("erin").open_turn("cellar", [question])

    asyncio.run(ask())
    shown = run("show", "cellar").stdout
    assert "unanswered since" in shown
    assert "Is it cold?" in shown
    ((message,),) = json.loads(run("show", "cellar", "--json").stdout)["unanswered"]
    assert message["content"] == "Is it cold?"


def test_purging(run: Run, demo: Any) -> None:
    assert json.loads(run("purge", "--json").stdout) == {"purged": 0}
    assert "0 expired conversations removed" in run("purge", "--owner", "erin").stdout


def test_settings_say_where_they_came_from(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFORESAID_URL", "postgresql://erin:s3cret@db/memory")
    file = tmp_path / "settings.yaml"
    file.write_text("context_window_size: 7\n")
    found = {s["name"]: s for s in json.loads(run("config", "--config", str(file), "--json").stdout)}
    assert found["url"]["value"] == "postgresql://erin:***@db/memory"
    assert found["url"]["source"] == "AFORESAID_URL"
    assert (found["context_window_size"]["value"], found["context_window_size"]["source"]) == (7, str(file))
    assert "s3cret" not in run("config").output


@pytest.mark.parametrize("name", [name for name in ENVIRONMENT if name.endswith(("url", "jwks"))])
def test_no_password_in_an_address_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(ENVIRONMENT[name], "https://erin:s3cret@example.org")
    assert "s3cret" not in run("config").output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "cellar"], 3, "there is no conversation 'cellar'; `aforesaid conversations` lists them"),
        (["show", new_id()], 3, "there is no conversation"),
        (["conversations", "--status", "lost"], 2, "open, pending, resolved, closed"),
        (["conversations", "--url", "sqlite:///nowhere.db"], 4, "nowhere.db does not exist"),
        (["conversations", "--url", "ftp://x"], 2, "there is no store for"),
        (["show"], 2, "Missing argument"),
        (["context", new_id(), "--budget", "0"], 3, "there is no conversation"),
    ],
)
def test_errors_are_a_line_and_an_exit_code(
    run: Run, demo: Any, arguments: list[str], code: int, words: str
) -> None:
    result = run(*arguments, code=code)
    assert words in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_reading_makes_no_file(run: Run, tmp_path: Path) -> None:
    run("stats", code=4)
    assert list(tmp_path.iterdir()) == []


def test_it_runs_as_a_module_and_as_a_script(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "aforesaid", "demo", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout)["url"] == "sqlite:///aforesaid-demo.db"
    assert shown.stderr == ""


def test_without_its_extra_the_command_says_what_to_type() -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom aforesaid.cli import main\nmain()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'aforesaid[cli]'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        ("--url sqlite:///a.db -p 80 --workers=2", {"url": "sqlite:///a.db", "port": 80, "workers": 2}),
        ("-c some.yaml --log json", {"config": Path("some.yaml"), "log": "json"}),
    ],
)
def test_the_options_of_a_server_are_read_as_it_declares_them(arguments: str, given: dict[str, Any]) -> None:
    found = parse_options(serve, arguments.split())
    assert found is not None
    assert {name: value for name, value in found.items() if value is not None} == given
    assert found.keys() == signature(serve).parameters.keys()


@pytest.mark.parametrize("arguments", ["--help", "--port x", "--por 80", "extra", "--url", "--nope"])
def test_what_is_no_plain_option_is_left_to_the_full_command_line(arguments: str) -> None:
    assert parse_options(serve, arguments.split()) is None
    shown = subprocess.run(
        [sys.executable, "-m", "aforesaid", "serve", *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == (0 if arguments == "--help" else 2)
    assert "Usage" in shown.stdout or "Error" in shown.stderr


def test_a_command_alone_ends_as_it_does_among_the_others() -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    def failing() -> None:
        raise typer.Exit(4)

    for command, code in ((stopped, 130), (failing, 4)):
        with pytest.raises(SystemExit) as ending:
            run_lean(command, [])
        assert ending.value.code == code


def test_a_server_is_started_without_what_only_other_commands_need() -> None:
    code = """
import sys
sys.argv = ["aforesaid", "serve", "--url", "nowhere://x"]
from aforesaid.cli import main
try:
    main()
except SystemExit as ending:
    print(ending.code, *sorted({"pydantic", "aforesaid.cli.app", "numpy"} & set(sys.modules)))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["2"]
    assert "there is no store" in shown.stderr


def test_what_was_said_is_found_and_explained(run: Run, demo: Any) -> None:
    shown = run("search", "back door", "--words", "--explain").stdout
    assert "Is the back door locked?" in shown
    assert "score" in shown
    found = json.loads(run("search", "leeks", "--words", "--json", "--role", "user", "-n", "1").stdout)
    assert [passage["owner"] for passage in found] == ["erin"]
    assert "leeks" in found[0]["text"]
    assert json.loads(run("search", "", "--words", "--json", "--to", "1999-12-31").stdout) == []
    assert "No results" in run("search", "xyzzy", "--words").stdout
    assert "role must be one of" in run("search", "door", "--words", "--role", "god", code=2).output
    assert "--from must be a day" in run("search", "door", "--words", "--from", "soon", code=2).output


def test_vectors_are_made_anew(run: Run, demo: Any) -> None:
    assert "6 messages in 1 conversation" in run("reindex").stdout
    again = json.loads(run("reindex", "--json").stdout)
    assert (again["messages"], again["removed"]) == (6, 1)
    missing = json.loads(run("reindex", "--missing", "--json").stdout)
    assert (missing["messages"], missing["removed"]) == (0, 0)
    found = json.loads(run("search", "Is the house secured?", "--json", "-n", "2").stdout)
    assert any("back door" in passage["text"] for passage in found), "no word of it is in the question"


@pytest.mark.parametrize("arguments", [["config"], ["config", "--json"]])
def test_a_full_disk_gives_a_readable_error(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        shown = subprocess.run(
            [sys.executable, "-m", "aforesaid", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (shown.returncode, shown.stderr) == (
        4,
        "aforesaid: cannot write the output: No space left on device\n",
    )


def test_branches_are_made_compared_merged_and_linked(run: Run) -> None:
    async def write() -> None:
        async with aforesaid.open("sqlite:///aforesaid-demo.db") as memory:
            manager = memory.of(DEFAULT_OWNER)
            await manager.add_message("dinner", "user", "What can I cook?", message_id="q1")
            await manager.add_message("dinner", "assistant", "Lemon chicken.", message_id="a1")
            await manager.add_message("order", "user", "A table for two.")

    asyncio.run(write())
    owner = ("--owner", DEFAULT_OWNER)
    made = json.loads(run("fork", "dinner", "--subject", "without meat", "--json", *owner).stdout)
    asyncio.run(_say(made["id"], "And without meat?"))
    assert "without meat" in run("branches", "dinner", *owner).stdout
    assert "And without meat?" in run("compare", "dinner", made["id"], *owner).stdout
    merged = run(
        *("merge", "dinner", made["id"], "--how", "summary", "--summary", "leek pie"),
        *("--field", "subject", "--json", *owner),
    )
    assert json.loads(merged.stdout)["added"] == 1
    shown = run("show", "dinner", *owner).stdout
    assert "leek pie" in shown
    assert "without meat" in run("links", "order", "--add", "dinner", *owner).stdout
    assert "No related" in run("links", "dinner", "--remove", "order", *owner).stdout
    run("merge", "dinner", made["id"], "--field", "revision", code=2)


async def _say(conversation_id: str, text: str) -> None:
    async with aforesaid.open("sqlite:///aforesaid-demo.db") as memory:
        await memory.of(DEFAULT_OWNER).add_message(conversation_id, "user", text)
