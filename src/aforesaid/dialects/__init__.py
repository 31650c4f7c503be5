"""Dialects: how providers write messages. In, out, and what a message means in any of them.

    read      what a caller hands in → messages, content kept as it was given
    meaning_of  a message → its text, tool calls, tool results
    write     messages → a request in one dialect: equal to what went in, or converted

Each dialect is a module of one shape: `read_one`, `write`, `result`. Below: values, wire. Above:
windows, the manager.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from aforesaid.dialects import anthropic, openai_chat, openai_responses, plain
from aforesaid.dialects.blanks import blanked
from aforesaid.dialects.call_ids import with_distinct_calls
from aforesaid.dialects.edits import only_results, with_result_text, without_results, without_thinking
from aforesaid.dialects.images import references_in, rehydrate, resolve, split_images, without_images
from aforesaid.dialects.intake import (
    Given,
    dialect_for,
    guessed,
    is_documented_form,
    settled_dialect,
    unpacked,
)
from aforesaid.dialects.interrupted import as_heard
from aforesaid.dialects.meaning import Meaning, Request, ToolCall, ToolResult
from aforesaid.dialects.narration import narrate
from aforesaid.dialects.openai_responses import is_by_the_model
from aforesaid.dialects.parse import meaning_of
from aforesaid.errors import InvalidInput
from aforesaid.model.messages import Message

__all__ = [
    "DIALECTS",
    "Meaning",
    "Request",
    "ToolCall",
    "ToolResult",
    "as_heard",
    "blanked",
    "is_by_the_model",
    "meaning_of",
    "narrate",
    "only_results",
    "read",
    "references_in",
    "rehydrate",
    "resolve",
    "split_images",
    "tool_result",
    "with_result_text",
    "without_images",
    "without_results",
    "without_thinking",
    "write",
]


class Dialect(Protocol):
    """What a dialect's module offers."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  # a module's constant
    def read_one(self, document: dict[str, Any]) -> Message: ...
    def write(self, messages: Sequence[Message]) -> Request: ...
    def result(self, *, call_id: str, name: str, text: str, is_error: bool) -> Message: ...


_MODULES: tuple[Dialect, ...] = (plain, anthropic, openai_chat, openai_responses)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({module.NAME: module for module in _MODULES})
"""Every dialect by its name."""


def read(given: Any, *, dialect: str | None = None) -> list[Message]:
    """The messages in what was handed in, each with its content exactly as given.

    `given` is one message (a dict or an SDK's object), a list of them, or a whole response: of
    Anthropic's `messages.create`, of OpenAI's `chat.completions.create` (its first choice) or
    `responses.create` (its output items).

    Without `dialect` it is guessed: by the SDK that the object's type belongs to, else by fields
    and block types that only one dialect has. A message that could be anybody's speaks the
    dialect of the first in the list that shows one; where none does, text blocks are taken for
    Anthropic's, the role `developer` and a tool message with its `tool_call_id` for OpenAI's chat,
    and a role with mere text is plain. A message with Aforesaid's own labels (`timestamp`,
    `content_type`, `dialect`) gets them as labels.
    """
    handed_in = unpacked(given)
    if dialect is not None:
        read_one = _named(dialect).read_one
        return [each if isinstance(each, Message) else read_one(each.document) for each in handed_in]
    guesses = [each if isinstance(each, Message) else guessed(each) for each in handed_in]
    settled = settled_dialect([each for each in guesses if isinstance(each, Given)])
    return [each if isinstance(each, Message) else _read(each, settled) for each in guesses]


def write(messages: Sequence[Message], dialect: str) -> Request:
    """The messages as a request in this dialect.

    Messages of the same dialect come out as they went in, unknown fields included; others are
    converted. What a provider would refuse in the order of things is put right. What cannot be
    put right without inventing something (a call without result, a result without call) stays.
    """
    return _named(dialect).write(with_distinct_calls(messages))


def tool_result(dialect: str, *, call_id: str, name: str, text: str, is_error: bool = False) -> Message:
    """A message in this dialect that answers a tool call with text."""
    return _named(dialect).result(call_id=call_id, name=name, text=text, is_error=is_error)


def _read(given: Given, settled: str) -> Message:
    dialect = dialect_for(given, settled)
    if is_documented_form(given.document):
        return _from_documented_form({**given.document, "dialect": dialect})
    return _named(dialect).read_one(given.document)


def _from_documented_form(document: dict[str, Any]) -> Message:
    # That form always has a content; an item of the Responses interface, kept whole, has none.
    if document["dialect"] == openai_responses.NAME and document.get("content") is None:
        document.pop("content", None)
    return Message.from_dict(document)


def _named(dialect: str) -> Dialect:
    try:
        return DIALECTS[dialect]
    except (KeyError, TypeError):
        raise InvalidInput.not_in("dialect", dialect, DIALECTS) from None
