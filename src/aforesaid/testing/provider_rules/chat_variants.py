"""Rules of servers that implement OpenAI's chat API with differences.

Mistral's are those of its published validator for serving, with the ids of the older models. Azure's follow
from its error messages. Those of Ollama, vLLM and OpenRouter follow from their published types.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from aforesaid.testing.provider_rules import openai_chat
from aforesaid.testing.provider_rules.common import (
    Messages,
    block_problems,
    blocks_in,
    role_problems,
    thread_problems,
)

Fields = Mapping[str, Collection[str]]

_ROLES = ("system", "user", "assistant", "tool")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_REGULAR_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}", re.ASCII)


# Mistral

_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}", re.ASCII)
_MISTRAL_KINDS = {
    "system": ("text",),
    "user": ("text", "image_url", "document_url", "input_audio"),
    "assistant": ("text", "thinking"),
    "tool": ("text",),
}
_MISTRAL_FIELDS: Fields = {
    "system": (),
    "user": (),
    "assistant": ("tool_calls", "prefix"),
    "tool": ("tool_call_id", "name"),
}
_MISTRAL_AFTER = {
    "system": ("user", "assistant", "system"),
    "user": ("assistant", "system", "user"),
    "assistant": ("assistant", "user", "tool"),
    # Servers before version 1.9 of the validator refuse the user's message here.
    "tool": ("assistant", "tool"),
}


def mistral_problems(messages: Messages) -> Iterator[str]:
    yield from role_problems(messages, _ROLES)
    yield from _mistral_order(messages)
    for at, message in enumerate(messages):
        place, role = f"message {at}", str(message.get("role"))
        # The server refuses every field that its schema does not have.
        yield from _field_problems(message, _MISTRAL_FIELDS, place)
        yield from _part_problems(message, place, "document_name", "closed")
        yield from _mistral_content(message, role, place)
        for call in _calls_of(message):
            yield from _function_problems(call, place)
            yield from _mistral_id(call.get("id"), place)
        if role == "tool":
            yield from _mistral_id(message.get("tool_call_id"), place)
    yield from thread_problems(messages)


def _mistral_order(messages: Messages) -> Iterator[str]:
    for at, (before, message) in enumerate(pairwise(messages), start=1):
        if message.get("role") not in _MISTRAL_AFTER.get(str(before.get("role")), ()):
            yield f"message {at} has the role {message.get('role')!r} after {before.get('role')!r}"
        # Only the last answer is continued.
        if before.get("prefix"):
            yield f"message {at - 1} is a prefix and not the last message"
    if len(messages) == 1 and messages[0].get("role") not in ("user", "system"):
        yield "a single message must be the user's or the system's"
    if messages and messages[-1].get("role") == "assistant" and not messages[-1].get("prefix"):
        yield "the last message is an answer and not a prefix"


def _mistral_content(message: dict[str, Any], role: str, place: str) -> Iterator[str]:
    content = message.get("content")
    # An answer with calls may have an empty list of chunks.
    if content is None or content == "" or (role == "assistant" and content == []):
        if role == "assistant" and not message.get("tool_calls"):
            yield f"{place} has neither content nor calls"
        if role in ("system", "user", "tool") and content is None:
            yield f"{place} has no content"
        return
    yield from block_problems(content, place, _MISTRAL_KINDS.get(role))
    for block in blocks_in(content):
        # Thinking is a list of text; Anthropic's is text with a signature.
        if block.get("type") == "thinking" and not isinstance(block.get("thinking"), list):
            yield f"{place} has thinking that is not a list"
        if block.get("type") == "input_audio" and not isinstance(block.get("input_audio"), str):
            yield f"{place} has audio that is not base64 text"


def mistral_choice_problems(request: Mapping[str, Any]) -> Iterator[str]:
    # "any" is the mode of its API, "required" that of OpenAI's.
    yield from openai_chat.choice_problems(request, modes=(*openai_chat.MODES, "any"))


def _mistral_id(call_id: Any, place: str) -> Iterator[str]:
    if not isinstance(call_id, str) or not _MISTRAL_ID.fullmatch(call_id):
        yield f"{place} has a tool call id that is not nine letters and digits: {call_id!r:.60}"


# Ollama

_OLLAMA_FIELDS: Fields = {
    "system": (),
    "user": ("images",),
    "assistant": ("tool_calls", "thinking", "images"),
    "tool": ("tool_name",),
}


def ollama_problems(messages: Messages) -> Iterator[str]:
    yield from role_problems(messages, _ROLES)
    for at, message in enumerate(messages):
        place = f"message {at}"
        yield from _field_problems(message, _OLLAMA_FIELDS, place)
        # The server decodes content as text, images as base64 and arguments as an object.
        if not isinstance(message.get("content"), str):
            yield f"{place} has content that is not text"
        for image in message.get("images") or ():
            if not isinstance(image, str) or ":" in image:
                yield f"{place} has an image that is not base64 text"
        if not isinstance(message.get("thinking", ""), str):
            yield f"{place} has thinking that is not text"
        for call in _calls_of(message):
            yield from _ollama_call(call, place)
    yield from _ollama_thread(messages)


def _ollama_call(call: dict[str, Any], place: str) -> Iterator[str]:
    match call:
        case {"function": {"name": str(name), "arguments": dict()}} if _NAME.fullmatch(name):
            return
    yield f"{place} has a call without a name or with arguments that are not an object: {call!r:.60}"


def _ollama_thread(messages: Messages) -> Iterator[str]:
    """Check that the results after an answer name its tools, in the order of the calls."""
    expected: list[Any] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            if not expected or message.get("tool_name") != expected.pop(0):
                yield f"message {at} answers {message.get('tool_name')!r}, which is not the next call"
            continue
        if expected:
            yield f"the calls of {expected!r} have no result before message {at}"
        expected = [(call.get("function") or {}).get("name") for call in _calls_of(message)]
    if expected:
        yield f"the calls of {expected!r} have no result before the end"


# vLLM, Azure, OpenRouter

_VLLM_KINDS = {
    **openai_chat.KINDS,
    "user": ("text", "image_url", "input_audio", "audio_url", "video_url"),
    "assistant": ("text",),
}


def vllm_problems(messages: Messages) -> Iterator[str]:
    # Chat templates have no developer, and raise for a role that they do not have.
    yield from role_problems(messages, _ROLES)
    yield from openai_chat.problems(messages, kinds=_VLLM_KINDS)
    yield from _function_only(messages)
    for at, message in enumerate(messages):
        for field in ("reasoning", "reasoning_content"):
            # A template inserts reasoning as text.
            if not isinstance(message.get(field) or "", str):
                yield f"message {at} has {field} that is not text"
        if message.get("refusal"):
            yield f"message {at} has a refusal, which the template leaves out"


_AZURE_KINDS = {**openai_chat.KINDS, "user": ("text", "image_url", "input_audio"), "assistant": ("text",)}
_AZURE_FIELDS: Fields = {
    "system": ("name",),
    "developer": ("name",),
    "user": ("name",),
    # Versions of the interface before refusals and audio refuse these fields.
    "assistant": ("name", "tool_calls"),
    "tool": ("tool_call_id",),
}


def azure_problems(messages: Messages) -> Iterator[str]:
    yield from openai_chat.problems(messages, kinds=_AZURE_KINDS)
    for at, message in enumerate(messages):
        # "Additional properties are not allowed", "'content' is a required property"
        yield from _field_problems(message, _AZURE_FIELDS, f"message {at}")
        yield from _part_problems(message, f"message {at}")
        if "content" not in message:
            yield f"message {at} has no field content"
        for call in _calls_of(message):
            if unknown := set(call) - {"id", "type", "function", "custom"}:
                yield f"message {at} has a call with the field {sorted(unknown)[0]!r}"


_OPENROUTER_KINDS = {**openai_chat.KINDS, "user": (*openai_chat.KINDS["user"], "video_url")}


def openrouter_problems(messages: Messages) -> Iterator[str]:
    yield from openai_chat.problems(messages, kinds=_OPENROUTER_KINDS)
    yield from _function_only(messages)
    for at, message in enumerate(messages):
        place = f"message {at}"
        # Ids pass on to the model's provider, and some check the characters.
        for call in _calls_of(message):
            if not _REGULAR_ID.fullmatch(str(call.get("id"))):
                yield f"{place} has a tool call id that providers refuse: {call.get('id')!r:.60}"
        yield from _details_problems(message, place)


def _details_problems(message: dict[str, Any], place: str) -> Iterator[str]:
    details = message.get("reasoning_details")
    if details is None:
        return
    if message.get("role") != "assistant" or not isinstance(details, list):
        yield f"{place} has reasoning_details that are not an answer's list"
        return
    for each in details:
        if not isinstance(each, dict) or not str(each.get("type")).startswith("reasoning."):
            yield f"{place} has reasoning_details of an unknown type: {each!r:.60}"


# Shared


def _field_problems(message: dict[str, Any], fields: Fields, place: str) -> Iterator[str]:
    allowed = {"role", "content", *fields.get(str(message.get("role")), ())}
    for field in sorted(set(message) - allowed):
        yield f"{place} has the field {field!r}, which the server refuses"


def _part_problems(message: dict[str, Any], place: str, *more: str) -> Iterator[str]:
    """Check that parts have no field besides the one that their type names, and these."""
    for block in blocks_in(message.get("content")):
        for field in sorted(set(block) - {"type", str(block.get("type")), *more}):
            yield f"{place} has a part with the field {field!r}, which the server refuses"


def _function_only(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        for call in _calls_of(message):
            if "function" not in call:
                yield f"message {at} calls a tool that is not a function"


def _function_problems(call: dict[str, Any], place: str) -> Iterator[str]:
    match call:
        case {"function": {"name": str(name), "arguments": str() | dict()}} if _NAME.fullmatch(name):
            return
    yield f"{place} has a call without a valid name or without arguments: {call!r:.60}"


def _calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
