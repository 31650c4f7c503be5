"""Long commands show how far they are: a bar with a total on a terminal, plain lines elsewhere."""

import re
import time

import pytest
from rich.console import Console

from aforesaid.cli import runtime
from aforesaid.encryption import generate_master_key
from tests.integration.cli.conftest import Run

SEALED = "sqlite:///sealed.db"
COMMANDS = {
    "copy": (("copy", "sqlite:///aforesaid-demo.db", "sqlite:///copy.db", "--encrypt"), "copying", "1/1"),
    "export": (("export", "--output", "export.jsonl"), "exporting", "1/1"),
    "import": (("import", "export.jsonl", "--url", "sqlite:///imported.db"), "importing", "1/1"),
    "export of a folder": (("export", "--owner", "erin", "--folder", "erin"), "exporting", "1/1"),
    "import of a folder": (
        ("import", "erin", "--owner", "sam", "--url", "sqlite:///sam.db"),
        "importing",
        "1/1",
    ),
    "backup": (("backup", "create", "backup.db"), "backing up", "1/1"),
    "rotate": (("keys", "rotate", "--deep", "--url", SEALED), "rotating keys", "1/1"),
    "loadgen": (
        ("loadgen", "--owners", "2", "--conversations", "1", "--messages", "4", "--steps", "2"),
        "generating load",
        "8/8",
    ),
    "reindex": (("reindex",), "indexing meanings", "6/6"),
}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands draw as on a terminal of 100 columns."""
    monkeypatch.setattr(
        runtime, "errors_console", lambda: Console(stderr=True, force_terminal=True, width=100)
    )


@pytest.mark.usefixtures("terminal")
def test_bars_with_totals_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("demo")
    for name, (arguments, label, counted) in COMMANDS.items():
        if name in ("copy", "rotate"):
            monkeypatch.setenv("AFORESAID_MASTER_KEY", generate_master_key())
        else:
            monkeypatch.delenv("AFORESAID_MASTER_KEY", raising=False)
        if name == "rotate":
            run("copy", "sqlite:///aforesaid-demo.db", SEALED, "--encrypt")
        drawn = run(*arguments).stderr
        assert re.search(rf"{label}.*━", drawn), (name, drawn)
        assert counted in drawn.replace(" ", ""), (name, drawn)


def test_plain_lines_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FIRST_LINE", 0.01)
    monkeypatch.setattr(runtime, "NEXT_LINE", 0.01)
    with runtime.progress_of("copying", unit="conversations", total=2000) as done:
        done(1500)
        printed = ""
        while "1,500" not in printed:
            time.sleep(0.01)
            printed += capsys.readouterr().err
    lines = printed.splitlines()
    assert lines[-1] == "copying: 1,500 of 2,000 conversations"
    assert not re.search(r"[\x1b━]", printed)
