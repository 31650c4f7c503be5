"""Tools for models: registered once, described for each provider, run with validated arguments.

A tool is bound to its owner when it is created. No argument that a model writes can reach another owner's
data.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from datetime import tzinfo
from functools import partial
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.agents.tool_schemas import Arguments, ArgumentTypes, checked_arguments
from aforesaid.contracts import Entry
from aforesaid.dialects import DialectName, ToolCall, form_of, tool_result
from aforesaid.errors import AforesaidError, InvalidInput, InvalidSetting, shown
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.conversations import CHANNELS
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.search.analysis import searchable_text
from aforesaid.search.passages import PASSAGE, excerpt, speaker_of
from aforesaid.search.queries import first_moment, last_moment, local_zone
from aforesaid.telemetry import telemetry
from aforesaid.telemetry.events import timed

log = logging.getLogger("aforesaid.tools")

Provider = Literal[DialectName, "mcp"]

Run = Callable[..., Awaitable[Any]]
OnRun = Callable[[str], None]
"""Called with the name of a tool with effects before it runs."""

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
    """Called with the arguments as keywords; returns text, or JSON such as a dict."""
    timeout: float | None = None
    """Seconds that a call may take. None uses the `within` of `dispatch`."""
    in_turn: "Callable[[Source], Run] | None" = None
    """Returns the `run` function for one turn, for a tool that needs the turn's source."""
    repeatable: bool = False
    """Whether running it again changes nothing, as for a search. Any other tool has effects: a turn in which
    it ran is stored even if the turn fails.
    """


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a call: an answer, or an error text for the model."""

    text: str
    is_error: bool = False


@validated
class ToolRegistry:
    """Tools by name. A plain function is a tool, too (see `tool_from`)."""

    def __init__(self, tools: "Sequence[ToolSource]" = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._on_run: OnRun | None = None
        for tool in tools:
            self.register(tool)

    def register(self, tool: "ToolSource") -> None:
        """Add a tool or a function. Names are unique."""
        tool = tool if isinstance(tool, Tool) else tool_from(tool)
        if not _NAME.fullmatch(tool.name):
            raise InvalidInput(
                f"a tool's name must be 1 to 64 letters, digits, _ or -; got {shown(tool.name)}",
                field="name",
                value=tool.name,
            )
        if tool.name in self._tools:
            raise InvalidInput(f"the tool {tool.name} is already registered", field="name", value=tool.name)
        self._tools[tool.name] = tool

    def in_turn(self, source: Source, *, on_run: OnRun | None = None) -> "ToolRegistry":
        """Return these tools for one turn, with `in_turn` applied. `on_run` is called before a tool with
        effects runs.
        """
        bound = copy(self)
        bound._on_run = on_run
        if any(tool.in_turn for tool in self):
            bound._tools = {
                tool.name: replace(tool, run=tool.in_turn(source)) if tool.in_turn else tool for tool in self
            }
        return bound

    def has_effects(self, name: str) -> bool:
        """Return whether there is such a tool and running it again may change something."""
        tool = self._tools.get(name)
        return tool is not None and not tool.repeatable

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def definitions(self, provider: Provider | str) -> list[dict[str, Any]]:
        """Return the tools in the format of a provider or of MCP."""
        format_ = _FORMATS.get(form_of(provider))
        if format_ is None:
            raise InvalidInput.not_in("provider", provider, get_args(Provider))
        return [format_(tool) for tool in self]

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
        failures = telemetry.counter("aforesaid_tool_errors_total", tool=name)
        with timed("tool", seconds, tool_name=name) as timing:
            outcome = await self._dispatch(tool, arguments, within if tool.timeout is None else tool.timeout)
            timing.note(tool_failed=outcome.is_error)
        if outcome.is_error:
            failures.add()
        return outcome

    async def _dispatch(
        self, tool: Tool, arguments: Mapping[str, Any] | str | None, seconds: float | None
    ) -> Outcome:
        try:
            checked = validate_arguments(tool, arguments)
            if self._on_run is not None and not tool.repeatable:
                self._on_run(tool.name)
            return Outcome(text=await _run(tool, checked, seconds))
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
    """Return a tool's answer as text: text unchanged, anything else as JSON."""
    if isinstance(answer, str):
        return answer
    try:
        return msgspec.json.encode(answer).decode()
    except (TypeError, ValueError, RecursionError):
        problem = f"{tool.name} must return text or JSON; got {shown(answer)}"
    raise InvalidInput(problem, value=answer)


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


def validate_arguments(tool: Tool, arguments: Mapping[str, Any] | str | None) -> Arguments:
    """Return the validated arguments, or raise an error that a model can act on."""
    return checked_arguments(tool.name, tool.parameters, arguments)


# Functions as tools

ToolSource = Tool | Callable[..., Any]
"""A tool, or a function that `tool_from` makes one of."""


@validated
def tool_from(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    repeatable: bool = False,
    timeout: float | None = None,
) -> Tool:
    """Return a function as a tool.

    Name, description and JSON schema come from its name, docstring and annotations; `Annotated[int, "…"]`
    describes an argument. Arguments are converted to the annotated types. A function that is not async runs
    on a thread. It returns text, or JSON such as a dict.
    """
    if not callable(function):
        raise InvalidSetting(f"a tool must be a Tool or a function; got {shown(function)}", field="tools")
    own_name = name or str(getattr(function, "__name__", type(function).__name__))
    if not (about := (inspect.getdoc(function) or "").strip()) and description is None:
        raise InvalidSetting(f"the tool {own_name} needs a docstring or a description", field="tools")
    signature = ArgumentTypes(own_name, function)

    async def run(**arguments: Any) -> Any:
        given = signature.converted(arguments)
        if inspect.iscoroutinefunction(function):
            return await function(**given)
        return await asyncio.to_thread(function, **given)

    return Tool(
        name=own_name,
        description=about if description is None else description,
        parameters=signature.schema,
        run=run,
        repeatable=repeatable,
        timeout=timeout,
    )


def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    repeatable: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]:
    """Decorate a function to make it a tool (see `tool_from`): `@tool(repeatable=True)`."""
    return partial(tool_from, name=name, description=description, repeatable=repeatable, timeout=timeout)


# The history tool

_HISTORY = """\
Search all earlier conversations with this user. Returns quotations with speaker, time, conversation and \
message number. Use it when the user refers to something that is not in the current conversation. Leave \
`query` empty for the latest messages, for example of one day. Pass `conversation_id` and `message` of a \
quotation to read the messages around it."""

# Tokens of a result of `search_history`, unless the caller sets another limit.
HISTORY_TOKENS = 2_000
# Messages before and after one that is opened.
_AROUND = 3

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
        "min_relevance": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "Least relevance of a quotation. Default: 0.2; 0 returns every match.",
        },
        "channel": {"type": "string", "description": f"Such as {', '.join(CHANNELS)}."},
        "conversation_id": {"type": "string", "description": "The conversation of a quotation to open."},
        "message": {"type": "integer", "minimum": 1, "description": "The message number of that quotation."},
    },
    "additionalProperties": False,
}


@validated
def history_tool(
    manager: ManagerProtocol, *, max_tokens: int | None = None, timezone: tzinfo | None = None
) -> Tool:
    """Return `search_history` for the manager's owner. Dates are in `timezone`, by default this machine's.

    `max_tokens` limits a result; the default is `HISTORY_TOKENS`.
    """
    zone = local_zone(timezone)

    async def search_history(
        query: str = "",
        date_from: str | None = None,
        date_to: str | None = None,
        conversation_id: str | None = None,
        message: int | None = None,
        **others: Any,
    ) -> str:
        if conversation_id is not None or message is not None:
            return await _read_around(manager, conversation_id, message, zone)
        found = await manager.search(
            query,
            date_from=first_moment(date_from, field="date_from", zone=zone),
            date_to=last_moment(date_to, field="date_to", zone=zone),
            max_tokens=max_tokens or HISTORY_TOKENS,
            timezone=zone,
            **others,
        )
        return found.to_text(asked=bool(query.strip()))

    return Tool(
        name="search_history",
        description=_HISTORY,
        parameters=_HISTORY_PARAMETERS,
        run=search_history,
        repeatable=True,
    )


async def _read_around(
    manager: ManagerProtocol, conversation_id: str | None, message: int | None, zone: tzinfo
) -> str:
    """Return a message and its neighbours as text. Raise `InvalidInput` if there is no such message."""
    if conversation_id is None or message is None:
        raise InvalidInput("conversation_id and message belong together", field="message", value=message)
    # Where it is, unless messages before it were removed.
    entries = await manager.entries(conversation_id, 2 * _AROUND + 1, max(0, message - 1 - _AROUND))
    if all(one.sequence != message for one in entries):
        record = await manager.get_conversation(conversation_id)
        entries = await manager.entries(conversation_id, max(1, record.message_count), 0)
    at = next((at for at, one in enumerate(entries) if one.sequence == message), None)
    if at is None:
        raise InvalidInput(
            f"conversation {conversation_id} has no message {message}", field="message", value=message
        )
    return "\n".join(_quoted(one, zone) for one in entries[max(0, at - _AROUND) : at + _AROUND + 1])


def _quoted(entry: Entry, zone: tzinfo) -> str:
    said = entry.message
    when = "" if said.timestamp is None else f" · {said.timestamp.astimezone(zone):%Y-%m-%d %H:%M:%S}"
    text = excerpt(searchable_text(said), (), size=PASSAGE) if entry.unreadable is None else entry.unreadable
    return f"[message {entry.sequence}{when}] {speaker_of(said)}: {text}"


@validated
def history_tools(manager: ManagerProtocol, *, timezone: tzinfo | None = None) -> ToolRegistry:
    """Return a registry with `search_history`, bound to the manager's owner."""
    return ToolRegistry([history_tool(manager, timezone=timezone)])
