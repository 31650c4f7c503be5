"""Shared rules for converting parts between dialects.

- Arguments become an object or its JSON text, as the target requires. A text that is not a JSON object
  becomes the only value of an object, under the key `unparsed_arguments`.
- Ids stay. An id that the target rejects (characters, length) is replaced by a hash of it, so that a call
  and its result still match.
- An error is marked in the text where the target has no flag.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import UNSET, Struct

from aforesaid.dialects.meaning import Image, Other, Part, Text, ToolCall, ToolResult, is_blank
from aforesaid.dialects.parse import as_json, parts_in, parts_of
from aforesaid.model.messages import Message

UNPARSED = "unparsed_arguments"

_INVALID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")


class Draft(Struct, frozen=True, kw_only=True):
    """A message being rendered: unchanged from this dialect, or converted from another."""

    document: dict[str, Any]
    converted: bool
    trailing: bool = False
    """Whether the draft must follow all tool results."""


def is_native(message: Message, dialect: str) -> bool:
    """Return whether the message needs no conversion: it is of this dialect, or plain text, which all
    share.
    """
    if message.dialect == dialect:
        return dialect == "plain" or _is_regular(message.content)
    return (
        message.dialect == "plain"
        and message.role in ("user", "assistant")
        and isinstance(message.content, str)
        and not message.extra
    )


def _is_regular(content: Any) -> bool:
    """Return whether the content has a provider's form. A caller can construct a message with any content."""
    if isinstance(content, list):
        return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content)
    return content is UNSET or content is None or isinstance(content, str)


def verbatim(message: Message) -> dict[str, Any]:
    """Return the provider's message as it was parsed. A provider-specific role is in the extra fields."""
    if message.content is not UNSET:
        document = {"role": message.role, "content": message.content, **message.extra}
        document["content"] = message.content  # a hand-made message may have "content" in extra
        return document
    # A Responses API item without content is stored whole in extra.
    return (
        {**message.extra}
        if message.dialect == "openai_responses"
        else {"role": message.role, **message.extra}
    )


def arguments_object(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object."""
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str):
        return {} if arguments is None else {UNPARSED: as_json(arguments)}
    if not arguments.strip():
        return {}
    parsed = _parse_json(arguments)
    return parsed if isinstance(parsed, dict) else {UNPARSED: arguments}


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as the JSON text of an object, unchanged if they already are."""
    if isinstance(arguments, str) and isinstance(_parse_json(arguments), dict):
        return arguments
    return as_json(arguments_object(arguments)) or "{}"


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class CallIdMapper:
    """Replaces ids that the target would reject.

    Ids in the target's own messages stay, so that a call and its result match when only one of them is
    converted.
    """

    def __init__(self, messages: Sequence[Message], dialect: str, *, max_length: int) -> None:
        self._messages = messages
        self._dialect = dialect
        self._max_length = max_length

    def __call__(self, call_id: str) -> str:
        fits = bool(call_id) and len(call_id) <= self._max_length and not _INVALID_CHARACTERS.search(call_id)
        if fits or call_id in self._own_ids:
            return call_id
        digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"call_{digest[:24]}"

    @cached_property
    def _own_ids(self) -> frozenset[str]:
        own = (message for message in self._messages if is_native(message, self._dialect))
        parts = [part for message in own for part in parts_of(message)]
        return frozenset([call.id for call in calls_in(parts)] + [each.call_id for each in results_in(parts)])


def with_error_prefix(text: str, *, is_error: bool) -> str:
    """Return a result's text, prefixed as an error unless it already says so."""
    if not is_error or text.lower().startswith("error"):
        return text
    return f"Error: {text}" if text else "Error"


def result_parts(result: ToolResult) -> list[Text | Image]:
    """Return the convertible parts of a result; unknown parts become text."""
    return convertible_parts(parts_in(result.content))


def convertible_parts(parts: Iterable[Part]) -> list[Text | Image]:
    """Return texts and images, and a text for each part that only its own dialect has."""
    kept: list[Text | Image] = []
    for part in parts:
        if isinstance(part, Other):
            kept.append(Text(part.text))
        elif isinstance(part, Image) or (isinstance(part, Text) and not is_blank(part.text)):
            kept.append(part)
    return kept


def calls_in(parts: Sequence[Part]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]


def results_in(parts: Sequence[Part]) -> list[ToolResult]:
    return [part for part in parts if isinstance(part, ToolResult)]


def texts_in(parts: Sequence[Part]) -> list[str]:
    """Return the non-blank texts."""
    return [part.text for part in parts if isinstance(part, Text) and not is_blank(part.text)]
