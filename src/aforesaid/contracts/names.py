"""Accept any text as a conversation id: the one place where names become ids.

A caller's own id for a conversation, such as `kitchen`, is a name. The UUID of the conversation is derived
from owner and name (`model.ids.conversation_key`), so stores, layers and files know UUIDs only, and no table
of names can disagree with the records. The record contains the name.
"""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from aforesaid.errors import ConversationNotFound
from aforesaid.model.ids import conversation_key, is_uuid

T = TypeVar("T")
Arguments: TypeAlias = tuple[Any, ...]

PARAMETER = "conversation_id"
# The attribute of a method that accepts names itself.
ACCEPTS_NAMES = "__accepts_names__"


def accept_names(
    kind: type[T],
    owner_of: Callable[[Any], str],
    *,
    untranslated: Collection[str] = (),
    in_errors: bool = False,
    on_name: Callable[[Any, str, str], None] | None = None,
) -> type[T]:
    """Make every public method of the class that takes a `conversation_id` accept a name instead.

    The methods get the UUID. The `untranslated` ones get the text as given: they may create a missing
    conversation, for which they need the name. With `in_errors`, `ConversationNotFound` gives the caller's
    name; layers of a store need the UUID there. `on_name` is called with the object, the UUID and the name of
    every translation.
    """
    for attribute, method in list(vars(kind).items()):
        is_public = isinstance(method, FunctionType) and not attribute.startswith("_")
        if is_public and attribute not in untranslated and not hasattr(method, ACCEPTS_NAMES):
            setattr(kind, attribute, _translating(method, owner_of, in_errors=in_errors, on_name=on_name))
    return kind


def _translating(
    method: Callable[..., Any],
    owner_of: Callable[[Any], str],
    *,
    in_errors: bool,
    on_name: Callable[[Any, str, str], None] | None,
) -> Callable[..., Any]:
    if PARAMETER not in _parameter_names(method):  # most methods, and a signature takes long to read
        return method
    parameters = inspect.signature(method).parameters
    by_keyword = parameters[PARAMETER].kind is inspect.Parameter.KEYWORD_ONLY
    place = len(parameters) if by_keyword else list(parameters).index(PARAMETER) - 1
    is_optional = parameters[PARAMETER].default is None

    def translated(self: Any, given: Arguments, named: dict[str, Any]) -> _Translated:
        by_place = len(given) > place
        if not by_place and PARAMETER not in named:
            return _Translated(given, named)
        value = given[place] if by_place else named[PARAMETER]
        if (type(value) is str and is_uuid(value)) or (value is None and is_optional):
            return _Translated(given, named)
        key, name = conversation_key(value, owner=owner_of(self))
        if on_name is not None and name is not None:
            on_name(self, key, name)
        shown = name if in_errors else None
        if by_place:
            return _Translated((*given[:place], key, *given[place + 1 :]), named, shown)
        return _Translated(given, {**named, PARAMETER: key}, shown)

    return _wrapped(method, translated, place)


class _HasStore(Protocol):
    store: Any


def learn_name(holder: _HasStore, conversation_id: str, name: str) -> None:
    """Give a store of histories the name behind an id. It loads and saves by name; other stores know ids."""
    if hasattr(holder.store, "learn_name"):
        holder.store.learn_name(conversation_id, name)


def _parameter_names(method: Callable[..., Any]) -> tuple[str, ...]:
    code: CodeType = inspect.unwrap(method).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class _Translated(NamedTuple):
    """The arguments of a call, and the name that an error gives."""

    given: Arguments
    named: dict[str, Any]
    name: str | None = None


def _wrapped(
    method: Callable[..., Any], translated: Callable[..., _Translated], place: int
) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def call_async(self: Any, *given: Any, **named: Any) -> Any:
            # Every call of every layer passes here, nearly always with a UUID by position.
            if len(given) > place and type(given[place]) is str and is_uuid(given[place]):
                return await method(self, *given, **named)
            call = translated(self, given, named)
            try:
                return await method(self, *call.given, **call.named)
            except ConversationNotFound as error:
                if call.name is None:
                    raise
                raise ConversationNotFound(call.name) from error

        setattr(call_async, ACCEPTS_NAMES, True)
        return call_async

    @wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        given, named, _ = translated(self, given, named)
        return method(self, *given, **named)

    setattr(call, ACCEPTS_NAMES, True)
    return call


def accepting_names(*, untranslated: str) -> Callable[[type[T]], type[T]]:
    """Make every method of a manager accept the name of a conversation.

    `untranslated` lists the methods that create a missing one: they get the name.
    """

    def accepting(kind: type[T]) -> type[T]:
        owner_of = attrgetter("store.owner")
        names = untranslated.split()
        return accept_names(kind, owner_of, untranslated=names, in_errors=True, on_name=learn_name)

    return accepting
