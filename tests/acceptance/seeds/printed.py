"""The code blocks of the design documents, byte for byte, and how a test runs them."""

import ast
import inspect
from csv import QUOTE_NONE, DictReader
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def rows_of(table: str) -> list[dict[str, str]]:
    """Return the rows of a table in this folder."""
    lines = (FOLDER / table).read_text("utf-8").splitlines()
    return list(DictReader(lines, delimiter="\t", quoting=QUOTE_NONE))


def printed(number: str) -> str:
    """Return a block by document and number, such as `002-03`."""
    (file,) = (FOLDER / "blocks").glob(f"{number}-*.txt")
    return file.read_text("utf-8")


def digest(block: str) -> str:
    return sha256((FOLDER / "blocks" / f"{block}.txt").read_bytes()).hexdigest()[:16]


async def run(source: str, **names: Any) -> dict[str, Any]:
    """Run a block, which may await, with these names; return all names afterwards."""
    code = compile(source, "<printed>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result
    return names


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Return the names and defaults of a function's parameters."""
    return [(one.name, one.default) for one in inspect.signature(function).parameters.values()]
