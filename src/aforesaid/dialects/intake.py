"""From whatever a caller hands in to plain JSON documents, and which dialect they speak. Below: wire.

SDK objects are recognised by what they can do (`model_dump`), so no SDK is imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Message
from aforesaid.model.wire import check_json

_MODULES = (
    ("anthropic.", "anthropic"),
    ("openai.types.chat", "openai_chat"),
    ("openai.types.responses", "openai_responses"),
)
_LABELS = frozenset(("timestamp", "content_type", "dialect"))
"""Fields that only Aforesaid's documented form has."""

_ROLES_LACKING = {
    "plain": ("developer",),
    "anthropic": ("developer", "tool"),
    "openai_responses": ("tool",),
}
_CHAT_FIELDS = frozenset(("function_call", "refusal", "audio", "annotations"))
_ANTHROPIC_BLOCKS = frozenset(
    (
        "image",
        "document",
        "search_result",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "container_upload",
    )
)
_CHAT_BLOCKS = frozenset(("image_url", "input_audio", "file"))
_RESPONSES_BLOCKS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_BLOCK_DIALECTS = {
    **dict.fromkeys(_ANTHROPIC_BLOCKS, "anthropic"),
    **dict.fromkeys(_CHAT_BLOCKS, "openai_chat"),
    **dict.fromkeys(_RESPONSES_BLOCKS, "openai_responses"),
}


class Given(Struct, frozen=True, kw_only=True):
    """One message as it was handed in, as JSON, and its dialect where that is known."""

    document: dict[str, Any]
    dialect: str | None


def unpacked(given: Any) -> list[Given | Message]:
    """Every message in what was handed in: one message, a list of them, or a whole response."""
    if isinstance(given, (list, tuple)):
        try:
            return [each for item in given for each in unpacked(item)]
        except RecursionError:
            raise InvalidMessage("the messages are nested too deep to be read") from None
    if isinstance(given, Message):
        return [given]
    return list(_unpacked_one(given))


def guessed(given: Given) -> Given:
    """The same, with the dialect that its shape shows, if it does."""
    return given if given.dialect else Given(document=given.document, dialect=_guessed(given.document))


def settled_dialect(given: Sequence[Given]) -> str:
    """The dialect of those messages that could be anybody's: that of the first which shows one.

    Where none does, blocks are taken for Anthropic's, a developer or a tool message with the id
    of its call for OpenAI's chat; mere text is plain.
    """
    shown_by = next((each.dialect for each in given if each.dialect), None)
    likely = (_likely_dialect(each.document) for each in given)
    return shown_by or next((dialect for dialect in likely if dialect != "plain"), "plain")


def dialect_for(given: Given, settled: str) -> str:
    """Its own dialect, else the settled one, unless that has no such role."""
    if given.dialect is not None:
        return given.dialect
    if given.document["role"] in _ROLES_LACKING.get(settled, ()):
        return _likely_dialect(given.document)
    return settled


def _likely_dialect(document: Mapping[str, Any]) -> str:
    if document.get("role") == "developer" or "tool_call_id" in document:
        return "openai_chat"
    content = document.get("content")
    has_blocks = isinstance(content, list) and bool(content) and _all_typed(content)
    return "anthropic" if has_blocks and document.get("role") != "tool" else "plain"


def is_documented_form(document: Mapping[str, Any]) -> bool:
    """Whether this is Aforesaid's own form of a message, with its labels."""
    return not _LABELS.isdisjoint(document)


def _unpacked_one(given: Any) -> Iterator[Given]:
    hint = _dialect_of_type(given)
    document = _as_document(given)
    if isinstance(document.get("choices"), list):
        yield _given(_first_choice(document), "openai_chat")
    elif document.get("object") == "response" and isinstance(document.get("output"), list):
        yield from (_given(item, "openai_responses") for item in document["output"])
    elif _is_anthropic_response(document, hint):
        yield _given({"role": document["role"], "content": document["content"]}, "anthropic")
    else:
        yield _given(document, hint)


def _given(document: Any, dialect: str | None) -> Given:
    if not isinstance(document, dict):
        raise InvalidMessage(f"a message must be an object; got {shown(document)}")
    return Given(document=document, dialect=dialect)


def _first_choice(document: dict[str, Any]) -> Any:
    match document["choices"]:
        case [{"message": dict(message)}, *_]:
            return message
    raise InvalidMessage("a chat completion needs a choice with a message", field="choices")


def _is_anthropic_response(document: dict[str, Any], hint: str | None) -> bool:
    if document.get("type") != "message" or "role" not in document or "content" not in document:
        return False
    return hint == "anthropic" or "stop_reason" in document or "usage" in document


def _dialect_of_type(given: Any) -> str | None:
    module = type(given).__module__
    return next((dialect for prefix, dialect in _MODULES if module.startswith(prefix)), None)


def _as_document(given: Any) -> dict[str, Any]:
    try:
        document = as_json_value(given)
    except RecursionError:
        raise InvalidMessage("the message is nested too deep to be stored") from None
    if not isinstance(document, dict):
        raise InvalidMessage(f"a message must be an object with a role; got {shown(given)}")
    check_json(document, field="message")
    return document


def as_json_value(value: Any) -> Any:
    """The value with SDK objects at any depth turned into what they are on the wire."""
    if _is_model(value):
        return _dumped(value)
    if isinstance(value, Mapping):
        return {key: as_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json_value(item) for item in value]
    return value


def _dumped(model: Any) -> dict[str, Any]:
    """The provider's fields by the provider's names, without what the SDK has parsed for its caller."""
    document: dict[str, Any] = model.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude=getattr(model, "__api_exclude__", None),
        warnings=False,
    )
    for field in document:
        inner = getattr(model, field, None)
        if isinstance(inner, list) and any(_is_model(item) for item in inner):
            # Each object inside knows best what of it was parsed.
            document[field] = as_json_value(inner)
    return document


def _is_model(value: Any) -> bool:
    return hasattr(value, "model_dump") and not isinstance(value, type)


# Guessing


def _guessed(document: dict[str, Any]) -> str | None:
    """The dialect that the message's own shape shows; None when it could be anybody's."""
    if "role" not in document:
        return _guessed_without_role(document)
    if isinstance(document.get("dialect"), str):
        return str(document["dialect"])
    if calls := document.get("tool_calls"):
        return "plain" if _are_plain_calls(calls) else "openai_chat"
    if document["role"] == "function" or not _CHAT_FIELDS.isdisjoint(document):
        return "openai_chat"
    blocks = document.get("content")
    shown_by = _dialect_of_blocks(blocks) if isinstance(blocks, list) and document["role"] != "tool" else None
    return shown_by or ("openai_responses" if document.get("type") == "message" else None)


def _guessed_without_role(document: dict[str, Any]) -> str:
    kind = document.get("type")
    if kind == "text" or kind in _BLOCK_DIALECTS:
        raise InvalidMessage(
            f"a {kind} block is content, not a message; hand it in as {{'role': …, 'content': [block]}}",
            field="role",
        )
    if not isinstance(kind, str):
        raise InvalidMessage("a message needs a role", field="role")
    return "openai_responses"


def _are_plain_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(isinstance(call, dict) and "name" in call for call in calls)


def _dialect_of_blocks(blocks: list[Any]) -> str | None:
    kinds = (block.get("type") for block in blocks if isinstance(block, dict))
    return next(
        (_BLOCK_DIALECTS[kind] for kind in kinds if isinstance(kind, str) and kind in _BLOCK_DIALECTS), None
    )


def _all_typed(blocks: list[Any]) -> bool:
    return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks)
