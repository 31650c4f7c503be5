"""Messages that an operator may read contain no Python, and name the flag that was typed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.cli.wording import for_operator
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    StoreUnavailable,
)

ROOT = Path(aforesaid.__file__).parent
# A call with an argument, a keyword without a value, or a quoted tuple.
PYTHON = re.compile(r"\w\(\w+=|\w\('|=…|\w\(…|\('[^']*',|\bself\.")
# Errors about an object that only a program can have passed.
FOR_PROGRAMMERS = ("adapters", "testing", "stores/redis/connections.py")


def messages() -> Iterator[tuple[str, str]]:
    """Every text that a `raise` gives to an error, with its place."""
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(FOR_PROGRAMMERS):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for argument in node.exc.args:
                    yield f"{place}:{node.lineno}", literal_text(argument)


def literal_text(argument: ast.expr) -> str:
    """The text of a string, or of an f-string without the values in it."""
    if isinstance(argument, ast.JoinedStr):
        return "".join(
            literal_text(part) if isinstance(part, ast.Constant) else "x" for part in argument.values
        )
    return str(argument.value) if isinstance(argument, ast.Constant) else ""


@pytest.mark.slow
def test_no_message_contains_python() -> None:
    found = list(messages())
    assert len(found) > 300
    assert [each for each in found if PYTHON.search(each[1])] == []


@pytest.mark.parametrize(
    ("error", "typed", "expected"),
    [
        (
            InvalidInput("limit must be 1 or more; got -3"),
            ["--limit", "-3"],
            "--limit must be 1 or more; got -3",
        ),
        (InvalidInput("limit must be 1 or more; got -3"), ["list"], "limit must be 1 or more; got -3"),
        (
            InvalidSetting("AFORESAID_PROVIDER must be one of recall; got 'x'"),
            ["chat", "--provider=x"],
            "--provider must be one of recall; got 'x'",
        ),
        (
            InvalidInput("names must differ; got ('Bob', 'Bob')", field="names", value=("Bob", "Bob")),
            [],
            "names must differ; got Bob, Bob",
        ),
        (
            StoreUnavailable("Connect call failed ('127.0.0.1', 6379)."),
            [],
            "Connect call failed 127.0.0.1:6379.",
        ),
        (
            ConversationNotFound("kitchen"),
            ["show", "kitchen"],
            "there is no conversation 'kitchen'; `aforesaid conversations` lists them with their owners: "
            "name one by --owner",
        ),
        (
            ConversationNotFound("kitchen"),
            ["show", "kitchen", "--owner=erin"],
            "there is no conversation 'kitchen'; `aforesaid conversations` lists them",
        ),
    ],
)
def test_the_command_line_words_an_error_for_operators(
    error: AforesaidError, typed: list[str], expected: str
) -> None:
    assert for_operator(error, typed) == expected
