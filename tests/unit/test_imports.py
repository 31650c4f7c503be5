"""No module imports another that imports it, directly or not, also inside functions and for type checking."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import aforesaid

# One process parses the sources, for all tests here.
pytestmark = pytest.mark.xdist_group("imports")

ROOT = Path(aforesaid.__file__).parent


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(("aforesaid", *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


class Found(NamedTuple):
    """What one module imports of ours, wherever the import stands, and the functions that it calls."""

    imports: frozenset[str]
    called: frozenset[str]


@cache
def found() -> dict[str, Found]:
    """Walk each module once: parsing all of them takes longer than the tests."""
    return {name: walked(ast.parse(path.read_bytes())) for name, path in MODULES.items()}


def walked(tree: ast.Module) -> Found:
    nodes = list(ast.walk(tree))
    imports = {name for node in nodes for name in imported(node)}
    return Found(
        frozenset(imports), frozenset(called(node.func) for node in nodes if isinstance(node, ast.Call))
    )


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in MODULES else node.module


def called(function: ast.expr) -> str:
    """The last part of a called function's name, if it has one."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


@pytest.mark.slow
def test_there_is_no_import_cycle() -> None:
    graph = {name: module.imports & MODULES.keys() for name, module in found().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a cycle


@pytest.mark.slow
def test_own_modules_are_not_imported_by_name() -> None:
    """`import_module` would hide an import from the layers."""
    assert [name for name, module in found().items() if module.called & {"import_module", "__import__"}] == []


@pytest.mark.slow
def test_no_module_imports_the_root_package() -> None:
    """The root package imports everything, so a module that imports it would depend on every layer."""
    assert [name for name, module in found().items() if "aforesaid" in module.imports] == []


# What the root package may load besides `asyncio` and `msgspec`. Each addition slows `import aforesaid` down.
_LIGHT = {"bisect", "copy", "dataclasses", "fnmatch", "hashlib", "hmac", "importlib", "ipaddress", "json"}
_LIGHT |= {"ntpath", "pathlib", "queue", "random", "secrets", "unicodedata", "urllib", "aforesaid"}
_REPORT = """
import asyncio, inspect, msgspec, sys
before = set(sys.modules)
signatures = []
signature = inspect.signature
inspect.signature = lambda *given, **named: signatures.append(given) or signature(*given, **named)
import aforesaid
from aforesaid._internal import patterns
compiled = [p for p in patterns.LAZY if len(vars(p)) > 2]
print(msgspec.json.encode([sorted(set(sys.modules) - before), len(compiled), len(signatures)]).decode())
"""


def test_importing_the_package_loads_and_prepares_only_what_every_program_needs() -> None:
    """Time depends on the machine, so the test counts modules, compiled patterns and signatures read."""
    ran = subprocess.run([sys.executable, "-c", _REPORT], capture_output=True, text=True, check=True)
    names, compiled, signatures = json.loads(ran.stdout)
    roots = {name.partition(".")[0] for name in names}
    assert {name for name in roots if not name.startswith("_")} <= _LIGHT
    assert len([name for name in names if name.startswith("aforesaid.")]) <= 107
    assert not {"aforesaid.transfer.exports", "aforesaid.stores.sqlite", "aforesaid.memory.chats"} & set(
        names
    )
    assert compiled == 0
    assert signatures <= 80
