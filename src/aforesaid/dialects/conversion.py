"""What every writer needs to carry parts from one dialect to another. Below: reading.

Three rules are stated here once:

- Arguments travel as an object or as its JSON text, whichever the target wants. A text that is not
  the JSON of an object (a model may write anything) travels whole, as the only value of an object,
  under the key `unparsed_arguments`.
- Ids are kept. Only an id that the target would refuse (its alphabet, its length) is replaced, by
  one that depends on nothing but the id, so that a call and its result still meet.
- An error is said in words where the target has no flag for it.
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

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


class Draft(Struct, frozen=True, kw_only=True):
    """A message on its way out: verbatim from this dialect, or converted from another."""

    document: dict[str, Any]
    converted: bool
    trailing: bool = False
    """Whether it follows tool results and must not stand between them."""


def speaks(message: Message, dialect: str) -> bool:
    """Whether the message goes out as it came in: its own dialect, or words alone, alike in all."""
    if message.dialect == dialect:
        return dialect == "plain" or _is_regular(message.content)
    return (
        message.dialect == "plain"
        and message.role in ("user", "assistant")
        and isinstance(message.content, str)
        and not message.extra
    )


def _is_regular(content: Any) -> bool:
    """Whether the content has a provider's form; a caller may have made the message by hand."""
    if isinstance(content, list):
        return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content)
    return content is UNSET or content is None or isinstance(content, str)


def verbatim(message: Message) -> dict[str, Any]:
    """The provider's message as it was read. A role of the provider's own is among the extra fields."""
    if message.content is not UNSET:
        document = {"role": message.role, "content": message.content, **message.extra}
        document["content"] = message.content  # whatever a message that was made by hand has among its extra
        return document
    # An item of the Responses interface that has no content is kept whole.
    return (
        {**message.extra}
        if message.dialect == "openai_responses"
        else {"role": message.role, **message.extra}
    )


def arguments_object(arguments: Any) -> dict[str, Any]:
    """A call's arguments as an object."""
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str):
        return {} if arguments is None else {UNPARSED: as_json(arguments)}
    if not arguments.strip():
        return {}
    parsed = _parsed(arguments)
    return parsed if isinstance(parsed, dict) else {UNPARSED: arguments}


def arguments_text(arguments: Any) -> str:
    """A call's arguments as the JSON text of an object; a text that is one already, as it is."""
    if isinstance(arguments, str) and isinstance(_parsed(arguments), dict):
        return arguments
    return as_json(arguments_object(arguments)) or "{}"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class IdFitter:
    """Gives each id back as it is, or where the target would refuse it one made from it.

    An id that the target's own messages use is theirs and stays, so that a call and its result
    meet also when only one of the two is converted.
    """

    def __init__(self, messages: Sequence[Message], dialect: str, *, longest: int) -> None:
        self._messages = messages
        self._dialect = dialect
        self._longest = longest

    def __call__(self, call_id: str) -> str:
        fits = bool(call_id) and len(call_id) <= self._longest and not _UNFIT.search(call_id)
        if fits or call_id in self._own_ids:
            return call_id
        digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"call_{digest[:24]}"

    @cached_property
    def _own_ids(self) -> frozenset[str]:
        own = (message for message in self._messages if speaks(message, self._dialect))
        parts = [part for message in own for part in parts_of(message)]
        return frozenset([call.id for call in calls_in(parts)] + [each.call_id for each in results_in(parts)])


def said_error(text: str, *, is_error: bool) -> str:
    """A result's text, saying that it is an error where it does not say so itself."""
    if not is_error or text.lower().startswith("error"):
        return text
    return f"Error: {text}" if text else "Error"


def result_parts(result: ToolResult) -> list[Text | Image]:
    """What can be carried of a result's content; anything unknown is named in words."""
    return carried(parts_in(result.content))


def carried(parts: Iterable[Part]) -> list[Text | Image]:
    """The words and pictures among these parts, with words for what only its own dialect can hold."""
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


def words_in(parts: Sequence[Part]) -> list[str]:
    """The texts that say something; an answer's or a prompt's, where nothing but words has a place."""
    return [part.text for part in parts if isinstance(part, Text) and not is_blank(part.text)]
