"""Validate a provider's response and convert it to a reply."""

import json
from typing import Any

from aforesaid.contracts import Reply, Stop, Usage
from aforesaid.dialects import meaning_of, read
from aforesaid.errors import AgentRefused, AgentUnavailable, InvalidMessage
from aforesaid.model.messages import Message

UNREADABLE = "unreadable_arguments"
ENDED_EARLY = "the response ended early"


def build_reply(content: Any, *, dialect: str, provider: str, stop: Stop, usage: Usage | None) -> Reply:
    """Return the reply with the provider's messages unchanged. Raise `AgentUnavailable` when it is empty."""
    messages = _read(content, dialect, provider)
    meanings = [meaning_of(message) for message in messages]
    calls = any(meaning.calls for meaning in meanings)
    if not calls and stop != "pause" and not any(meaning.text.strip() for meaning in meanings):
        raise AgentUnavailable(f"{provider}: the response is empty")
    if calls and stop == "end":
        stop = "tools"  # some servers report "stop" for a reply with tool calls
    return Reply(messages=messages, stop=stop, usage=usage)


def _read(content: Any, dialect: str, provider: str) -> tuple[Message, ...]:
    try:
        return tuple(_with_valid_arguments(message) for message in read(content, dialect=dialect))
    except InvalidMessage as error:
        problem = f"{provider}: the response cannot be parsed: {error}"
    raise AgentUnavailable(problem)


def _with_valid_arguments(message: Message) -> Message:
    """Return the message with malformed call arguments wrapped as JSON.

    Models that reach their output limit, and small models, write malformed arguments. Servers reject them
    when they are sent back. Wrapped, the tool reports them as unknown and the model can correct them.
    """
    extra = message.extra
    match extra:
        case {"type": "function_call", "arguments": str(text)} if as_json_object(text) != text:
            return message.with_(extra=extra | {"arguments": as_json_object(text)})
        case {"tool_calls": [*calls]} if [_with_json_arguments(call) for call in calls] != calls:
            return message.with_(extra=extra | {"tool_calls": [_with_json_arguments(call) for call in calls]})
    return message


def _with_json_arguments(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(text), **rest}}:
            return {**call, "function": {**rest, "arguments": as_json_object(text)}}
    return call


def as_json_object(arguments: str) -> str:
    """Return call arguments unchanged if they are empty or a JSON object, else wrapped in one."""
    try:
        is_object = not arguments.strip() or isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments if is_object else json.dumps({UNREADABLE: arguments})


def list_field(response: Any, field: str, provider: str) -> list[Any]:
    """Return a list field of a response. SDKs return an HTML page as text, which raises
    `AgentUnavailable`.
    """
    found = getattr(response, field, None)
    if not isinstance(found, list):
        raise AgentUnavailable(f"{provider}: the response has an unexpected format")
    return found


def refusal_error(provider: str, words: str | None = None) -> AgentRefused:
    """Return the error for a refusal, with the model's text if there is one."""
    text = (words or "").strip()
    return AgentRefused(f"{provider}: {text or 'the model refused to answer'}", words=text)


def usage_of(usage: Any, *inputs: str, output: str) -> Usage | None:
    """Return the token counts in these fields, or None without usage."""
    if usage is None:
        return None
    return Usage(
        input_tokens=sum(_count_in(usage, field) for field in inputs), output_tokens=_count_in(usage, output)
    )


def _count_in(usage: Any, field: str) -> int:
    count = getattr(usage, field, None)
    return count if isinstance(count, int) else 0
