"""Repair calls that a provider would refuse, on the way out. The log keeps them as they came.

Servers with the interface of OpenAI send what OpenAI itself refuses: calls without a type, without arguments
or without a name, an empty list of calls, thinking as content. Tool names may contain characters that another
provider does not accept.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects import keyed_blocks
from aforesaid.dialects.conversion import arguments_text, is_native
from aforesaid.dialects.parse import ToolCall, images_in, parts_of
from aforesaid.model.messages import Message, only_text

Repairs = Counter[str]

NO_NAME = "calls without a name, left out"
NO_TYPE = "calls without a type"
NO_ARGUMENTS = "calls whose arguments were not JSON text"
NO_CALLS = "empty lists of calls"
THINKING = "thinking as content, left out"
IMAGES = "images outside of the content"
REFUSED_IDS = "call ids with characters or a length that the provider refuses"
NAMES = "tool names with characters or a length that the provider refuses"

# The longest tool name of a provider. All of them accept letters, digits, underscores and hyphens.
_LONGEST_NAMES = {"openai_chat": 64, "openai_responses": 64, "anthropic": 128, "bedrock": 64, "gemini": 64}
_INVALID_IN_NAME = lazy_pattern(r"[^a-zA-Z0-9_-]", re.ASCII)
# Gemini also accepts dots and colons.
_INVALID_IN_GEMINI = lazy_pattern(r"[^a-zA-Z0-9_.:-]", re.ASCII)
_NAMED_BLOCKS = ("toolUse", "functionCall", "functionResponse")
_NO_WORDS = ("thinking", "reference")

Rename = Callable[[str], str]


def repaired(
    messages: Sequence[Message], dialect: str, *, thinking: bool = False
) -> tuple[Sequence[Message], Repairs]:
    """Return the messages without defects that the provider refuses, and what was repaired, by kind.

    `thinking`: the server accepts thinking as content.
    """
    found: Repairs = Counter()
    no_words = ("reference",) if thinking else _NO_WORDS
    result = [
        message if _has_no_calls(message) else _repaired(message, dialect, no_words, found)
        for message in messages
    ]
    if all(new is old for new, old in zip(result, messages, strict=True)):
        return messages, found
    return [message for message in result if message is not None], found


def lines_of(repairs: Repairs) -> tuple[str, ...]:
    """Return one line per kind of repair, with its count."""
    return tuple(f"{count} {kind}" for kind, count in sorted(repairs.items()) if count)


def _has_no_calls(message: Message) -> bool:
    return only_text(message) is not None and message.role != "tool"


def _repaired(message: Message, dialect: str, no_words: Collection[str], found: Repairs) -> Message | None:
    kept = _without_placeholders(message, found)
    if kept is None or not is_native(kept, dialect):
        return kept
    if dialect == "openai_chat":
        return _as_chat(kept, no_words, found)
    return _as_item(kept, found) if dialect == "openai_responses" else kept


# Placeholders


def _without_placeholders(message: Message, found: Repairs) -> Message | None:
    """Return the message without calls that have no name; None when nothing remains."""
    if message.role != "assistant":
        return message
    content, extra = message.content, message.extra
    if content is UNSET and extra.get("type") in ("function_call", "custom_tool_call") and not _named(extra):
        found[NO_NAME] += 1
        return None
    blocks = [block for block in content if not _is_placeholder(block)] if isinstance(content, list) else []
    if isinstance(content, list) and len(blocks) < len(content):
        found[NO_NAME] += len(content) - len(blocks)
        content = blocks
    extra = _without_placeholder_fields(extra, found)
    if content is message.content and extra is message.extra:
        return message
    if not content and not extra:
        return None
    return message.with_(content=content, extra=extra, tokens={})


def _is_placeholder(block: Any) -> bool:
    form = keyed_blocks.typed(block) or block
    return isinstance(form, Mapping) and form.get("type") == "tool_use" and not _named(form)


def _named(call: Any) -> bool:
    return isinstance(call, Mapping) and isinstance(call.get("name"), str) and bool(call["name"].strip())


def _without_placeholder_fields(extra: dict[str, Any], found: Repairs) -> dict[str, Any]:
    gone = set[str]()
    if "function_call" in extra and not _named(extra["function_call"]):
        # An SDK object has the field with None.
        found[NO_NAME] += extra["function_call"] is not None
        gone.add("function_call")
    calls = extra.get("tool_calls")
    named = [call for call in calls if _is_call(call)] if isinstance(calls, list) else []
    if "tool_calls" in extra and not named:
        found[NO_NAME if calls else NO_CALLS] += calls is not None
        gone.add("tool_calls")
    elif isinstance(calls, list) and len(named) < len(calls):
        found[NO_NAME] += len(calls) - len(named)
        extra = {**extra, "tool_calls": named}
    return {name: value for name, value in extra.items() if name not in gone} if gone else extra


def _is_call(call: Any) -> bool:
    if not isinstance(call, Mapping):
        return False
    return _named(call.get("function")) or _named(call.get("custom")) or _named(call)


# OpenAI's chat API


def _as_chat(message: Message, no_words: Collection[str], found: Repairs) -> Message:
    content, extra = message.content, message.extra
    if message.role == "user" and "images" in extra:
        return _with_image_parts(message, found)
    if message.role == "assistant" and isinstance(content, list):
        words = [block for block in content if block.get("type") not in no_words]
        if len(words) < len(content):
            found[THINKING] += len(content) - len(words)
            content = words or None
    calls = extra.get("tool_calls")
    if isinstance(calls, list):
        complete = [_complete(call, found) for call in calls]
        extra = extra if complete == calls else {**extra, "tool_calls": complete}
    if content is message.content and extra is message.extra:
        return message
    return message.with_(content=content, extra=extra, tokens={})


def _with_image_parts(message: Message, found: Repairs) -> Message:
    """Return a message of Ollama's API with its images as parts."""
    urls = [image.as_url for image in images_in(message.extra)]
    found[IMAGES] += len(urls)
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = message.content
    words = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    extra = {name: value for name, value in message.extra.items() if name != "images"}
    return message.with_(content=[*words, *parts] if parts else content, extra=extra, tokens={})


def _as_item(message: Message, found: Repairs) -> Message:
    """Return a function call of the Responses API with arguments that are JSON, also after an abort."""
    item = message.extra
    if message.content is not UNSET or item.get("type") != "function_call":
        return message
    text = arguments_text(item.get("arguments"))
    if text == item.get("arguments"):
        return message
    found[NO_ARGUMENTS] += 1
    return message.with_(extra={**item, "arguments": text}, tokens={})


def _complete(call: Any, found: Repairs) -> Any:
    """Return a call with its type, and its arguments as JSON text."""
    if not isinstance(call, Mapping):
        return call
    kind = "custom" if "custom" in call else "function"
    function = call.get(kind)
    if not isinstance(function, Mapping):
        # A call in plain form, as a server or a caller wrote it.
        function = {"name": call.get("name"), "arguments": call.get("arguments")}
        call = {name: value for name, value in call.items() if name not in ("name", "arguments")}
    if kind == "function":
        text = arguments_text(function.get("arguments"))
        if text != function.get("arguments"):
            found[NO_ARGUMENTS] += 1
            function = {**function, "arguments": text}
    if call.get("type") != kind:
        found[NO_TYPE] += 1
    return {**call, "type": kind, kind: function}


# Names


def with_valid_names(messages: Sequence[Message], dialect: str, found: Repairs) -> Sequence[Message]:
    """Return the messages with tool names that the provider accepts. Calls already have ids of their own."""
    if dialect == "plain":
        return messages
    return [
        message if _has_no_calls(message) else _with_valid_names(message, dialect, found)
        for message in messages
    ]


def _with_valid_names(message: Message, dialect: str, found: Repairs) -> Message:
    invalid = _INVALID_IN_GEMINI if dialect == "gemini" else _INVALID_IN_NAME
    longest = _LONGEST_NAMES[dialect]

    def rename(name: str) -> str:
        valid = invalid.sub("_", name)[:longest] or "unnamed"
        if valid != name:
            found[NAMES] += 1
        return valid

    names = [part.name for part in parts_of(message) if isinstance(part, ToolCall)]
    is_answer = message.role in ("tool", "user") and not _has_no_calls(message)
    if not is_answer and all(len(name) <= longest and not invalid.search(name) for name in names):
        return message
    return _with_names(message, rename)


def _with_names(message: Message, rename: Rename) -> Message:
    content, extra = message.content, message.extra
    if isinstance(content, list):
        content = [_block_with_name(block, rename) for block in content]
    if extra:
        extra = _fields_with_names(message, rename)
    if (content, extra) == (message.content, message.extra):
        return message
    return message.with_(content=content, extra=extra, tokens={})


def _block_with_name(block: Any, rename: Rename) -> Any:
    match block:
        case {"type": "tool_use", "name": str(name)}:
            return {**block, "name": rename(name)}
    found = keyed_blocks.keyed(block)
    if (
        found is not None
        and found.key in ("toolUse", "functionCall", "functionResponse")
        and _named(found.value)
    ):
        return {**block, found.written: _renamed(found.value, rename)}
    return block


def _fields_with_names(message: Message, rename: Rename) -> dict[str, Any]:
    extra = message.extra
    if message.content is UNSET and isinstance(extra.get("type"), str):
        calls = extra["type"] in ("function_call", "custom_tool_call")
        return _renamed(extra, rename) if calls and _named(extra) else extra
    result = dict(extra)
    if isinstance(extra.get("tool_calls"), list):
        result["tool_calls"] = [_call_with_name(call, rename) for call in extra["tool_calls"]]
    if _named(extra.get("function_call")):
        result["function_call"] = _renamed(extra["function_call"], rename)
    if message.role == "tool" and _named(extra):
        result["name"] = rename(extra["name"])
    return result


def _call_with_name(call: Any, rename: Rename) -> Any:
    for kind in ("function", "custom"):
        if isinstance(call, Mapping) and _named(call.get(kind)):
            return {**call, kind: _renamed(call[kind], rename)}
    return _renamed(call, rename) if _named(call) else call


def _renamed(value: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    return {**value, "name": rename(value["name"])}
