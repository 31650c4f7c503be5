"""Call every public method with wrong values, one argument at a time, and say which calls misbehave."""

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

from aforesaid.errors import AforesaidError, InvalidAudio, InvalidInput, InvalidMessage
from aforesaid.memory.opening import Memory

PATIENCE = 60.0
"""Seconds that one call may take. Only a call that never ends takes this long."""


async def a_coroutine() -> None:
    """Await nothing."""


WRONG: dict[str, Any] = {
    "None": None,
    "True": True,
    "zero": 0,
    "negative": -1,
    "huge number": 2**70,
    "fraction": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "empty text": "",
    "blank text": " ",
    "NUL": "\x00",
    "lone surrogate": "\ud800",
    "huge text": "x" * 70_000,
    "unknown word": "no such word",
    "unknown UUID": "00000000-0000-7000-8000-00000000dead",
    "bytes": b"bytes",
    "no bytes": b"",
    "object": object(),
    "empty list": [],
    "list of None": [None],
    "list of dicts": [{"a": 1}],
    "list of texts": ["a", "b"],
    "dict": {},
    "dict of numbers": {1: 2},
    "set": {1, "a"},
    "class": dict,
    "function": len,
    "naive datetime": datetime(2026, 3, 1),
    "first moment": datetime.min.replace(tzinfo=UTC),
    "last moment": datetime.max.replace(tzinfo=UTC),
    "date": date(2026, 3, 1),
    "negative time": timedelta(days=-1),
    "longest time": timedelta.max,
}
"""Values that fit few parameters."""
ONCE: dict[str, Callable[[], Any]] = {
    "coroutine": a_coroutine,
    "generator": lambda: (number for number in range(2)),
    "nested": lambda: _nested(2000),
}
"""Values that are made anew for each call."""
NAMES = (*WRONG, *ONCE)


@contextmanager
def wrong_value(name: str) -> Iterator[Any]:
    value = ONCE[name]() if name in ONCE else WRONG[name]
    try:
        yield value
    finally:
        if inspect.iscoroutine(value):
            value.close()


def _nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def parameters_of(call: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        each
        for each in inspect.signature(call).parameters.values()
        if each.name not in ("self", "cls")
        and each.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]


def public_methods(kind: type) -> Iterator[str]:
    """The methods that a caller may call, those with parameters."""
    for name, member in inspect.getmembers(kind, callable):
        if not name.startswith("_") and not isinstance(member, type) and parameters_of(member):
            yield name


Call = Callable[..., Any]


async def outcome(call: Call, given: dict[str, Any]) -> BaseException | None:
    """Make the call to its end, and return what it raised."""
    try:
        async with asyncio.timeout(PATIENCE):
            await _finished(call(**given))
    except Exception as error:  # noqa: BLE001  which errors come is what is tested
        return error
    return None


async def _finished(result: Any) -> None:
    if isinstance(result, Memory):
        return
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, AbstractAsyncContextManager) and hasattr(result, "__aenter__"):
        async with result:
            pass
    elif isinstance(result, AbstractContextManager):
        with result:
            pass
    elif isinstance(result, AsyncIterator):
        await anext(result, None)
        if hasattr(result, "aclose"):
            await result.aclose()


MESSAGES = frozenset(("chat_history", "content", "document", "given", "messages"))
"""Parameters that hold messages: an error about a message is about them."""

SOUND = frozenset(("audio", "audio_data"))
"""Parameters that hold a recording, likewise."""


def complaint(parameter: inspect.Parameter, value: str, error: BaseException | None) -> str | None:
    """Say what is wrong with the outcome of a call with this wrong value; None when nothing is."""
    if error is None or is_of_the_callers_function(parameter, value):
        return None
    if not isinstance(error, AforesaidError):
        return f"{type(error).__name__}: {str(error)[:160]}"
    if not isinstance(error, InvalidInput) or is_named(parameter.name, error):
        return None
    return f"does not name it: {type(error).__name__}: {str(error)[:160]}"


def is_named(name: str, error: InvalidInput) -> bool:
    if isinstance(error, InvalidMessage) and name in MESSAGES:
        return True
    if isinstance(error, InvalidAudio) and name in SOUND:
        return True
    return error.field == name or name in str(error)


def is_of_the_callers_function(parameter: inspect.Parameter, value: str) -> bool:
    """Whether the value is a function, as the parameter asks: what it raises is the caller's own."""
    return value in ("class", "function") and "Callable" in str(parameter.annotation)


ALWAYS = ("audio_format", "content", "participant_id")
"""Parameters without which a call is refused although they have a default."""


def arguments_for(call: Call, valid: dict[str, Any]) -> dict[str, Any]:
    """Valid values for the parameters that are needed."""
    needed = [each.name for each in parameters_of(call) if each.default is each.empty or each.name in ALWAYS]
    missing = [name for name in needed if name not in valid]
    assert not missing, f"{call}: there are no valid values for {missing}"
    return {name: valid[name] for name in needed}
