"""What the files for deployment and the pages about it name is there: extras, settings, files."""

import re
import tomllib
from pathlib import Path

import pytest

from aforesaid.settings import ENVIRONMENT

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FILES = sorted(
    file for file in (ROOT / "deploy").rglob("*") if file.is_file() and file.suffix not in (".json", ".yml")
)
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", [*FILES, *PAGES], ids=_name)
def test_extras_that_are_named_can_be_installed(file: Path) -> None:
    text = file.read_text("utf-8")
    named = re.findall(r"(?:aforesaid|'\.)\[([a-z,]+)\]", text)
    assert {extra for group in named for extra in group.split(",")} <= EXTRAS


@pytest.mark.parametrize("file", [*FILES, *PAGES], ids=_name)
def test_settings_that_are_named_are_read(file: Path) -> None:
    named = set(re.findall(r"\bAFORESAID_[A-Z_]+[A-Z]\b", file.read_text("utf-8")))
    assert named <= set(ENVIRONMENT.values())


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_for_deployment_that_are_named_are_there(page: Path) -> None:
    named = re.findall(r"\bdeploy/[a-z]+/[A-Za-z.]+\b", page.read_text("utf-8"))
    assert all((ROOT / file).is_file() for file in named)
