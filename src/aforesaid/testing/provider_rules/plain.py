"""Rules of the plain form: the minimum that keeps a conversation readable."""

from collections.abc import Iterator
from typing import Any

from aforesaid.testing.provider_rules.common import (
    Call,
    Messages,
    id_problems,
    role_problems,
    thread_problems,
)

_ROLES = ("user", "assistant", "system", "tool")


def problems(messages: Messages) -> Iterator[str]:
    # The four roles of a message.
    yield from role_problems(messages, _ROLES)
    for at, message in enumerate(messages):
        # A message has content or tool calls.
        if "content" not in message and not message.get("tool_calls"):
            yield f"message {at} has neither content nor tool calls"
        # A call names its tool.
        for call in _calls_of(message):
            if not isinstance(call, dict) or not isinstance(call.get("name"), str):
                yield f"message {at} has a tool call without a name"
    calls = [
        Call(call.get("id"), f"message {at}")
        for at, message in enumerate(messages)
        for call in _calls_of(message)
        if isinstance(call, dict)
    ]
    # A result finds its call by the id.
    yield from id_problems(calls)
    # Results follow their calls; a tool message without a call id may be anywhere.
    yield from thread_problems([message for message in messages if not _answers_no_call(message)])


def _calls_of(message: dict[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _answers_no_call(message: dict[str, Any]) -> bool:
    return message.get("role") == "tool" and "tool_call_id" not in message
