"""Methods that send a call, listed once for the async and the sync face.

A face has `calls` and a `sender`. Its methods have the name and the parameters of the call, and the docstring
and return type of the local method that they mirror.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from aforesaid._internal.arguments import as_checked, check_of
from aforesaid.remote.calls import Call, CallSequence
from aforesaid.remote.transport import AsyncSender, SyncSender

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncFace:
    """Base of classes that send their calls from an event loop."""

    sender: AsyncSender

    def __init_subclass__(cls) -> None:
        _replace_call_methods(cls, _async_method)


class SyncFace:
    """Base of classes that send their calls synchronously."""

    sender: SyncSender

    def __init_subclass__(cls) -> None:
        _replace_call_methods(cls, _sync_method)


class CallMethod(Generic[P, T]):
    """A method that sends a call: a coroutine function in an async face, a function in a sync one."""

    def __init__(
        self,
        describe: Callable[Concatenate[Any, P], Call[T] | CallSequence[T]],
        like: Callable[..., Any],
    ) -> None:
        self.describe = describe
        self.like = like

    # For type checkers, which see both faces in one list. At run time each face replaces it by a function.
    @overload
    def __get__(self, instance: AsyncFace, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: SyncFace, owner: Any = None) -> Callable[P, T]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self


def _replace_call_methods(face: type, function_for: Callable[[CallMethod[Any, Any]], Any]) -> None:
    for base in face.__mro__:
        for name, member in vars(base).items():
            # A face may define a method itself, such as `append`, which then wraps the listed
            # one.
            if isinstance(member, CallMethod) and name not in vars(face):
                setattr(face, name, function_for(member))


def _async_method(listed: CallMethod[Any, Any]) -> Callable[..., Any]:
    describe, check = listed.describe, check_of(listed.describe)

    async def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        check((self, *args), kwargs)
        return await self.sender.execute(describe(self.calls, *args, **kwargs))

    return _with_metadata(method, listed)


def _sync_method(listed: CallMethod[Any, Any]) -> Callable[..., Any]:
    describe, check = listed.describe, check_of(listed.describe)

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        check((self, *args), kwargs)
        return self.sender.execute(describe(self.calls, *args, **kwargs))

    return _with_metadata(method, listed)


def _with_metadata(method: F, listed: CallMethod[Any, Any]) -> F:
    functools.update_wrapper(method, listed.describe)
    method.__doc__ = listed.like.__doc__
    method.__annotations__ = {
        **listed.describe.__annotations__,
        "return": listed.like.__annotations__.get("return"),
    }
    # The signature is that of the method itself, not of the wrapped description of the call.
    signature = inspect.signature(listed.describe)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        return_annotation=inspect.signature(listed.like).return_annotation
    )
    return as_checked(method)
