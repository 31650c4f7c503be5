"""Validate the arguments of public calls against their annotations, and parse the values of settings."""

import inspect
import math
import os
import sys
import types
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import cache, wraps
from os import PathLike
from typing import Any, ForwardRef, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from msgspec import UNSET, Struct, UnsetType

from aforesaid.errors import InvalidInput, InvalidSetting, shown

# Validate the arguments of public calls against their annotations.
#
#     @validated                          a class: its constructor and public methods; or a function
#     class Options(CheckedFields): ...   a struct: its fields, on creation
#
# An argument of another type raises `InvalidInput`, which names the argument. The code that uses a value
# checks its range and format. Ids are excluded, because they have errors of their own, and so are
# annotations that cannot be resolved at run time.


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[Sequence[Any], Mapping[str, Any]], None]

_MARK = "__arguments_checked__"
_ANYTHING = (Any, object, inspect.Parameter.empty)
_LISTS = frozenset((list, tuple))


class Kind(NamedTuple):
    """The values that an annotation allows."""

    exactly: frozenset[type]
    """Types whose values need no further test; most arguments have one of these."""
    test: Callable[[Any], bool]
    words: str
    """The allowed values, in words."""
    choices: tuple[Any, ...] = ()


class _Parameter(NamedTuple):
    name: str
    kind: Kind


class _Parameters(NamedTuple):
    """The parameters of a function that are validated: by place, and by name."""

    positional: tuple[_Parameter | None, ...]
    named: Mapping[str, _Parameter]


class CheckedFields(Struct, frozen=True, kw_only=True):
    """A struct that validates the types of its fields on creation."""

    def __post_init__(self) -> None:
        for field in _fields_of(type(self)):
            value = getattr(self, field.name)
            if type(value) not in field.kind.exactly and value is not UNSET:
                _check_value(field, value, InvalidSetting)


def validated(target: T) -> T:
    """Return the class with its constructor and public methods validated, or the function validated.

    A wrong argument of a constructor or of a function is an `InvalidSetting`.
    """
    if not isinstance(target, type):
        return _wrapped(target, error=InvalidSetting)  # type: ignore[arg-type,return-value]
    for name, member in inspect.getmembers_static(target):
        if name == "__init__" or not name.startswith("_"):
            error = InvalidSetting if name == "__init__" else InvalidInput
            if isinstance(member, types.FunctionType) and not is_checked(member):
                setattr(target, name, _wrapped(member, error=error))
            elif isinstance(member, classmethod) and not is_checked(member.__func__):
                setattr(target, name, classmethod(_wrapped(member.__func__, error=error)))
    return target


def check_of(function: Callable[..., Any], *, error: type[InvalidInput] = InvalidInput) -> Check:
    """Return the validation of a function's arguments.

    Every turn runs it: an argument of exactly the annotated type costs one comparison. The first call reads
    the annotations, because reading those of all methods would slow the import down.
    """
    read: _Parameters | None = None

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        nonlocal read
        if read is None:
            read = _parameters_of(function)
        positional, named = read
        for one, value in zip(positional, args, strict=False):
            if one is not None and type(value) not in one.kind.exactly:
                _check_value(one, value, error)
        for name in kwargs:
            if name in named and type(kwargs[name]) not in named[name].kind.exactly:
                _check_value(named[name], kwargs[name], error)

    return check


def has_checkable_arguments(function: Callable[..., Any]) -> bool:
    """Return whether there is anything to validate."""
    return bool(_parameters_of(function).named)


def _parameters_of(function: Callable[..., Any]) -> _Parameters:
    parameters = list(inspect.signature(function).parameters.values())
    named = {
        each.name: _Parameter(each.name, kind)
        for each in parameters
        if (kind := _kind_of_parameter(each, function)) is not _ANY
    }
    positional = tuple(named.get(each.name) for each in parameters if each.kind in _POSITIONAL)
    return _Parameters(positional, named)


def as_checked(function: F) -> F:
    """Mark a function that validates its arguments itself."""
    setattr(function, _MARK, True)
    return function


def is_checked(function: Callable[..., Any]) -> bool:
    """Return whether the function checks its arguments."""
    return hasattr(function, _MARK)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _wrapped(function: Callable[..., Any], *, error: type[InvalidInput] = InvalidInput) -> Callable[..., Any]:
    if not any(map(_is_checked_parameter, function.__annotations__)):
        return function
    check = check_of(function, error=error)
    wrap = _awaiting if inspect.iscoroutinefunction(function) else _calling
    return as_checked(wrap(function, check))


def _awaiting(function: Callable[..., Awaitable[Any]], check: Check) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await function(*args, **kwargs)

    return call


def _calling(function: Callable[..., Any], check: Check) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    return call


def _check_value(parameter: _Parameter, value: Any, error: type[InvalidInput]) -> None:
    kind = parameter.kind
    if kind.test(value):
        return
    if kind.choices:
        raise error.not_in(parameter.name, value, kind.choices)
    raise error(
        f"{parameter.name} must be {kind.words}; got {shown(value)}", field=parameter.name, value=value
    )


# From annotations to kinds


def _kind_of_parameter(parameter: inspect.Parameter, function: Callable[..., Any]) -> Kind:
    if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
        return _ANY
    if not _is_checked_parameter(parameter.name):
        return _ANY
    return _kind_of(parameter.annotation, vars(sys.modules[function.__module__]))


def _is_checked_parameter(name: str) -> bool:
    return name not in ("self", "cls", "return") and not _has_own_error(name)


def _has_own_error(name: str) -> bool:
    return name in ("id", "owner", "inherit") or name.endswith("_id")


_fields: dict[type, tuple[_Parameter, ...]] = {}


def _fields_of(struct: type[Struct]) -> tuple[_Parameter, ...]:
    if struct not in _fields:
        scope = vars(sys.modules[struct.__module__])
        signature = inspect.signature(struct)
        _fields[struct] = tuple(
            _Parameter(each.name, _kind_of(each.annotation, scope))
            for each in signature.parameters.values()
            if not _has_own_error(each.name)
        )
    return _fields[struct]


def _kind_of(annotation: Any, scope: Mapping[str, Any]) -> Kind:
    if isinstance(annotation, str | ForwardRef):
        return _kind_of_text(annotation, scope)
    if annotation is None:
        annotation = types.NoneType
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _union(get_args(annotation), scope)
    if origin is Literal:
        return _one_of(get_args(annotation))
    if origin is not None:
        return _container(origin, get_args(annotation), scope)
    if annotation in _ANYTHING or not isinstance(annotation, type):
        return _ANY
    return _SIMPLE.get(annotation) or _instance_of(annotation)


def _kind_of_text(annotation: str | ForwardRef, scope: Mapping[str, Any]) -> Kind:
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    try:
        return _kind_of(eval(text, dict(scope)), scope)
    except (NameError, TypeError):  # imported for type checking only
        return _ANY


def _union(members: Sequence[Any], scope: Mapping[str, Any]) -> Kind:
    kinds = [_kind_of(each, scope) for each in members]
    if any(_is_path_type(each) for each in members):  # with a path type in the union, text is a path
        kinds = [_PATH if kind is _SIMPLE[str] else kind for kind in kinds]
    return _either(kinds)


def _is_path_type(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, PathLike)


def _either(kinds: Sequence[Kind]) -> Kind:
    if any(kind is _ANY for kind in kinds):
        return _ANY
    choices = tuple(choice for kind in kinds for choice in kind.choices)
    only_choices = all(kind.choices or kind is _SIMPLE[types.NoneType] for kind in kinds)
    return Kind(
        exactly=frozenset().union(*(kind.exactly for kind in kinds)),
        test=lambda value: any(type(value) in kind.exactly or kind.test(value) for kind in kinds),
        words=" or ".join(dict.fromkeys(kind.words for kind in kinds)),
        choices=choices if only_choices else (),
    )


def _one_of(choices: tuple[Any, ...]) -> Kind:
    def test(value: Any) -> bool:
        return isinstance(value, str | int) and value in choices

    return Kind(frozenset(), test, f"one of {', '.join(map(str, choices))}", choices)


def _container(origin: Any, inner: tuple[Any, ...], scope: Mapping[str, Any]) -> Kind:
    if origin is type:
        return _ANY
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return _mapping(inner, scope)
    if inspect.isclass(origin) and origin is not Callable and issubclass(origin, Iterable):
        return _list_of(_kind_of(inner[0], scope) if inner else _ANY)
    return _SIMPLE.get(origin) or (_CALLABLE if origin is Callable else _ANY)


def _list_of(item: Kind) -> Kind:
    # Text is read once, so a generator is allowed; other items are iterated several times.
    needed = Iterable if item is _SIMPLE[str] else Collection

    def test(value: Any) -> bool:
        if type(value) not in _LISTS:
            if not isinstance(value, needed) or isinstance(value, str | bytes | bytearray | Mapping):
                return False
            if not isinstance(value, Collection):
                return True
        for each in value:  # noqa: SIM110  a generator costs more calls than a turn has to spare
            if type(each) not in item.exactly and not item.test(each):
                return False
        return True

    return Kind(frozenset(), test, f"a list of {item.words}" if item is not _ANY else "a list")


def _mapping(inner: tuple[Any, ...], scope: Mapping[str, Any]) -> Kind:
    key, item = (_kind_of(each, scope) for each in (inner or (Any, Any)))

    def test(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            (type(one) in key.exactly or key.test(one)) and (type(two) in item.exactly or item.test(two))
            for one, two in value.items()
        )

    return Kind(frozenset(), test, f"a dict of {item.words}" if item is not _ANY else "a dict")


def _instance_of(kind: type) -> Kind:
    words = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    if issubclass(kind, PathLike):
        return Kind(frozenset(), lambda value: isinstance(value, kind) and is_path(value), "a path")
    if issubclass(kind, Struct) or not kind.__module__.startswith("aforesaid"):
        return Kind(frozenset((kind,)), lambda value: isinstance(value, kind), words)
    members = frozenset(name for name in dir(kind) if not name.startswith("_"))
    return Kind(frozenset((kind,)), lambda value: _resembles(value, kind, members), words)


def _resembles(value: Any, kind: type, members: frozenset[str]) -> bool:
    """Whether the value can replace the class: it is an instance, or has most of its public members.

    Services are passed by interface: a remote manager for a manager, an application's own encoder.
    """
    if isinstance(value, type):
        return False
    if not getattr(kind, "_is_protocol", False) and isinstance(value, kind):
        return True
    # The class first: a property of a remote manager may raise on access.
    present = sum(hasattr(type(value), name) or hasattr(value, name) for name in members)
    return 2 * present > len(members)


def is_path(value: Any) -> bool:
    """Whether the operating system accepts it as a file name: text without NUL that can be encoded."""
    try:
        return isinstance(value, str | PathLike) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


_ANY = Kind(frozenset(), lambda _: True, "anything")
_PATH = Kind(frozenset(), is_path, "a path")
_CALLABLE = Kind(frozenset((types.FunctionType,)), callable, "a function")
_SIMPLE: dict[Any, Kind] = {
    str: Kind(frozenset((str,)), lambda value: isinstance(value, str), "text"),
    bytes: Kind(frozenset((bytes,)), lambda value: isinstance(value, bytes), "bytes"),
    bool: Kind(frozenset((bool,)), lambda value: isinstance(value, bool), "True or False"),
    int: Kind(frozenset((int,)), _is_whole, "a whole number"),
    float: Kind(frozenset((int,)), _is_number, "a number"),
    types.NoneType: Kind(frozenset((types.NoneType,)), lambda value: value is None, "None"),
    UnsetType: Kind(frozenset((UnsetType,)), lambda value: value is UNSET, "left out"),
    # ISO 8601 text is parsed where time zones are checked.
    datetime: Kind(frozenset((datetime,)), lambda value: isinstance(value, datetime | str), "a datetime"),
    PathLike: Kind(frozenset(), is_path, "a path"),
    list: Kind(frozenset((list,)), lambda value: isinstance(value, list), "a list"),
    dict: Kind(frozenset((dict,)), lambda value: isinstance(value, dict), "a dict"),
}


# Parse the values of settings from environment variables and YAML. Errors complete the sentence "NAME …".


def parse_choice(allowed: tuple[str, ...], value: Any) -> str:
    """Return one of the allowed words."""
    word = str(value).strip().lower()
    if value is False:  # YAML parses `off` as False
        word = "off"
    if word not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}")
    return word


def parse_zone_name(value: Any) -> str:
    """Return the name of a time zone, or an empty text."""
    name = parse_optional_text(value)
    if name and _zone(name) is None:
        raise ValueError("must be a name such as Europe/Berlin")
    return name


def zone_named(name: str) -> tzinfo:
    """Return the time zone of the setting `timezone`. Raise `InvalidSetting`."""
    zone = _zone(name)
    if zone is None:
        raise InvalidSetting(
            f"timezone must be a name such as Europe/Berlin; got {shown(name)}", field="timezone", value=name
        )
    return zone


@cache
def _zone(name: str) -> tzinfo | None:
    """Return the zone, None where there is none. Only the first call for a name reads a file."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def parse_bool(value: Any) -> bool:
    """Return a truth value of YAML or text."""
    words = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    if isinstance(value, bool):
        return value
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise ValueError("must be true or false") from None


def parse_count(value: Any) -> int:
    """Return a whole number, zero or more."""
    message = "must be a whole number, zero or more"
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ValueError(message) from None
    if number < 0 or isinstance(value, bool):
        raise ValueError(message)
    return number


def parse_counts(value: Any) -> dict[str, int]:
    """Return whole numbers by name, from a mapping or text such as `voice=7,email=365`."""
    if isinstance(value, Mapping):
        return {str(name): parse_count(number) for name, number in value.items()}
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be names and whole numbers, as in voice=7,email=365")
    counts: dict[str, int] = {}
    for pair in filter(str.strip, value.split(",")):
        name, equals, number = pair.rpartition("=")
        if not equals or not name.strip():
            raise ValueError("must be names and whole numbers, as in voice=7,email=365")
        counts[name.strip()] = parse_count(number)
    return counts


def parse_optional_text(value: Any) -> str:
    """Return stripped text, which may be empty."""
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004
    return value.strip()


def parse_text(value: Any) -> str:
    """Return stripped text, which must not be empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()
