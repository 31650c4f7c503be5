"""Provider message formats: parsing, rendering, and the meaning of a message in any of them.

    read        a caller's values → messages with unchanged content
    meaning_of  a message → its text, tool calls and tool results
    write       messages → a request in one dialect, unchanged or converted

Each dialect is a module with `read_one`, `write` and `result`. Servers that implement OpenAI's chat API with
differences are variants of it: the log keeps their messages in the dialect `openai_chat`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, get_args

from msgspec.structs import replace

from aforesaid.dialects import items, plain
from aforesaid.dialects.conversion import OPENING, CallIdRule
from aforesaid.dialects.edits import (
    cut_at_interruption,
    name_speaker,
    narrate,
    only_results,
    with_result_text,
    without_results,
    without_thinking,
)
from aforesaid.dialects.images import references_in, rehydrate, resolve, split_images, without_images
from aforesaid.dialects.intake import (
    ChatVariantName,
    DialectName,
    RawMessage,
    default_dialect,
    dialect_for,
    form_of,
    is_documented_form,
    unpack,
    with_detected_dialect,
)
from aforesaid.dialects.keyed_blocks import with_bytes
from aforesaid.dialects.parse import Meaning, Request, ToolCall, ToolResult, meaning_of
from aforesaid.dialects.tombstones import tombstone_of
from aforesaid.errors import InvalidInput
from aforesaid.model.messages import Message

__all__ = [
    "DIALECTS",
    "OPENING",
    "REQUEST_DIALECTS",
    "ChatVariantName",
    "DialectName",
    "Meaning",
    "Request",
    "ToolCall",
    "ToolResult",
    "cut_at_interruption",
    "form_of",
    "is_from_model",
    "meaning_of",
    "name_speaker",
    "narrate",
    "only_results",
    "read",
    "references_in",
    "rehydrate",
    "resolve",
    "split_images",
    "tombstone_of",
    "tool_result",
    "with_bytes",
    "with_result_text",
    "without_images",
    "without_results",
    "without_thinking",
    "write",
]


class Dialect(Protocol):
    """The interface of a dialect's module."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  # a module's constant
    @property
    def CALL_IDS(self) -> CallIdRule: ...  # noqa: N802
    def read_one(self, document: dict[str, Any]) -> Message: ...
    def write(self, messages: Sequence[Message]) -> Request: ...
    def result(self, *, call_id: str, name: str, text: str, is_error: bool) -> Message: ...


def _anthropic() -> Dialect:
    from aforesaid.dialects import anthropic

    return anthropic


def _openai_chat() -> Dialect:
    from aforesaid.dialects import openai_chat

    return openai_chat


def _openai_responses() -> Dialect:
    from aforesaid.dialects import openai_responses

    return openai_responses


def _gemini() -> Dialect:
    from aforesaid.dialects import gemini

    return gemini


def _bedrock() -> Dialect:
    from aforesaid.dialects import bedrock

    return bedrock


def _variant(name: str) -> Dialect:
    from aforesaid.dialects import chat_variants

    variant: Dialect = getattr(chat_variants, name.upper())
    return variant


class _Dialects(Mapping[str, Dialect]):
    """The dialects by name. A module is loaded when it is first needed: most programs use one or two."""

    def __init__(self, load: Mapping[str, Callable[[], Dialect]]) -> None:
        self._load = load

    def __getitem__(self, name: str) -> Dialect:
        return self._load[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._load

    def __iter__(self) -> Iterator[str]:
        return iter(self._load)

    def __len__(self) -> int:
        return len(self._load)


# The dialects of messages by name.
DIALECTS: Mapping[str, Dialect] = _Dialects(
    {
        "plain": lambda: plain,
        "anthropic": _anthropic,
        "openai_chat": _openai_chat,
        "openai_responses": _openai_responses,
        "gemini": _gemini,
        "bedrock": _bedrock,
    }
)
# The dialects of requests: all of these, and the variants of OpenAI's chat API.
REQUEST_DIALECTS: Mapping[str, Dialect] = _Dialects(
    {
        **{name: partial(DIALECTS.__getitem__, name) for name in DIALECTS},
        **{name: partial(_variant, name) for name in get_args(ChatVariantName)},
    }
)


def is_from_model(document: Mapping[str, Any]) -> bool:
    """Return whether the model wrote this message or item of a request, in any dialect."""
    if "role" in document:
        return document["role"] in ("assistant", "model")
    return items.is_from_model(document)


def read(value: Any, *, dialect: str | None = None) -> list[Message]:
    """Return the messages in a value, with unchanged content.

    The value is a message (a dict or an SDK object), a list of messages, or a whole response: from
    Anthropic's `messages.create`, or from OpenAI's `chat.completions.create` (its first choice) or
    `responses.create` (its output items).

    Without `dialect`, the dialect is detected:

    - from the SDK that defines the object's type,
    - else from fields and block types that only one dialect has,
    - else from the first message in the list with a detected dialect,
    - else text blocks count as Anthropic's, the role `developer` and a tool message with `tool_call_id` as
      OpenAI chat, and a role with text as plain.

    Fields of Aforesaid's own form (`timestamp`, `content_type`, `dialect`) set the message's fields.
    """
    items = unpack(value)
    if dialect is not None:
        read_one = _named(dialect).read_one
        return [each if isinstance(each, Message) else read_one(each.document) for each in items]
    detected = [each if isinstance(each, Message) else with_detected_dialect(each) for each in items]
    default = default_dialect([each for each in detected if isinstance(each, RawMessage)])
    return [each if isinstance(each, Message) else _read(each, default) for each in detected]


def write(messages: Sequence[Message], dialect: str) -> Request:
    """Render the messages as a request in this dialect.

    Messages of the same dialect are unchanged, including unknown fields; others are converted. Messages
    are reordered where a provider requires it. Defects that a provider refuses are repaired and listed in the
    request's `repaired`. A call without a result and a result without a call stay, because a repair would
    have to invent content.
    """
    # Programs that only store need no renderer.
    from aforesaid.dialects.call_ids import with_valid_call_ids
    from aforesaid.dialects.repairs import REFUSED_IDS, lines_of, repaired, with_valid_names

    module, form = _named(dialect), form_of(dialect)
    valid, repairs = repaired(messages, form, thinking=dialect == "mistral")
    valid, refused = with_valid_call_ids(valid, module.CALL_IDS, form)
    if refused:
        repairs[REFUSED_IDS] += refused
    request = module.write(with_valid_names(valid, form, repairs))
    return replace(request, repaired=(*lines_of(repairs), *request.repaired)) if repairs else request


def tool_result(dialect: str, *, call_id: str, name: str, text: str, is_error: bool = False) -> Message:
    """Return a message in this dialect with a tool call's result as text."""
    return _named(dialect).result(call_id=call_id, name=name, text=text, is_error=is_error)


def _read(value: RawMessage, default: str) -> Message:
    dialect = dialect_for(value, default)
    if is_documented_form(value.document):
        return _from_documented_form({**value.document, "dialect": form_of(dialect)})
    return _named(dialect).read_one(value.document)


def _from_documented_form(document: dict[str, Any]) -> Message:
    # Aforesaid's form always has content; an item of the Responses API has none.
    if document["dialect"] == "openai_responses" and document.get("content") is None:
        document.pop("content", None)
    return Message.from_dict(document)


def _named(dialect: str) -> Dialect:
    try:
        return REQUEST_DIALECTS[dialect]
    except (KeyError, TypeError):
        raise InvalidInput.not_in("dialect", dialect, REQUEST_DIALECTS) from None
