"""The tables of requirements and printed blocks agree with the tests, in both directions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.seeds.printed import FOLDER, digest, rows_of

ROOT = FOLDER.parents[2]
REQUIREMENTS = {row["id"]: row for row in rows_of("requirements.tsv")}
BLOCKS = rows_of("blocks.tsv")
SURFACES = ("", "console", "Home Assistant", "LangGraph", "branches", "participants", "analytics")
SUPABASE = ROOT / "tests" / "adapters" / "supabase" / "test_supabase.py"
"""Runs blocks that need a client and a server of Supabase."""
ELSEWHERE = ("tests/adapters/", "tests/console/", "tests/homeassistant/", "tests/operations/")
"""Tests with targets of their own, such as `make test-adapters`."""
DIAGRAMS = ("004-01",)
"""Blocks that contain no code and no values."""


def test_functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


test_functions.__test__ = False  # type: ignore[attr-defined]


def marked() -> dict[str, set[str]]:
    """Return the tests that carry each requirement."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        if "mark.requirement(" not in file.read_text("utf-8"):
            continue
        for test in test_functions(file):
            for mark in test.decorator_list:
                if "mark.requirement" in ast.unparse(mark) and isinstance(mark, ast.Call):
                    for argument in mark.args:
                        name = f"{file.relative_to(ROOT)}::{test.name}"
                        found.setdefault(ast.literal_eval(argument), set()).add(name)
    return found


def expected_failures() -> set[str]:
    """Return the requirements that are reasons of an expected failure."""
    text = "".join(file.read_text("utf-8") for file in FOLDER.glob("test_document_*.py"))
    reasons = re.findall(r'reason="([^"]+)"', text) + re.findall(r'": "(\d{3}-\d{3})"', text)
    return {one for reason in reasons for one in reason.split()}


def test_every_requirement_names_its_tests_or_what_is_missing() -> None:
    tests = marked()
    for name, row in REQUIREMENTS.items():
        assert re.fullmatch(r"\d{3}-\d{3}", name)
        assert name.startswith(row["document"])
        assert row["state"] in ("works", "partly", "missing"), name
        assert row["surface"] in SURFACES, name
        has_tests = bool(row["tests"] or tests.get(name))
        assert has_tests != (row["state"] == "missing"), name


def test_every_named_test_exists(request: pytest.FixtureRequest) -> None:
    named = {test for row in REQUIREMENTS.values() for test in row["tests"].split()}
    files = {test.partition("::")[0] for test in named}
    existing = {f"{file}::{test.name}" for file in files for test in test_functions(ROOT / file)}
    assert named <= existing
    if request.config.args == request.config.getini("testpaths"):
        collected = {item.nodeid.partition("[")[0] for item in request.session.items}
        assert {re.sub(r"::\w+(?=::)", "", one) for one in collected} >= {
            test for test in named if not test.startswith(ELSEWHERE)
        }


def test_every_marked_requirement_is_in_the_table() -> None:
    assert marked().keys() <= REQUIREMENTS.keys()


def test_no_requirement_is_dropped() -> None:
    counts = [sum(row["document"] == document for row in REQUIREMENTS.values()) for document in DOCUMENTS]
    assert all(count >= least for count, least in zip(counts, DOCUMENTS.values(), strict=True))
    assert list(REQUIREMENTS) == sorted(REQUIREMENTS)


DOCUMENTS = {"000": 18, "001": 23, "002": 28, "003": 13, "004": 112}
"""Requirements that were found in each document at first."""


def test_a_requirement_with_an_expected_failure_does_not_work_yet() -> None:
    assert expected_failures() <= REQUIREMENTS.keys()
    assert {name for name in expected_failures() if REQUIREMENTS[name]["state"] == "works"} == set()


def test_every_block_is_as_printed_and_runs_in_a_test() -> None:
    assert {row["block"]: row["sha256"] for row in BLOCKS} == {
        file.stem: digest(file.stem) for file in (FOLDER / "blocks").iterdir()
    }
    text = "".join(file.read_text("utf-8") for file in (*FOLDER.glob("test_document_*.py"), SUPABASE))
    used = set(re.findall(r'"(\d{3}-\d{2})"|\'(\d{3}-\d{2})\'', text))
    assert {one or other for one, other in used} | set(DIAGRAMS) == {row["block"][:6] for row in BLOCKS}
