"""SQL kept in `.sql` files: named queries and numbered migrations, read from beside a store.

A query starts with `-- name: the_name`; the comment lines under it say what it is for.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")


@cache
def queries(package: str) -> dict[str, str]:
    """The named queries in a package's `queries.sql`."""
    _, *rest = _NAME.split(sql_file(package, "queries.sql"))
    return {name: _without_comments(text) for name, text in zip(rest[::2], rest[1::2], strict=True)}


@cache
def migrations(package: str) -> tuple[tuple[int, str], ...]:
    """The package's migrations in order, each with its number; they count 1, 2, 3 …"""
    folder = _folder(package) / "migrations"
    numbered = sorted(
        (int(match[1]), entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1)), package
    return tuple(numbered)


def sql_file(package: str, name: str) -> str:
    """A file of SQL that lies in the package."""
    return (_folder(package) / name).read_text("utf-8")


def _folder(package: str) -> Path:
    """Where it lies. `importlib.resources` says so too, but takes longer to load than a store to open."""
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent


def _without_comments(text: str) -> str:
    lines = (line for line in text.strip().splitlines() if not line.startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")
