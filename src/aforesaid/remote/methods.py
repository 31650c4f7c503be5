"""From the description of a call to a method that sends it: one that awaits, one that waits. Below: sending.

A face is an object with `calls`, which describe, and a `sender`. Its methods have the name, the signature and
the words of the method in this process that they stand for.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from aforesaid._internal.arguments import as_checked, check_of
from aforesaid.remote.calls import Call, Talk

C = TypeVar("C")
T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


def awaited(
    describe: Callable[Concatenate[C, P], Call[T] | Talk[T]], like: Callable[..., Any]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that awaits what the described call gives."""

    check = check_of(describe)

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if check is not None:
            check((self, *args), kwargs)
        given: T = await self.sender.carry_out(describe(self.calls, *args, **kwargs))
        return given

    return _presented(method, describe, like)


def waited(
    describe: Callable[Concatenate[C, P], Call[T] | Talk[T]], like: Callable[..., Any]
) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for what the described call gives."""

    check = check_of(describe)

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if check is not None:
            check((self, *args), kwargs)
        given: T = self.sender.carry_out(describe(self.calls, *args, **kwargs))
        return given

    return _presented(method, describe, like)


def _presented(method: F, describe: Callable[..., Any], like: Callable[..., Any]) -> F:
    functools.update_wrapper(method, describe)
    method.__doc__ = like.__doc__
    return as_checked(method)
