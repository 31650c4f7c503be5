"""Arguments of tools: validated by a JSON schema, or by the annotations of a function."""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from aforesaid.errors import InvalidInput, InvalidSetting, shown

Arguments = dict[str, Any]


def checked_arguments(
    tool: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any] | str | None
) -> Arguments:
    """Return the arguments of a tool, validated by its schema, or raise an error that a model can act on."""
    arguments = _as_object(arguments)
    schemas = _schemas_of(tool, parameters, arguments)
    # Models write null for omitted arguments. Null is a value only if the schema allows it.
    present = {
        name: value for name, value in arguments.items() if value is not None or _takes_null(schemas[name])
    }
    missing = [name for name in parameters.get("required", ()) if name not in present]
    if missing:
        raise InvalidInput(f"{tool} needs {', '.join(missing)}")
    return {name: _validate_one(name, value, schemas[name]) for name, value in present.items()}


def _schemas_of(
    tool: str, parameters: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each argument. Arguments without one need `additionalProperties`."""
    properties: dict[str, Any] = parameters.get("properties", {})
    others = parameters.get("additionalProperties", False)
    unknown = sorted(set(names) - set(properties))
    if unknown and others is False:
        raise InvalidInput(f"{tool} takes no {', '.join(unknown)}; it takes: {', '.join(properties)}")
    schemas = {name: properties.get(name, others) for name in names}
    # `true` is a schema that allows anything.
    return {name: schema if isinstance(schema, Mapping) else {} for name, schema in schemas.items()}


def _as_object(arguments: Mapping[str, Any] | str | None) -> Arguments:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            raise InvalidInput(f"the arguments are not JSON: {shown(arguments)}") from None
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidInput(f"the arguments must be an object; got {shown(arguments)}")
    return dict(arguments or {})


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _validate_one(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if value is None:
        return None  # the caller has checked that null is allowed
    kinds = _kinds(schema)
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON does not distinguish 3.0 from 3
    if kinds and not any(_is_a(kind, value) for kind in kinds):
        raise InvalidInput(
            f"{name} must be of type {' or '.join(kinds)}; got {shown(value)}", field=name, value=value
        )
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidInput.not_in(name, value, schema["enum"])
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    if _is_a("number", value) and not low <= value <= high:
        raise InvalidInput(f"{name} must be {low} to {high}; got {value}", field=name, value=value)
    return value


def _kinds(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema allows; empty when it allows any."""
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _is_a(kind: str, value: Any) -> bool:
    if kind not in _TYPES:
        return True  # not a JSON schema type; leave it to the tool
    return isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)


def _takes_null(schema: Mapping[str, Any]) -> bool:
    choices = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    return "null" in _kinds(schema) or any(_takes_null(choice) for choice in choices)


# Schemas of functions

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ArgumentTypes:
    """The arguments of a function, by its annotations. Raises `InvalidSetting` for one without a schema."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._types: dict[str, Any] = {}
        parameters = _parameters(name, function)
        hints = _hints(name, function)
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        for parameter in parameters:
            hint = hints.get(parameter.name, str)
            self._types[parameter.name] = hint
            schema, found = _schema(name, parameter.name, hint)
            properties[parameter.name] = schema
            definitions |= found
        self.schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": [one.name for one in parameters if one.default is one.empty],
            "additionalProperties": False,
        }
        if definitions:
            self.schema["$defs"] = definitions

    def converted(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return the arguments as values of the annotated types. Raise `InvalidInput`."""
        return {name: self._convert(name, value) for name, value in arguments.items()}

    def _convert(self, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._types[name])
        except msgspec.ValidationError as error:
            problem = f"{name}: {error}"
        raise InvalidInput(problem, field=name, value=value)


def _parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InvalidSetting(f"the tool {name} has no signature", field="tools") from None
    for parameter in parameters:
        if parameter.kind not in _NAMED:
            raise InvalidSetting(
                f"the tool {name} must take named arguments only; got {parameter}", field="tools"
            )
    return parameters


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidSetting(f"the annotations of the tool {name} do not resolve: {error}") from None


def _schema(tool: str, name: str, hint: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of one argument, and the definitions that it refers to."""
    try:
        (schema,), definitions = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise InvalidSetting(f"the argument {name} of the tool {tool} has no schema: {error}") from None
    if get_origin(hint) is Annotated:
        texts = [one for one in get_args(hint)[1:] if isinstance(one, str)]
        schema = schema | ({"description": texts[0]} if texts else {})
    return schema, definitions
