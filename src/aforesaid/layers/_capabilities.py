"""Forward optional capabilities: a layer has every capability of the store or backend that it wraps.

A capability is a protocol that callers check with `isinstance` (`Watchable`, `Migratable`). Whether a layer
has it depends on its `inner`, so this module derives one class per layer and set of capabilities.
"""

from collections.abc import Callable, Iterable
from copy import copy
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def with_inner(layer: T, inner: object) -> T:
    """Return a copy of the layer around another `inner`. Both copies share caches and counters."""
    view = copy(layer)
    object.__setattr__(view, "inner", inner)
    return view


def with_capabilities_of(inner: object, layer: T, capabilities: Iterable[type]) -> T:
    """Add those of the capabilities to the layer that `inner` has and the layer lacks; return the layer."""
    missing = tuple(one for one in capabilities if isinstance(inner, one) and not isinstance(layer, one))
    if missing:
        cls: Any = type(layer)
        object.__setattr__(layer, "__class__", _class_with(cls, missing))
    return layer


@cache
def _class_with(cls: Any, capabilities: tuple[type, ...]) -> Any:
    names = [name for one in capabilities for name in _methods(one) if not hasattr(cls, name)]
    return type(cls.__name__, (cls,), {name: _forward(name) for name in names})


def _methods(capability: type) -> list[str]:
    return [name for name, value in vars(capability).items() if callable(value) and not name.startswith("_")]


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    method.__name__ = name
    return method
