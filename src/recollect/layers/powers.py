"""What a layer can do besides being a store depends on what it wraps. Below: contracts.

A power is a protocol of its own, asked for by `isinstance`; so a layer around a store that can be
watched has to have `watch`, and one around a store that cannot must not. `empowered` makes the class
that fits, once for each combination.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


def empowered(layer: type[T], inner: object, powers: Mapping[type, type]) -> type[T]:
    """The layer's class with a mixin for every power (protocol → mixin) that the inner object has."""
    mixins = tuple(mixin for power, mixin in powers.items() if isinstance(inner, power))
    return cast(type[T], _combined(cast(Any, layer), mixins))


@cache
def _combined(layer: Any, mixins: Any) -> Any:
    return type(layer.__name__, (layer, *mixins), {}) if mixins else layer
