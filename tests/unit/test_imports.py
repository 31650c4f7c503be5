"""No module imports another that imports it, directly or not, also inside functions and for type checking."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import aforesaid

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


def test_there_is_no_import_cycle() -> None:
    graph = {name: module.imports & MODULES.keys() for name, module in found().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a cycle


def test_own_modules_are_not_imported_by_name() -> None:
    """`import_module` would hide an import from the layers."""
    assert [name for name, module in found().items() if module.called & {"import_module", "__import__"}] == []


def test_no_module_imports_the_root_package() -> None:
    """The root package imports everything, so a module that imports it would depend on every layer."""
    assert [name for name, module in found().items() if "aforesaid" in module.imports] == []
