"""Tools for models: registered once, described for each provider, run with validated arguments.

A tool is bound to its owner when it is created. No argument that a model writes can reach another owner's
data.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.dialects import ToolCall, tool_result
from aforesaid.errors import AforesaidError, InvalidInput, shown
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.conversations import CHANNELS
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.search.queries import first_moment, last_moment, local_zone
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.events import timed

log = logging.getLogger("aforesaid.tools")

Provider = Literal["anthropic", "openai_chat", "openai_responses", "gemini", "bedrock", "plain", "mcp"]

Arguments = dict[str, Any]
Run = Callable[..., Awaitable[str]]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(CheckedFields, frozen=True, kw_only=True):
    """A tool with its description and JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of an object. `required`, `type`, `enum`, `minimum` and `maximum` are validated. Arguments
    outside `properties` are refused unless `additionalProperties` allows them.
    """
    run: Run
    """Called with the arguments as keywords; returns text."""
    timeout: float | None = None
    """Seconds that a call may take. None uses the `within` of `dispatch`."""
    in_turn: "Callable[[Source], Run] | None" = None
    """Returns the `run` function for one turn, for a tool that needs the turn's source."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a call: an answer, or an error text for the model."""

    text: str
    is_error: bool = False


@validated
class ToolRegistry:
    """Tools by name."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool. Names are unique."""
        if not _NAME.fullmatch(tool.name):
            raise InvalidInput(
                f"a tool's name must be 1 to 64 letters, digits, _ or -; got {shown(tool.name)}",
                field="name",
                value=tool.name,
            )
        if tool.name in self._tools:
            raise InvalidInput(f"the tool {tool.name} is already registered", field="name", value=tool.name)
        self._tools[tool.name] = tool

    def in_turn(self, source: Source) -> "ToolRegistry":
        """Return these tools for one turn, with `in_turn` applied."""
        if not any(tool.in_turn for tool in self):
            return self
        bound = [replace(tool, run=tool.in_turn(source)) if tool.in_turn else tool for tool in self]
        return ToolRegistry(bound)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def definitions(self, provider: Provider | str) -> list[dict[str, Any]]:
        """Return the tools in the format of a provider or of MCP."""
        if provider not in _FORMATS:
            raise InvalidInput.not_in("provider", provider, _FORMATS)
        return [_FORMATS[provider](tool) for tool in self]

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, within: float | None = None
    ) -> Outcome:
        """Run a tool with arguments as an object or JSON text. Errors become an `Outcome`.

        `within` is the timeout in seconds for tools without their own; None waits indefinitely.
        """
        tool = self._tools.get(name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return Outcome(text=f"there is no tool {shown(name)}; there are: {names}", is_error=True)
        seconds = telemetry.histogram("aforesaid_tool_seconds", tool=name)
        with timed("tool", seconds, tool_name=name) as timing:
            outcome = await self._dispatch(tool, arguments, within if tool.timeout is None else tool.timeout)
            timing.note(tool_failed=outcome.is_error)
        if outcome.is_error:
            telemetry.counter("aforesaid_tool_errors_total", tool=name).add()
        return outcome

    async def _dispatch(
        self, tool: Tool, arguments: Mapping[str, Any] | str | None, seconds: float | None
    ) -> Outcome:
        try:
            return Outcome(text=await _run(tool, validate_arguments(tool, arguments), seconds))
        except AforesaidError as error:
            return Outcome(text=str(error), is_error=True)
        except Exception:  # a plug-in may raise anything; the model gets a short error, the log the details
            log.exception("tool %s failed", tool.name)
            return Outcome(text=f"{tool.name} failed", is_error=True)

    async def answer(self, call: ToolCall, dialect: str, *, within: float | None = None) -> Message:
        """Run a model's tool call and return the result as a message in its dialect."""
        outcome = await self.dispatch(call.name, call.arguments, within=within)
        return tool_result(
            dialect, call_id=call.id, name=call.name, text=outcome.text, is_error=outcome.is_error
        )


async def _run(tool: Tool, arguments: Arguments, seconds: float | None) -> str:
    """Return the tool's answer. On timeout, abandon the task even if it ignores cancellation."""
    task = asyncio.ensure_future(tool.run(**arguments))
    try:
        # Not `wait_for`, which waits for a task that ignores its cancellation.
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            # A tool that ignores cancellation goes on; its late error must be retrieved and logged.
            task.add_done_callback(_log_late_failure)
    if not task.done():
        log.warning("tool %s timed out after %g s", tool.name, seconds)
        raise AforesaidError(f"{tool.name} timed out after {seconds:g} seconds")
    if task.cancelled():  # the tool cancelled itself; the turn goes on
        raise AforesaidError(f"{tool.name} was cancelled")
    return _as_text(tool, task.result())


def _as_text(tool: Tool, answer: object) -> str:
    if not isinstance(answer, str):
        raise InvalidInput(f"{tool.name} must return text; got {shown(answer)}", value=answer)
    return answer


def _log_late_failure(task: "asyncio.Future[str]") -> None:
    """Log the error of an abandoned task, so that asyncio does not report it as never retrieved."""
    if not task.cancelled() and task.exception() is not None:
        log.warning("an abandoned tool failed", exc_info=task.exception())


def _anthropic(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _openai_chat(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _openai_responses(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _plain(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _gemini(tool: Tool) -> dict[str, Any]:
    return {"functionDeclarations": [_declaration(tool)]}


def _declaration(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


def _bedrock(tool: Tool) -> dict[str, Any]:
    schema = {"json": tool.parameters}
    return {"toolSpec": {"name": tool.name, "description": tool.description, "inputSchema": schema}}


def _mcp(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}


_FORMATS: dict[str, Callable[[Tool], dict[str, Any]]] = {
    "anthropic": _anthropic,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "plain": _plain,
    "mcp": _mcp,
}


# Arguments


def validate_arguments(tool: Tool, arguments: Mapping[str, Any] | str | None) -> Arguments:
    """Return the validated arguments, or raise an error that a model can act on."""
    arguments = _as_object(arguments)
    schemas = _schemas_of(tool, arguments)
    # Models write null for omitted arguments. Null is a value only if the schema allows it.
    present = {
        name: value for name, value in arguments.items() if value is not None or _takes_null(schemas[name])
    }
    missing = [name for name in tool.parameters.get("required", ()) if name not in present]
    if missing:
        raise InvalidInput(f"{tool.name} needs {', '.join(missing)}")
    return {name: _validate_one(name, value, schemas[name]) for name, value in present.items()}


def _schemas_of(tool: Tool, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each argument. Arguments without one need `additionalProperties`."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    others = tool.parameters.get("additionalProperties", False)
    unknown = sorted(set(names) - set(properties))
    if unknown and others is False:
        raise InvalidInput(f"{tool.name} takes no {', '.join(unknown)}; it takes: {', '.join(properties)}")
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


# The history tool

_HISTORY = """\
Search all earlier conversations with this user. Returns quotations with speaker, time and conversation. \
Use it when the user refers to something that is not in the current conversation. Leave `query` empty for \
the latest messages, for example of one day."""

_HISTORY_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Keywords or a question. May contain names and dates.",
        },
        "max_results": {"type": "integer", "minimum": 1, "maximum": 20, "description": "Default: 5."},
        "role": {
            "type": "string",
            "enum": ["user", "assistant", "tool"],
            "description": "Only messages of this role.",
        },
        "date_from": {"type": "string", "description": "Not before this day or moment, ISO 8601."},
        "date_to": {"type": "string", "description": "Not after this day or moment, ISO 8601."},
        "tag": {"type": "string", "description": "Only messages or conversations with this tag."},
        "channel": {"type": "string", "description": f"Such as {', '.join(CHANNELS)}."},
    },
    "additionalProperties": False,
}


@validated
def history_tool(
    manager: ManagerProtocol, *, max_tokens: int | None = None, timezone: tzinfo | None = None
) -> Tool:
    """Return `search_history` for the manager's owner. Dates are in `timezone`, by default this machine's."""
    zone = local_zone(timezone)

    async def search_history(
        query: str = "", date_from: str | None = None, date_to: str | None = None, **others: Any
    ) -> str:
        snippets = await manager.search_history(
            query,
            date_from=first_moment(date_from, field="date_from", zone=zone),
            date_to=last_moment(date_to, field="date_to", zone=zone),
            max_tokens=max_tokens,
            timezone=zone,
            **others,
        )
        return "\n\n".join(snippets) or "No results."

    return Tool(
        name="search_history", description=_HISTORY, parameters=_HISTORY_PARAMETERS, run=search_history
    )


@validated
def history_tools(manager: ManagerProtocol, *, timezone: tzinfo | None = None) -> ToolRegistry:
    """Return a registry with `search_history`, bound to the manager's owner."""
    return ToolRegistry([history_tool(manager, timezone=timezone)])
