"""Read values as dicts and lists, the form that the documented interfaces return and `json.dumps` accepts.

- `ReadableAsDict` gives a struct the methods of a read-only dict.
- `FrozenDict` is a dict, because `json.dumps` accepts no other mapping.

Keys return JSON values, attributes typed ones: `record["created_at"]` is text, `record.created_at` a time.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, NoReturn, Self, dataclass_transform, get_type_hints

from msgspec import Struct, defstruct


class ReadableAsDict:
    """The methods of a read-only dict over `to_dict`. They cost nothing until they are called."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the documented form as plain JSON values."""
        raise NotImplementedError

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self.to_dict().get(key, default) if isinstance(key, str) else default

    def keys(self) -> KeysView[str]:
        """Return the keys."""
        return self.to_dict().keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self.to_dict().values()

    def items(self) -> ItemsView[str, Any]:
        """Return the pairs of keys and values."""
        return self.to_dict().items()

    def __contains__(self, key: object) -> bool:
        return key in self.to_dict()

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def __bool__(self) -> bool:
        return True  # `__len__` would render the value

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return self.to_dict() | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return dict(other) | self.to_dict() if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a dict

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other  # the struct's own would compare as a struct


Mapping.register(ReadableAsDict)


def to_json_value(value: Any) -> Any:
    """Return a value of a record as JSON: times as ISO 8601, durations in seconds, tuples as lists."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case tuple():
            return [to_json_value(one) for one in value]
        case ReadableAsDict():
            return value.to_dict()
        case _:
            return value


_REQUIRED: Final = object()


def _refuse(self: object, *_: Any, **__: Any) -> NoReturn:
    raise TypeError(f"a {type(self).__name__} is read-only; dict(...) returns a copy that can be changed")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class FrozenDict(dict[str, Any]):
    """A read-only dict of declared fields, which are attributes too.

    The dict itself contains the typed values, so that a reader that copies the memory of a dict misses
    nothing. Reading by key renders JSON. `_fields` has the same values in a plain dict: copies of that one
    are fast, and every turn makes a record.
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]
    _defaults: ClassVar[dict[str, Any]] = {}
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        declared = {name: cls.__dict__.get(name, _REQUIRED) for name in cls.__annotations__}
        cls._defaults = cls._defaults | declared
        cls._required = frozenset(name for name, value in cls._defaults.items() if value is _REQUIRED)
        for name in declared:
            setattr(cls, name, property(_attribute(name)))

    def __init__(self, **given: Any) -> None:
        fields = {**self._defaults, **given}
        if len(fields) != len(self._defaults) or self._required - given.keys():
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._defaults)}")
        self._check(fields)
        super().__init__(fields)
        _set_fields(self, fields)

    @staticmethod
    def _check(fields: dict[str, Any]) -> None:
        """Check the values, and replace those that have a standard form. Raise `InvalidInput`."""

    @classmethod
    def of_known(cls, fields: Mapping[str, Any]) -> Self:
        """Return the record of a document that may have more fields than this release declares."""
        return cls(**{name: fields[name] for name in cls._defaults if name in fields})

    @classmethod
    def struct(cls) -> type[Struct]:
        """Return a struct with the same fields, for decoders: msgspec decodes no subclass of dict."""
        fields: list[Any] = [
            (name, kind) if cls._defaults[name] is _REQUIRED else (name, kind, cls._defaults[name])
            for name, kind in get_type_hints(cls).items()
            if name in cls._defaults
        ]
        return defstruct(cls.__name__, fields, kw_only=True)

    def typed(self) -> dict[str, Any]:
        """Return the typed values by field."""
        return self._fields.copy()

    def with_(self, **changes: Any) -> Self:
        """Return this record with other values in some fields."""
        return type(self)(**{**self.typed(), **changes})

    def _unchecked(self, **changes: Any) -> Self:
        """Return this record with other values in some fields, which are valid: every turn makes one."""
        fields = self._fields | changes
        changed = self.__new__(type(self))
        dict.update(changed, fields)
        _set_fields(changed, fields)
        return changed

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return {name: to_json_value(value) for name, value in self._fields.items()}

    copy = to_dict

    def __getitem__(self, key: str) -> Any:
        return to_json_value(self._fields[key])

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a field, or the default."""
        return to_json_value(self._fields[key]) if isinstance(key, str) and key in self else default

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return the JSON values."""
        return self.to_dict().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return the pairs of fields and JSON values."""
        return self.to_dict().items()

    def __iter__(self) -> Iterator[str]:
        # Without this method, dict(record) and {**record} would copy the typed values.
        return super().__iter__()

    def __or__(self, other: Any) -> Any:
        return self.to_dict() | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return dict(other) | self.to_dict() if isinstance(other, Mapping) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenDict):
            return self._fields == other._fields
        return self.to_dict() == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields.items())
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> Any:
        return _built, (type(self), self.typed())

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse


def _attribute(name: str) -> Callable[[FrozenDict], Any]:
    return lambda record: record._fields[name]


_set_fields: Callable[[FrozenDict, dict[str, Any]], None] = FrozenDict.__dict__["_fields"].__set__


def _built(kind: type[FrozenDict], fields: dict[str, Any]) -> FrozenDict:
    return kind(**fields)
