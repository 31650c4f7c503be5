"""Render a context as a provider request, or refuse.

A window is a valid request with two exceptions. First, the filters pass no message, or the conversation
has none; the report says so. Second, the provider rejects blank messages, and without them no message
remains to be answered; only the rendered request shows that.

A request is a dict of the keyword arguments of the SDK's call. The types describe its keys; the values of the
keys are typed as the SDKs accept them without importing the SDKs.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import TokenCounter
from aforesaid.dialects import DialectName, Request, is_from_model, with_bytes, write
from aforesaid.errors import InvalidInput, NothingToSend, shown
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.tokens import count_system, count_tools
from aforesaid.windows.policies import WindowPolicy

log = logging.getLogger("aforesaid.windows")

BLANK = "the newest message is blank"


class RequestOptions(TypedDict, total=False):
    """The options of a request, besides its dialect and model.

    - `system`: the assistant's instructions. They are not stored.
    - `tools`: tool definitions in the provider's format.
    - `tool_choice`: `auto`, `none`, `any` (the model must call a tool), or the name of a tool to call.
    - `policy`: limits of the window. By default the budget follows from the model.
    - `agent_name`: include only this agent's messages and the user's.
    """

    system: str | None
    tools: Sequence[Mapping[str, object]]
    tool_choice: str | None
    policy: WindowPolicy | None
    agent_name: str | None


class MessagesRequest(TypedDict):
    """Arguments of OpenAI's `chat.completions.create`; also the form of plain requests."""

    messages: list[Any]
    tools: NotRequired[list[Any]]
    tool_choice: NotRequired[Any]


class MessagesModelRequest(MessagesRequest):
    """The same with the model."""

    model: str


class AnthropicRequest(TypedDict):
    """Arguments of Anthropic's `messages.create`."""

    messages: list[Any]
    system: NotRequired[str | list[Any]]
    tools: NotRequired[list[Any]]
    tool_choice: NotRequired[Any]


class AnthropicModelRequest(AnthropicRequest):
    """The same with the model."""

    model: str


class ResponsesRequest(TypedDict):
    """Arguments of OpenAI's `responses.create`."""

    input: list[Any]
    tools: NotRequired[list[Any]]
    tool_choice: NotRequired[Any]


class ResponsesModelRequest(ResponsesRequest):
    """The same with the model."""

    model: str


class GeminiRequest(TypedDict):
    """Arguments of Gemini's `models.generate_content`."""

    contents: list[Any]
    config: NotRequired[dict[str, Any]]


class GeminiModelRequest(GeminiRequest):
    """The same with the model."""

    model: str


class BedrockRequest(TypedDict):
    """Arguments of boto3's `converse`."""

    messages: list[Any]
    system: NotRequired[list[Any]]
    toolConfig: NotRequired[dict[str, Any]]


class BedrockModelRequest(BedrockRequest):
    """The same with the model."""

    modelId: str


class RequestParts(Struct, frozen=True, kw_only=True):
    """The parts of a request that are not in the log: instructions, tools and the model's name."""

    system: str | None = None
    tools: Sequence[Mapping[str, object]] = ()
    model: str | None = None
    tool_choice: str | None = None

    def __post_init__(self) -> None:
        for field in ("system", "model", "tool_choice"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise InvalidInput(f"{field} must be text; got {shown(value)}", field=field, value=value)
        if isinstance(self.tools, str | Mapping) or not all(isinstance(each, Mapping) for each in self.tools):
            raise InvalidInput(f"tools must be a list of definitions; got {shown(self.tools)}", field="tools")
        if self.tool_choice is not None:
            from aforesaid.windows.tool_choice import check_choice

            check_choice(self.tool_choice, self.tools)

    def reserved_in(
        self, policy: WindowPolicy, counter: TokenCounter, dialect: str | None = None
    ) -> WindowPolicy:
        """Return the policy with the tokens of the instructions and tools subtracted from the budget, and of
        what the model's provider adds to them.
        """
        if policy.max_tokens is None:
            return policy
        forced = self.tool_choice not in (None, "auto", "none")
        tools = count_tools(counter, self.tools, model=self.model, dialect=dialect, forced=forced)
        return replace(
            policy,
            prompt_tokens=policy.prompt_tokens + count_system(counter, self.system),
            tools_tokens=policy.tools_tokens + tools,
        )

    def arguments(
        self, context: Context, dialect: DialectName, *, cache_marks: bool = False
    ) -> dict[str, Any]:
        """Return the whole request. Raise `NothingToSend` without a question."""
        if self.system is not None:
            instructions = Message(role="system", content=self.system)
            stable = replace(context.report, stable_prefix=context.report.stable_prefix + 1)
            context = Context(messages=(instructions, *context.messages), report=stable)
        request = write_request(context, dialect, cache_marks=cache_marks)
        arguments = _ARGUMENTS.get(dialect, _arguments)(self, request)
        if self.tool_choice is None:
            return arguments
        from aforesaid.windows.tool_choice import with_choice

        return with_choice(arguments, self.tool_choice, dialect)


def _arguments(parts: RequestParts, request: Request, messages: str = "messages") -> dict[str, Any]:
    arguments: dict[str, Any] = {} if parts.model is None else {"model": parts.model}
    if request.system is not None:
        arguments["system"] = request.system
    arguments[messages] = request.messages
    if parts.tools:
        arguments["tools"] = list(parts.tools)
    return arguments


def _responses_arguments(parts: RequestParts, request: Request) -> dict[str, Any]:
    return _arguments(parts, request, "input")


def _gemini_arguments(parts: RequestParts, request: Request) -> dict[str, Any]:
    # The SDK takes instructions and tools in its config, and media as bytes.
    config: dict[str, Any] = {} if request.system is None else {"system_instruction": request.system}
    if parts.tools:
        config["tools"] = list(parts.tools)
    arguments: dict[str, Any] = {} if parts.model is None else {"model": parts.model}
    arguments["contents"] = with_bytes(request.messages)
    return arguments | ({"config": config} if config else {})


def _bedrock_arguments(parts: RequestParts, request: Request) -> dict[str, Any]:
    arguments: dict[str, Any] = {} if parts.model is None else {"modelId": parts.model}
    if request.system is not None:
        arguments["system"] = request.system
    arguments["messages"] = with_bytes(request.messages)
    # Bedrock refuses messages with tool calls in a request without tools.
    if tools := list(parts.tools) or _past_tools(request.messages):
        arguments["toolConfig"] = {"tools": tools}
    return arguments


def _past_tools(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return definitions of the tools that the messages call."""
    uses = [block["toolUse"] for message in messages for block in message["content"] if "toolUse" in block]
    rest = {"description": "This tool is no longer available.", "inputSchema": {"json": {"type": "object"}}}
    names = dict.fromkeys(use["name"] for use in uses)
    return [{"toolSpec": {"name": name, **rest}} for name in names]


_ARGUMENTS: Mapping[str, Callable[[RequestParts, Request], dict[str, Any]]] = {
    "openai_responses": _responses_arguments,
    "gemini": _gemini_arguments,
    "bedrock": _bedrock_arguments,
}


def write_request(context: Context, dialect: str, *, cache_marks: bool = False) -> Request:
    """Render the context in this dialect. Raises `NothingToSend` when it contains no question.

    `cache_marks`: mark the stable prefix for the provider's prompt cache.

    A request ends with an assistant message only if the context does; the model then continues that
    message.
    """
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    request = write(context.messages, dialect)
    if not _has_question(request.messages, context.messages):
        raise NothingToSend(BLANK)
    if cache_marks:
        from aforesaid.windows.cache_marks import with_cache_marks

        request = with_cache_marks(request, context, dialect)
    if request.repaired:
        log.info("request in dialect %s repaired: %s", dialect, "; ".join(request.repaired))
    return request


def _has_question(documents: Sequence[dict[str, Any]], messages: Sequence[Message]) -> bool:
    # A request whose last message is the assistant's asks the model to continue that message.
    last = next(
        (each for each in reversed(documents) if each.get("role") not in ("system", "developer")), None
    )
    if last is None:
        return False
    return not is_from_model(last) or _last_role(messages) == "assistant"


def _last_role(messages: Sequence[Message]) -> str | None:
    return next((message.role for message in reversed(messages) if message.role != "system"), None)
