"""No module imports another that imports it, directly or not, also inside functions."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

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


def for_types_only(tree: ast.Module) -> set[int]:
    """The nodes below `if TYPE_CHECKING:`, which never run."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    only = [block for block in blocks if "TYPE_CHECKING" in ast.unparse(block.test)]
    return {id(node) for block in only for child in block.body for node in ast.walk(child)}


def imported(tree: ast.Module) -> Iterator[str]:
    """The own modules that a module imports, at its top and inside functions."""
    skipped = for_types_only(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def test_there_is_no_import_cycle() -> None:
    graph = {name: {one for one in imported(tree) if one in MODULES} for name, tree in trees().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a cycle


def test_own_modules_are_not_imported_by_name() -> None:
    """`import_module` would hide an import from the layers."""
    found = [
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
    ]
    assert found == []


def test_no_module_imports_the_root_package() -> None:
    """The root package imports everything, so a module that imports it would depend on every layer."""
    found = [
        name for name, tree in trees().items() if "aforesaid" in set(imported(tree)) and name != "aforesaid"
    ]
    assert found == []
