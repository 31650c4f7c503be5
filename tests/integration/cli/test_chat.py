"""An assistant in the terminal, and the notes of an owner, as a user at the keyboard sees them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aforesaid
from aforesaid.cli import chat as chat_module
from aforesaid.errors import StoreUnavailable
from aforesaid.stores.sqlite.store import SQLiteStore
from aforesaid.testing.providers.protocol import Says
from tests.integration.cli.conftest import Run
from tests.integration.cli.providing import served
from tests.servers.remote import served as server_at

TILES = "The bathroom tiles are from Porto."


def talk(run: Run, *lines: str, options: tuple[str, ...] = (), code: int = 0) -> str:
    return run(
        "chat", *options, standard_input="".join(f"{line}\n" for line in lines).encode(), code=code
    ).output


def test_it_remembers_from_one_run_to_the_next(run: Run) -> None:
    talk(run, TILES, "remember that the bedroom lights are dim at 9 pm")
    said = talk(run, "what did I say about the bathroom tiles?", "what are the bedroom lights like?")
    assert f"you said: “{TILES}” [1]" in said
    assert "You asked me to remember: “The bedroom lights are dim at 9 pm”" in said
    assert "not from a model" in said


def test_the_conversation_goes_on_until_another_is_asked_for(run: Run) -> None:
    talk(run, TILES)
    assert TILES in talk(run, "/context")
    assert "no messages yet" in talk(run, "/new", "/context")
    talk(run, "hello")
    assert TILES not in talk(run, "/context")
    assert "no messages yet" in talk(run, "/context", options=("--new",))
    assert "no messages yet" in talk(run, "/context", options=("--session", "another"))
    assert len(json.loads(run("conversations", "--json").stdout)) == 2


def test_commands_are_taken_besides_words(run: Run) -> None:
    said = talk(
        run,
        TILES,
        "/search tiles",
        "/search",
        "/remember my name is Erin",
        "/notes",
        "/notes name",
        "/forget name",
        "/notes",
        "/forget name",
        "/nonsense",
        "/remember",
        "/help",
        "/quit",
        "never said",
    )
    assert f"User: {TILES}" in said
    assert "Remembered: my name is Erin" in said
    assert "Forgotten: my name is Erin" in said
    assert "No notes." in said
    assert "No such note." in said
    assert "Unknown command; /help lists the commands." in said
    assert "text must have words" in said, "what goes wrong is told, and the talk goes on"
    assert "start a new conversation" in said
    assert "never said" not in str(run("search", "never", "--words").output)


def test_what_others_said_is_not_found(run: Run) -> None:
    talk(run, TILES, options=("--owner", "erin"))
    assert "nothing" in talk(run, "what did I say about the bathroom tiles?", options=("--owner", "bob"))


def test_a_provider_answers_in_pieces_with_notes_and_tools(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("notes", "add", "I like tea")
    with served("openai_chat", Says("Tea, as always."), Says("Goodbye.")) as provider:
        monkeypatch.setenv("AFORESAID_PROVIDER_URL", provider.url)
        said = talk(run, "what do I like?", "bye", options=("--provider", "openai", "--model", "gpt-fake"))
    assert "Tea, as always." in said
    sent = provider.requests[0]
    assert sent["stream"]
    assert "I like tea" in sent["messages"][1]["content"]
    assert {tool["function"]["name"] for tool in sent["tools"]} >= {"search_history", "remember", "forget"}


def test_a_turn_that_fails_is_apologised_for_and_not_in_the_log(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFORESAID_PROVIDER_URL", "http://127.0.0.1:9")
    options = ("--provider", "openai", "--model", "gpt-fake")
    assert "I'm sorry" in talk(run, "hello", options=options)
    [record] = json.loads(run("conversations", "--json").stdout)  # holds the question as an open turn
    assert record["message_count"] == 0


def test_a_provider_without_a_model_is_refused(run: Run) -> None:
    assert "AFORESAID_MODEL" in talk(run, options=("--provider", "anthropic"), code=2)
    assert "must be one of" in talk(run, options=("--provider", "oracle"), code=2)


def test_a_model_without_a_provider_is_refused(run: Run) -> None:
    assert "--model needs --provider" in talk(run, options=("--model", "gpt-5"), code=2)


def test_what_is_said_cannot_command_the_terminal(run: Run) -> None:
    said = talk(run, "remember that \x1b[2J is a thing", "what do you know about me?")
    assert "\x1b[2J" not in said


def test_the_memory_may_be_behind_a_server(run: Run) -> None:
    with server_at("memory://") as server:
        options = ("--url", server.url)
        assert "I keep that" in talk(run, TILES, options=options)
        assert TILES in talk(run, "/context", options=options)
        assert "no messages yet" in talk(run, "/new", "/context", options=options)
        assert TILES in talk(run, "/search tiles", options=options)
        assert "I will remember" in talk(run, "remember that my name is Erin", options=options)
        assert "My name is Erin" in talk(run, "what is my name?", "/notes", options=options)
        assert f"you said: “{TILES}”" in talk(run, "what did I say about tiles?", options=options)
        assert "My name is Erin" in run("notes", "list", *options).stdout
        run("notes", "forget", "name", "--yes", *options)
        assert "No notes" in run("notes", "list", *options).stdout


def test_a_client_who_is_named_in_a_pipe_is_linked(run: Run) -> None:
    run("clients", "add", "Mary Johnson")
    talk(run, "The Johnson house project gets a blue door.")
    (record,) = json.loads(run("conversations", "--json").stdout)
    assert record["client_name"] == "Mary Johnson"


class _Terminal:
    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    def isatty(self) -> bool:
        return True

    def read(self, prompt: str) -> str:
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


def test_at_a_terminal_there_is_a_prompt_and_a_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal("hello")
    monkeypatch.setattr("builtins.input", terminal.read)
    monkeypatch.setattr(chat_module._ChatSession, "_stdin_is_terminal", staticmethod(terminal.isatty))
    said = talk(run)
    assert "no model" in said
    assert "recall> Hello!" in said


def test_it_works_in_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aforesaid", "chat", "--url", f"sqlite:///{tmp_path}/memory.db"]
    here = {**os.environ, "PYTHONPATH": str(Path(aforesaid.__file__).parents[1])}
    done = subprocess.run(
        command, input=f"{TILES}\n", env=here, capture_output=True, text=True, timeout=240, check=True
    )
    assert "I keep that" in done.stdout
    assert done.stderr == ""


# Notes


def test_notes_are_added_listed_found_and_forgotten(run: Run) -> None:
    run("notes", "add", "The bedroom lights are dim at 9 pm", "--tag", "home")
    run("notes", "add", "The bedroom lights are dim at 10 pm", "--tag", "home", "--expires", "2099-01-01")
    run("notes", "add", "no milk", "--subject", "coffee")
    listed = json.loads(run("notes", "list", "--json").stdout)
    assert [note["text"] for note in listed] == ["The bedroom lights are dim at 10 pm", "no milk"]
    assert len(json.loads(run("notes", "list", "--json", "--history").stdout)) == 3
    assert len(json.loads(run("notes", "list", "--json", "--tag", "home").stdout)) == 1
    assert "coffee" in run("notes", "list").stdout
    (found,) = json.loads(run("notes", "search", "coffee", "--words", "--json").stdout)
    assert found["text"] == "no milk"
    assert "No results" in run("notes", "search", "bicycle", "--words").stdout
    run("notes", "forget", "bedroom lights", code=1, standard_input=b"n\n")
    assert "Removed: 1 note" in run("notes", "forget", "bedroom lights", "--yes").stdout
    assert "No such note" in run("notes", "forget", "bedroom lights", "--yes").stdout
    (left,) = json.loads(run("notes", "forget", found["id"], "--yes", "--json").stdout.partition("\n")[2])
    assert left["id"] == found["id"]
    assert "No notes" in run("notes", "list").stdout


def test_notes_are_an_owners(run: Run) -> None:
    run("notes", "add", "I like tea", "--owner", "erin")
    assert json.loads(run("notes", "list", "--json").stdout) == []
    assert len(json.loads(run("notes", "list", "--json", "--owner", "erin").stdout)) == 1


def test_a_bad_note_is_refused(run: Run) -> None:
    assert "text must have words" in run("notes", "add", "?", code=2).output
    assert "--expires" in run("notes", "add", "x", "--expires", "soon", code=2).output


def test_the_context_command_says_which_notes_are_in_it(run: Run) -> None:
    talk(run, TILES)
    run("notes", "add", "I like tea")
    (record,) = json.loads(run("conversations", "--json").stdout)
    shown = run("context", record["id"], "--explain").stdout
    assert "I like tea" in shown
    assert "1 in the context" in shown
    assert "2 of 2 messages" in shown


def test_an_answer_that_cannot_be_stored_is_shown_with_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(run, "My key is under the pot.")

    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(SQLiteStore, "append", fail)
    said = talk(run, "Where is my key?")
    assert "under the pot" in said
    assert "not stored: the disk is full" in said
