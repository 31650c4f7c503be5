"""Named queries and numbered migrations, read from the `.sql` files of a store's package.

A query starts with `-- name: the_name`; the comment lines below it describe it.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")


@cache
def queries(package: str) -> dict[str, str]:
    """Return the named queries in a package's `queries.sql`."""
    _, *rest = _NAME.split(sql_file(package, "queries.sql"))
    return {name: _without_comments(text) for name, text in zip(rest[::2], rest[1::2], strict=True)}


@cache
def migrations(package: str) -> tuple[tuple[int, str], ...]:
    """Return the package's migrations with their numbers, in order: 1, 2, 3 …"""
    folder = _folder(package) / "migrations"
    numbered = sorted(
        (int(match[1]), entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1)), package
    return tuple(numbered)


def sql_file(package: str, name: str) -> str:
    """Return the text of a SQL file in the package."""
    return (_folder(package) / name).read_text("utf-8")


def _folder(package: str) -> Path:
    """Return the package's folder. Importing `importlib.resources` takes longer than opening a store."""
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent


def _without_comments(text: str) -> str:
    lines = (line for line in text.strip().splitlines() if not line.startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")
