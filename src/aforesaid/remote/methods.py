"""Make manager methods that send a call, async and sync.

The methods belong to objects with `calls` and a `sender`. They have the name and signature of the call and
the docstring of the local method that they mirror.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from aforesaid._internal.arguments import as_checked, check_of
from aforesaid.remote.calls import Call, CallSequence

C = TypeVar("C")
T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


def async_method(
    describe: Callable[Concatenate[C, P], Call[T] | CallSequence[T]], like: Callable[..., Any]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return an async method that sends the call and returns its result."""

    check = check_of(describe)

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if check is not None:
            check((self, *args), kwargs)
        result: T = await self.sender.execute(describe(self.calls, *args, **kwargs))
        return result

    return _with_metadata(method, describe, like)


def sync_method(
    describe: Callable[Concatenate[C, P], Call[T] | CallSequence[T]], like: Callable[..., Any]
) -> Callable[Concatenate[Any, P], T]:
    """Return a sync method that sends the call and returns its result."""

    check = check_of(describe)

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if check is not None:
            check((self, *args), kwargs)
        result: T = self.sender.execute(describe(self.calls, *args, **kwargs))
        return result

    return _with_metadata(method, describe, like)


def _with_metadata(method: F, describe: Callable[..., Any], like: Callable[..., Any]) -> F:
    functools.update_wrapper(method, describe)
    method.__doc__ = like.__doc__
    return as_checked(method)
