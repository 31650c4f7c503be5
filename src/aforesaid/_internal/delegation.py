"""Offer a part's method as a method of the object that owns the part."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def delegate(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls `method` on the attribute `part`, with its name, signature and docstring."""
    if inspect.iscoroutinefunction(method):
        # Callers and decorators distinguish coroutine functions, so the delegate must be one too.
        @functools.wraps(method)
        async def call_async(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return await method(getattr(self, part), *args, **kwargs)

        return call_async  # type: ignore[return-value]

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(self, part), *args, **kwargs)

    return call
