"""Describe Python objects in Markdown: the lines `::: aforesaid.open` of the reference pages."""

import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def described(text: str) -> str:
    """Return the Markdown with a description of the object in place of each directive."""
    return _DIRECTIVE.sub(lambda found: "\n\n".join(_object(found[1])), text)


def _object(name: str) -> Iterator[str]:
    value = pkgutil.resolve_name(name)
    yield f"## `{name}`"
    yield from _signature(name.rpartition(".")[2], value)
    yield inspect.getdoc(value) or ""
    if inspect.isclass(value):
        for member, found in vars(value).items():
            if not member.startswith("_"):
                yield from _member(member, found)


def _member(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if inspect.isfunction(value):
        yield f"### `{name}`"
        yield from _signature(name, value)
        yield inspect.getdoc(value) or ""
    elif isinstance(value, property):
        yield f"### `{name}`"
        yield inspect.getdoc(value) or ""


def _signature(name: str, value: Any) -> Iterator[str]:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # an error class, for example, takes any arguments
        return
    given = [str(one) for one in signature.parameters.values() if one.name != "self"]
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {inspect.formatannotation(returned)}"
    start = "await " if inspect.iscoroutinefunction(value) else ""
    line = f"{start}{name}({', '.join(given)}){arrow}"
    if len(line) > 88:
        line = f"{start}{name}(\n{''.join(f'    {each},{chr(10)}' for each in given)}){arrow}"
    yield f"```python\n{line}\n```"
