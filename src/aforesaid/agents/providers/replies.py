"""From what a provider sent to a reply, or an error when it is none. Below: dialects. Above: providers."""

import json
from typing import Any

from aforesaid.contracts import Reply, Stop, Usage
from aforesaid.dialects import meaning_of, read
from aforesaid.errors import AgentRefused, AgentUnavailable, InvalidMessage
from aforesaid.model.messages import Message

UNREADABLE = "unreadable_arguments"
BROKE_OFF = "the answer broke off before its end"


def whole_reply(said: Any, *, dialect: str, provider: str, stop: Stop, usage: Usage | None) -> Reply:
    """The reply with what was said, as it was given. Nothing said is no reply."""
    messages = _read(said, dialect, provider)
    meanings = [meaning_of(message) for message in messages]
    calls = any(meaning.calls for meaning in meanings)
    if not calls and stop != "pause" and not any(meaning.text.strip() for meaning in meanings):
        raise AgentUnavailable(f"{provider}: the answer is empty")
    if calls and stop == "end":
        stop = "tools"  # some servers say that they are done, and mean: with calling
    return Reply(messages=messages, stop=stop, usage=usage)


def _read(said: Any, dialect: str, provider: str) -> tuple[Message, ...]:
    try:
        return tuple(_with_readable_arguments(message) for message in read(said, dialect=dialect))
    except InvalidMessage as error:
        problem = f"{provider}: the answer cannot be read: {error}"
    raise AgentUnavailable(problem)


def _with_readable_arguments(message: Message) -> Message:
    """The message, with arguments of calls that are no JSON wrapped up as JSON.

    Models that run out of room, and small ones at any time, write such. Servers refuse to see them
    again; wrapped, the tool says that it takes no such thing, and the model can mend it.
    """
    extra = message.extra
    match extra:
        case {"type": "function_call", "arguments": str(text)} if readable(text) != text:
            return message.with_(extra=extra | {"arguments": readable(text)})
        case {"tool_calls": [*calls]} if [_readable_call(call) for call in calls] != calls:
            return message.with_(extra=extra | {"tool_calls": [_readable_call(call) for call in calls]})
    return message


def _readable_call(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(text), **rest}}:
            return {**call, "function": {**rest, "arguments": readable(text)}}
    return call


def readable(arguments: str) -> str:
    """Arguments of a call as JSON text of an object, or nothing at all."""
    try:
        is_object = not arguments.strip() or isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments if is_object else json.dumps({UNREADABLE: arguments})


def list_in(response: Any, field: str, provider: str) -> list[Any]:
    """The list that a reply has in this field. What has none is no reply: SDKs hand on any page as text."""
    found = getattr(response, field, None)
    if not isinstance(found, list):
        raise AgentUnavailable(f"{provider}: what came back is no reply")
    return found


def refused(provider: str, words: str | None = None) -> AgentRefused:
    """The model would not answer; its own words for it, if it had some."""
    said = (words or "").strip()
    return AgentRefused(f"{provider}: {said or 'the model refused to answer'}", words=said)


def usage_of(usage: Any, *inputs: str, output: str) -> Usage | None:
    """The counts in these fields of a provider's usage; None where it reports none."""
    if usage is None:
        return None
    return Usage(
        input_tokens=sum(_count_in(usage, field) for field in inputs), output_tokens=_count_in(usage, output)
    )


def _count_in(usage: Any, field: str) -> int:
    count = getattr(usage, field, None)
    return count if isinstance(count, int) else 0
