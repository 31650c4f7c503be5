"""The commands, run in a folder of their own."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from aforesaid.cli.app import app

Run = Callable[..., Result]


@pytest.fixture(scope="session", autouse=True)
def built_commands() -> Iterator[None]:
    """Build the commands once, as a process does: these tests run hundreds of commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFORESAID_URL", "sqlite:///aforesaid-demo.db")

    def run(*arguments: str, code: int = 0, standard_input: bytes | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=standard_input)
        assert result.exit_code == code, result.output
        return result

    return run
