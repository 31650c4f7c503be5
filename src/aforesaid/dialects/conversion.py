"""Shared rules for converting parts between dialects.

- Arguments become an object or its JSON text, as the target requires. A text that is not a JSON object
  becomes the only value of an object, under the key `unparsed_arguments`.
- An error is marked in the text where the target has no flag.

The functions `split_fields`, `check_role`, `check_content` and `require_text` validate messages of providers.
"""

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects.keyed_blocks import KEYED_DIALECTS, as_json
from aforesaid.dialects.parse import (
    File,
    Image,
    Other,
    Part,
    Text,
    ToolCall,
    ToolResult,
    is_blank,
    parts_in,
)
from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Message, Role, plain_text


def split_fields(
    document: dict[str, Any], roles: Mapping[str, Role], *, dialect: str
) -> tuple[Role, Any | UnsetType, dict[str, Any]]:
    """Return our role, the content if any, and all other fields, which include a provider-specific role."""
    role = check_role(document, roles, dialect=dialect)
    extra = {field: value for field, value in document.items() if field not in ("role", "content")}
    if roles[role] != role:
        extra["role"] = role
    return roles[role], document.get("content", UNSET), extra


def check_role(document: Mapping[str, Any], roles: Collection[str], *, dialect: str) -> str:
    """Return the role if the dialect has it."""
    if "role" not in document:
        raise InvalidMessage(f"a message of dialect {dialect} needs a role", field="role")
    role = document["role"]
    if not isinstance(role, str) or role not in roles:
        names = ", ".join(roles)
        raise InvalidMessage(
            f"role must be one of {names} in dialect {dialect}; got {shown(role)}", field="role", value=role
        )
    return role


def check_content(content: Any, *, dialect: str, may_be_empty: bool = False) -> None:
    """Check that content is text or a list of blocks with a type. Unknown types are accepted."""
    if content is UNSET or content is None:
        if not may_be_empty:
            raise InvalidMessage(f"a message of dialect {dialect} needs content", field="content")
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise InvalidMessage(
            f"content must be text or a list of blocks in dialect {dialect}; got {shown(content)}",
            field="content",
            value=content,
        )
    for position, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidMessage(
                f"content block {position} must be an object with a type; got {shown(block)}",
                field="content",
                value=block,
            )


def require_text(document: Mapping[str, Any], field: str, *, what: str) -> str:
    """Return a required text field."""
    value = document.get(field)
    if not isinstance(value, str):
        state = f"got {shown(value)}" if field in document else "it has none"
        raise InvalidMessage(f"{what} needs {field}, as text; {state}", field=field, value=value)
    return value


UNPARSED = "unparsed_arguments"
OPENING = "[The conversation starts with the assistant.]"
"""Inserted as the user's message where a provider requires the user's message first."""
# Blocks in which a provider summarizes earlier messages. Other dialects receive the summary as text.
SUMMARIES = ("compaction",)


_REGULAR_ID = lazy_pattern(r"[a-zA-Z0-9_-]+", re.ASCII)


class CallIdRule(Struct, frozen=True, kw_only=True):
    """The ids that a provider accepts."""

    max_length: int = 256
    regular: bool = False
    """Whether the provider checks the characters. Others also accept the ids of servers that imitate them."""
    letters_and_digits: int | None = None
    """The only length that the provider accepts, without other characters."""

    def accepts(self, call_id: str, *, is_own: bool) -> bool:
        """Return whether the id can stay. `is_own`: it comes from a message in the provider's dialect."""
        if not call_id or len(call_id) > self.max_length:
            return False
        if self.letters_and_digits is not None:
            return len(call_id) == self.letters_and_digits and call_id.isascii() and call_id.isalnum()
        return (is_own and not self.regular) or _REGULAR_ID.fullmatch(call_id) is not None


ANY_ID = CallIdRule(max_length=1 << 30)


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
        return dialect == "plain" or _is_regular(message.content, keyed=dialect in KEYED_DIALECTS)
    return (
        message.dialect == "plain"
        and message.role in ("user", "assistant")
        and plain_text(message) is not None
    )


def _is_regular(content: Any, *, keyed: bool) -> bool:
    """Return whether the content has a provider's form. A caller can construct a message with any content."""
    if keyed:
        return isinstance(content, list) and all(
            isinstance(block, dict) and "type" not in block for block in content
        )
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
    # The same text keeps the request byte-identical for a prompt cache.
    if isinstance(arguments, str) and isinstance(_parse_json(arguments), dict):
        return arguments
    return as_json(arguments_object(arguments)) or "{}"


def _parse_json(text: str) -> Any:
    try:
        # Python accepts NaN and Infinity, which no provider does.
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def with_error_prefix(text: str, *, is_error: bool) -> str:
    """Return a result's text, prefixed as an error unless it already says so."""
    if not is_error or text.lower().startswith("error"):
        return text
    return f"Error: {text}" if text else "Error"


Convertible = Text | Image | Other
"""What a renderer converts to blocks of its own. An `Other` here has a file or is a search result."""


def result_parts(result: ToolResult) -> list[Convertible]:
    """Return the convertible parts of a result; unknown parts become text."""
    return convertible_parts(parts_in(result.content))


def convertible_parts(parts: Iterable[Part]) -> list[Convertible]:
    """Return texts, images and files, and a text for each part that only its own dialect has."""
    kept: list[Convertible] = []
    for part in parts:
        if isinstance(part, Other) and part.file is None and part.search_result is None:
            kept.append(Text(part.text))
        elif isinstance(part, Other):
            kept.append(_described(part))
        elif isinstance(part, Image) or (isinstance(part, Text) and not is_blank(part.text)):
            kept.append(part)
    return kept


def _described(part: Other) -> Other:
    """Return a file with its address or its text, for dialects that do not have its type."""
    if part.file is None:
        return part
    if part.file.url is not None:
        return replace(part, text=f"[{part.kind}: {part.file.url}]")
    words = text_in(part.file)
    return replace(part, text=words) if words else part


def text_in(file: File) -> str:
    """Return the text of a file of text; empty for all others."""
    if not file.media_type.startswith("text/") and file.media_type != "application/json":
        return ""
    try:
        words = base64.b64decode(file.data or "", validate=True).decode()
    except ValueError:
        return ""
    return "" if is_blank(words) else words


def calls_in(parts: Sequence[Part]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]


def results_in(parts: Sequence[Part]) -> list[ToolResult]:
    return [part for part in parts if isinstance(part, ToolResult)]


def texts_in(parts: Sequence[Part]) -> list[str]:
    """Return the non-blank texts, and a provider's summary of what came before."""
    return [text.text for text in spoken_texts(parts)]


def spoken_texts(parts: Sequence[Part]) -> list[Text]:
    """Return the same texts with their citations."""
    return [
        part if isinstance(part, Text) else Text(part.text)
        for part in parts
        if (isinstance(part, Text) or (isinstance(part, Other) and part.kind in SUMMARIES))
        and not is_blank(part.text)
    ]
