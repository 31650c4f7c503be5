"""Token counts of tool definitions, and what a provider adds to a request with tools.

A model does not receive the JSON of a definition. OpenAI renders a signature in TypeScript, and the counts
that other providers report are near those of the same form. In addition, most providers insert instructions
on how to call tools, whose length depends on the family of the model. `OVERHEADS` has upper values, measured
on recorded requests; `calibrate` corrects them for a model.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.contracts import TokenCounter
from aforesaid.dialects import form_of
from aforesaid.errors import InvalidInput, shown


class Overhead(Struct, frozen=True, kw_only=True):
    """What a family of models adds to a request, in tokens."""

    request: int = 0
    """Added to every request."""
    tools: int = 12
    """Added to a request with tools."""
    per_tool: int = 0
    """Added for each tool."""
    per_field: int = 0
    """Added for each field of a tool's arguments."""
    per_reference: int = 0
    """Added for each reference and each choice of types in the schema of the arguments."""
    forced: int = 0
    """Added when the model must call a tool."""


# The first match applies. `chat` is OpenAI's chat interface, which adds more for some models than its other
# one. A family without a match may be any model.
OVERHEADS = (
    (lazy_pattern(r"gpt-oss"), Overhead(request=68, tools=24)),
    (lazy_pattern(r"(ft:)?(gpt-5|gpt-[6-9]).* chat$"), Overhead(request=3, tools=83, per_tool=3)),
    (lazy_pattern(r"(ft:)?(gpt-[5-9]|o[134]\b)"), Overhead(request=3, tools=8, per_tool=3, per_reference=16)),
    (
        lazy_pattern(r"(ft:)?(gpt-|chatgpt-)"),
        Overhead(request=3, tools=6, per_tool=2, per_field=1, per_reference=16, forced=10),
    ),
    (
        lazy_pattern(r"([a-z]+\.)*claude-(3|haiku-3|(sonnet|opus)-4-(0|2025))"),
        Overhead(request=4, tools=400, per_tool=20, per_reference=16, forced=80),
    ),
    (
        lazy_pattern(r"([a-z]+\.)*claude-(opus-4-[7-9]|(opus|sonnet|haiku)-[5-9])"),
        Overhead(request=8, tools=496, per_tool=45, per_reference=16, forced=120),
    ),
    (
        lazy_pattern(r"([a-z]+\.)*claude"),
        Overhead(request=4, tools=496, per_tool=45, per_reference=16, forced=120),
    ),
    (lazy_pattern(r"([a-z]+\.)*(amazon\.)?nova-2"), Overhead(request=48, tools=860)),
    (lazy_pattern(r"([a-z]+\.)*(amazon\.)?nova"), Overhead(tools=860)),
    (lazy_pattern(r"gemini-(1|2\.0)"), Overhead(tools=8)),
    (lazy_pattern(r"gemini-2"), Overhead(tools=2, per_tool=2, per_field=10, per_reference=16)),
    (lazy_pattern(r"gemini"), Overhead(tools=4, per_tool=4, per_field=5, per_reference=16, forced=15)),
    (lazy_pattern(r"(codestral|mi(ni)?stral|magistral|pixtral)"), Overhead(tools=60)),
    (lazy_pattern(r"llama"), Overhead(tools=690)),
)
UNKNOWN = Overhead(tools=64, per_tool=8)
# Without a model, the counter is that of OpenAI's models.
DEFAULT = Overhead(tools=12)


def overhead_for(model: str | None, dialect: str | None = None) -> Overhead:
    """Return the overhead of a model's family. A name may include its provider, as in `openai/gpt-4o`."""
    if model is None:
        return DEFAULT
    name = model.strip().lower().rpartition("/")[2]
    suffix = " chat" if dialect is not None and form_of(dialect) == "openai_chat" else ""
    found = (overhead for pattern, overhead in OVERHEADS if pattern.match(name + suffix))
    return next(found, UNKNOWN)


def count_tools(
    counter: TokenCounter,
    tools: Sequence[Mapping[str, Any]],
    *,
    model: str | None = None,
    dialect: str | None = None,
    forced: bool = False,
) -> int:
    """Return the cost of tool definitions in any dialect, with what the model's family adds to them.

    `forced`: the request requires a call (`tool_choice` "any", "required", or a tool's name).
    """
    overhead = overhead_for(model, dialect)
    if not tools:
        return overhead.request
    learned = getattr(counter, "tools_overhead", 0)
    _compact(list(tools))  # refuses what is not JSON
    text = counter.count_text(signatures_of(tools))
    functions = [each for tool in tools for each in _functions(tool)]
    added = overhead.request + overhead.tools + forced * overhead.forced
    added += overhead.per_tool * len(functions)
    if overhead.per_field:
        added += overhead.per_field * sum(map(_count_fields, functions))
    if overhead.per_reference:
        added += overhead.per_reference * sum(_count_references(_schema_of(each)) for each in functions)
    return max(0, added + text + learned)


def names_of_tools(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the tools, as far as they have one."""
    names = [function.get("name") for tool in tools for function in _functions(tool)]
    return [name for name in names if isinstance(name, str)]


# Signatures


def signatures_of(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return the definitions as signatures in TypeScript."""
    lines = ["# Tools", "", "## functions", "", "namespace functions {", ""]
    for tool in tools:
        lines += [*_signature(tool), ""]
    return "\n".join([*lines, "} // namespace functions"])


def _functions(tool: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the functions of a tool definition: one, or several in Gemini's tools."""
    nested = [each for key in _DECLARATIONS for each in _list(tool.get(key))]
    if nested:
        return [each for each in nested if isinstance(each, Mapping)]
    wrapped = [tool[key] for key in ("function", "toolSpec") if isinstance(tool.get(key), Mapping)]
    return [wrapped[0] if wrapped else tool]


def _count_fields(function: Mapping[str, Any]) -> int:
    """Return the number of fields of the arguments, also of nested ones."""
    schema = _schema_of(function) or {}
    return len(re.findall(_FIELD, "\n".join(_fields(schema, _definitions(schema), depth=0))))


def _count_references(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_count_references, value))
    if not isinstance(value, Mapping):
        return 0
    return ("$ref" in value or "anyOf" in value) + sum(map(_count_references, value.values()))


# A line of a signature that declares a field.
_FIELD = r"(?m)^[^/\n][^\n]*: .*$"


def _signature(tool: Mapping[str, Any]) -> list[str]:
    functions = _functions(tool)
    if len(functions) > 1:
        return [line for each in functions for line in (*_signature(each), "")][:-1]
    function = functions[0]
    schema = _schema_of(function)
    if not isinstance(function.get("name"), str) or schema is None:
        return [_compact(tool)]
    described = str(function.get("description") or "")
    comments = [f"// {line}" for line in described.splitlines()]
    fields = _fields(schema, _definitions(schema), depth=0)
    if not fields:
        return [*comments, f"type {function['name']} = () => any;"]
    return [*comments, f"type {function['name']} = (_: {{", *fields, "}) => any;"]


_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
# Schemas can refer to themselves.
_MAX_DEPTH = 12


def _schema_of(function: Mapping[str, Any]) -> Mapping[str, Any] | None:
    schema = next((function[key] for key in _SCHEMAS if isinstance(function.get(key), Mapping)), None)
    if schema is None:
        # A function without parameters has no schema; a tool of the provider has a type instead.
        return {} if function.get("type", "function") == "function" else None
    inner = schema.get("json")
    return inner if isinstance(inner, Mapping) else schema


def _definitions(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("$defs", schema.get("definitions"))
    return found if isinstance(found, Mapping) else {}


def _fields(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> list[str]:
    properties = schema.get("properties")
    required = _list(schema.get("required"))
    lines: list[str] = []
    for name, field in properties.items() if isinstance(properties, Mapping) else ():
        described = field.get("description") if isinstance(field, Mapping) else None
        lines += [f"// {line}" for line in str(described or "").splitlines()]
        mark = "" if name in required else "?"
        lines.append(f"{name}{mark}: {_type(field, definitions, depth + 1)},")
    return lines


def _type(schema: Any, definitions: Mapping[str, Any], depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return "any"
    if isinstance(schema.get("$ref"), str):
        return _type(definitions.get(schema["$ref"].rpartition("/")[2]), definitions, depth + 1)
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        return " | ".join(_compact(value) for value in values)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            return " | ".join(_type(each, definitions, depth + 1) for each in schema[key])
    kind = schema.get("type")
    if kind == "array":
        return f"{_type(schema.get('items'), definitions, depth + 1)}[]"
    if kind == "object" or "properties" in schema:
        fields = _fields(schema, definitions, depth)
        described = [f"// {line}" for line in str(schema.get("description") or "").splitlines()]
        return "\n".join(["{", *described, *fields, "}"]) if fields else "object"
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    return "number" if kind == "integer" else str(kind or "any").lower()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _compact(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"only JSON can be counted ({error}); got {shown(value)}", value=value) from error
