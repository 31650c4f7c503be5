"""Tools that a model may call: registered once, described to every provider, run with checked arguments.

A tool is bound to its owner when it is made, never by an argument: what a model writes into a call cannot
reach somebody else's conversations. Below: the manager. Above: agents, surfaces.
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
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import VALUE_SETS
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.search.queries import first_moment, last_moment, local_zone
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.timing import timed

log = logging.getLogger("aforesaid.tools")

Provider = Literal["anthropic", "openai_chat", "openai_responses", "plain", "mcp"]

Arguments = dict[str, Any]
Run = Callable[..., Awaitable[str]]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(CheckedFields, frozen=True, kw_only=True):
    """A tool: what it is called, what it is for, what it takes, and what it does."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of an object. `required`, `type`, `enum`, `minimum` and `maximum` are checked. Names that
    are not among its `properties` are refused, unless `additionalProperties` allows them."""
    run: Run
    """Called with the arguments by keyword; answers with text."""
    timeout: float | None = None
    """Seconds that it may take. None: what the caller of `dispatch` says."""
    in_turn: "Callable[[Source], Run] | None" = None
    """Gives what it does in a turn of a conversation, where it wants to know in which."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a call came to: an answer, or words that tell the model what was wrong."""

    text: str
    is_error: bool = False


@validated
class ToolRegistry:
    """Tools by their names."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool. A name is given once."""
        if not _NAME.fullmatch(tool.name):
            raise InvalidInput(
                f"a tool's name is made of up to 64 letters, digits, _ and -; got {shown(tool.name)}",
                field="name",
                value=tool.name,
            )
        if tool.name in self._tools:
            raise InvalidInput(f"there is a tool {tool.name} already", field="name", value=tool.name)
        self._tools[tool.name] = tool

    def in_turn(self, source: Source) -> "ToolRegistry":
        """These tools for one turn: those that want to know are told which message it begins with."""
        if not any(tool.in_turn for tool in self):
            return self
        describe = [replace(tool, run=tool.in_turn(source)) if tool.in_turn else tool for tool in self]
        return ToolRegistry(describe)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def definitions(self, provider: Provider | str) -> list[dict[str, Any]]:
        """The tools as a provider, or an MCP client, wants them described."""
        if provider not in _DESCRIBED:
            raise InvalidInput.not_in("provider", provider, _DESCRIBED)
        return [_DESCRIBED[provider](tool) for tool in self]

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, within: float | None = None
    ) -> Outcome:
        """Run a tool with the arguments of a call, an object or its JSON. What goes wrong is the outcome.

        `within`: seconds for a tool that names none itself; None waits as long as it takes.
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
            return Outcome(text=await _run(tool, checked(tool, arguments), seconds))
        except AforesaidError as error:
            return Outcome(text=str(error), is_error=True)
        except Exception:  # the edge: a model is told that the tool failed, the log says how
            log.exception("tool %s failed", tool.name)
            return Outcome(text=f"{tool.name} failed", is_error=True)

    async def answer(self, call: ToolCall, dialect: str, *, within: float | None = None) -> Message:
        """Run what a model called; the result is a message in its dialect."""
        outcome = await self.dispatch(call.name, call.arguments, within=within)
        return tool_result(
            dialect, call_id=call.id, name=call.name, text=outcome.text, is_error=outcome.is_error
        )


async def _run(tool: Tool, given: Arguments, seconds: float | None) -> str:
    """What the tool answers, if it does in time. One that will not even be cancelled is left behind."""
    task = asyncio.ensure_future(tool.run(**given))
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_let_go)
    if not task.done():
        log.warning("tool %s took longer than %g s and was given up", tool.name, seconds)
        raise AforesaidError(f"{tool.name} took longer than {seconds:g} seconds and was given up")
    if task.cancelled():  # by itself: this is no cancellation of ours
        raise AforesaidError(f"{tool.name} was cancelled")
    return _as_text(tool, task.result())


def _as_text(tool: Tool, answer: object) -> str:
    if not isinstance(answer, str):
        raise InvalidInput(f"{tool.name} must answer with text; got {shown(answer)}", value=answer)
    return answer


def _let_go(task: "asyncio.Future[str]") -> None:
    """Whatever comes of a tool that nobody waits for any more."""
    if not task.cancelled() and task.exception() is not None:
        log.warning("a tool that was given up failed later", exc_info=task.exception())


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


def _mcp(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}


_DESCRIBED: dict[str, Callable[[Tool], dict[str, Any]]] = {
    "anthropic": _anthropic,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "plain": _plain,
    "mcp": _mcp,
}


# Arguments


def checked(tool: Tool, arguments: Mapping[str, Any] | str | None) -> Arguments:
    """The arguments as the tool's schema has them, or an error that a model can act on."""
    given = _as_object(arguments)
    schemas = _schemas_of(tool, given)
    # Models write null for what they leave out: it is a value only where the schema says so.
    meant = {name: value for name, value in given.items() if value is not None or _takes_null(schemas[name])}
    missing = [name for name in tool.parameters.get("required", ()) if name not in meant]
    if missing:
        raise InvalidInput(f"{tool.name} needs {', '.join(missing)}")
    return {name: _checked_one(name, value, schemas[name]) for name, value in meant.items()}


def _schemas_of(tool: Tool, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """What the tool says of each of these arguments. One that it does not name must be allowed expressly."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    others = tool.parameters.get("additionalProperties", False)
    unknown = sorted(set(names) - set(properties))
    if unknown and others is False:
        raise InvalidInput(f"{tool.name} takes no {', '.join(unknown)}; it takes: {', '.join(properties)}")
    said = {name: properties.get(name, others) for name in names}
    # `true` is a schema too: anything will do.
    return {name: schema if isinstance(schema, Mapping) else {} for name, schema in said.items()}


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


def _checked_one(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if value is None:
        return None  # it came this far where it may be
    kinds = _kinds(schema)
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one kind of number
    if kinds and not any(_is_a(kind, value) for kind in kinds):
        raise InvalidInput(
            f"{name} must be of type {' or '.join(kinds)}; got {shown(value)}", field=name, value=value
        )
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidInput.not_in(name, value, schema["enum"])
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    if _is_a("number", value) and not low <= value <= high:
        raise InvalidInput(f"{name} must lie in {low} to {high}; got {value}", field=name, value=value)
    return value


def _kinds(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The types that a schema allows: one, or a list of them; none where it leaves that open."""
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _is_a(kind: str, value: Any) -> bool:
    if kind not in _TYPES:
        return True  # what no JSON schema knows, the tool itself may
    return isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)


def _takes_null(schema: Mapping[str, Any]) -> bool:
    choices = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    return "null" in _kinds(schema) or any(_takes_null(choice) for choice in choices)


# The history tool

_HISTORY = """\
Search everything that was said in earlier conversations with this user. Returns quotations with who said \
it, when, and in which conversation. Use it when the user refers to something that is not in the present \
conversation. Leave `query` empty to see the latest messages, for instance of a certain day."""

_HISTORY_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "What to look for, as words or as a question. Names and dates in it count.",
        },
        "max_results": {"type": "integer", "minimum": 1, "maximum": 20, "description": "Default: 5."},
        "role": {
            "type": "string",
            "enum": ["user", "assistant", "tool"],
            "description": "Only what the user said, or the assistant, or a tool.",
        },
        "date_from": {"type": "string", "description": "Not before this day or moment, ISO 8601."},
        "date_to": {"type": "string", "description": "Not after this day or moment, ISO 8601."},
        "tag": {"type": "string", "description": "Only messages or conversations with this tag."},
        "channel": {"type": "string", "enum": list(VALUE_SETS["channel"])},
    },
    "additionalProperties": False,
}


@validated
def history_tool(
    manager: ConversationManager, *, max_tokens: int | None = None, timezone: tzinfo | None = None
) -> Tool:
    """`search_history` for one owner: the manager's. Days are those of `timezone`, or of this machine."""
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
        return "\n\n".join(snippets) or "Nothing was found."

    return Tool(
        name="search_history", description=_HISTORY, parameters=_HISTORY_PARAMETERS, run=search_history
    )


@validated
def history_tools(manager: ConversationManager, *, timezone: tzinfo | None = None) -> ToolRegistry:
    """A registry with `search_history` in it, bound to the manager's owner."""
    return ToolRegistry([history_tool(manager, timezone=timezone)])
