"""A layer has the powers of what it wraps: those that it does not bring itself are handed on.

A power is a protocol that is asked for with `isinstance` (`Watchable`, `Migratable`). Whether a layer has
one depends on what is inside it, so its class is made to measure, once for each set of powers.
"""

from collections.abc import Callable, Iterable
from copy import copy
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def around(layer: T, inner: object) -> T:
    """A copy of the layer around another view of what it wraps. What the layer remembers is shared."""
    view = copy(layer)
    object.__setattr__(view, "_inner", inner)
    return view


def with_capabilities_of(inner: object, layer: T, powers: Iterable[type]) -> T:
    """The layer, able to do what `inner` can of these powers. It keeps `inner` as `_inner`."""
    missing = tuple(power for power in powers if isinstance(inner, power) and not isinstance(layer, power))
    if missing:
        kind: Any = type(layer)
        object.__setattr__(layer, "__class__", _with_capabilities(kind, missing))
    return layer


@cache
def _with_capabilities(kind: Any, powers: tuple[type, ...]) -> Any:
    names = [name for power in powers for name in _methods(power) if not hasattr(kind, name)]
    return type(kind.__name__, (kind,), {name: _handed_on(name) for name in names})


def _methods(power: type) -> list[str]:
    return [name for name, value in vars(power).items() if callable(value) and not name.startswith("_")]


def _handed_on(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(self._inner, name)(*arguments, **named)

    method.__name__ = name
    return method
