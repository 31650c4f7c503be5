"""Convert a caller's values to JSON documents and detect their dialect.

SDK objects are recognized by their `model_dump` method, so no SDK is imported.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from aforesaid.dialects.keyed_blocks import is_keyed, keyed
from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Message
from aforesaid.model.wire import check_json

ChatVariantName = Literal["mistral", "ollama", "vllm", "azure", "openrouter"]
"""The names of servers that implement OpenAI's chat API with differences."""
DialectName = Literal[
    "plain", "anthropic", "openai_chat", "openai_responses", "gemini", "bedrock", ChatVariantName
]
"""The names of the dialects."""


_CHAT_VARIANTS = frozenset(get_args(ChatVariantName))


def form_of(dialect: str) -> str:
    """Return the dialect that the log keeps: a variant of OpenAI's chat API has that API's form."""
    return "openai_chat" if dialect in _CHAT_VARIANTS else dialect


_MODULES = (
    ("anthropic.", "anthropic"),
    ("openai.types.chat", "openai_chat"),
    ("openai.types.responses", "openai_responses"),
    ("google.genai", "gemini"),
    ("mistralai.", "openai_chat"),
    ("ollama.", "openai_chat"),
)
# Fields that only Aforesaid's own form has.
_LABELS = frozenset(("timestamp", "content_type", "dialect"))

_ROLES_LACKING = {
    "plain": ("developer",),
    "anthropic": ("developer", "tool"),
    "openai_responses": ("tool",),
    "gemini": ("developer", "tool"),
    "bedrock": ("developer", "tool"),
}
_CHAT_FIELDS = frozenset(("function_call", "refusal", "audio", "annotations", "images", "tool_name"))
_ANTHROPIC_BLOCKS = frozenset(
    (
        "image",
        "document",
        "search_result",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "container_upload",
        "compaction",
        "tool_addition",
        "tool_removal",
        "fallback",
        "mcp_tool_listing",
    )
)
_CHAT_BLOCKS = frozenset(("image_url", "input_audio", "file", "document_url", "audio_url", "video_url"))
_RESPONSES_BLOCKS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_BLOCK_DIALECTS = {
    **dict.fromkeys(_ANTHROPIC_BLOCKS, "anthropic"),
    **dict.fromkeys(_CHAT_BLOCKS, "openai_chat"),
    **dict.fromkeys(_RESPONSES_BLOCKS, "openai_responses"),
}


class RawMessage(Struct, frozen=True, kw_only=True):
    """A message as JSON, with its dialect if known."""

    document: dict[str, Any]
    dialect: str | None


def unpack(value: Any) -> list[RawMessage | Message]:
    """Return every message in a value: a message, a list of messages, or a whole response."""
    if isinstance(value, (list, tuple)):
        try:
            return [each for item in value for each in unpack(item)]
        except RecursionError:
            raise InvalidMessage("the messages are nested too deeply") from None
    if isinstance(value, Message):
        return [value]
    return list(_unpack_one(value))


def with_detected_dialect(value: RawMessage) -> RawMessage:
    """Return the message with the dialect that its shape shows, if any."""
    return (
        value
        if value.dialect
        else RawMessage(document=value.document, dialect=_detect_dialect(value.document))
    )


def default_dialect(value: Sequence[RawMessage]) -> str:
    """Return the dialect for messages that show none: that of the first message that shows one.

    If no message shows one, blocks count as Anthropic's, a developer message or a tool message with
    `tool_call_id` as OpenAI chat, and text as plain.
    """
    detected = next((each.dialect for each in value if each.dialect), None)
    candidates = (_likely_dialect(each.document) for each in value)
    return detected or next((dialect for dialect in candidates if dialect != "plain"), "plain")


def dialect_for(value: RawMessage, default: str) -> str:
    """Return the message's own dialect, else the default one, unless that does not have the message's
    role.
    """
    if value.dialect is not None:
        return value.dialect
    if value.document["role"] in _ROLES_LACKING.get(default, ()):
        return _likely_dialect(value.document)
    return default


def _likely_dialect(document: Mapping[str, Any]) -> str:
    if document.get("role") == "developer" or "tool_call_id" in document:
        return "openai_chat"
    content = document.get("content")
    if is_keyed(content):
        return "bedrock"
    has_blocks = isinstance(content, list) and bool(content) and _all_typed(content)
    return "anthropic" if has_blocks and document.get("role") != "tool" else "plain"


def is_documented_form(document: Mapping[str, Any]) -> bool:
    """Return whether this is Aforesaid's own form of a message."""
    return not _LABELS.isdisjoint(document)


def _unpack_one(value: Any) -> Iterator[RawMessage]:
    hint = _dialect_of_type(value)
    document = _as_document(value)
    if isinstance(document.get("choices"), list):
        yield _raw_message(_first_choice(document), "openai_chat")
    elif document.get("object") == "response" and isinstance(document.get("output"), list):
        yield from (_raw_message(item, "openai_responses") for item in document["output"])
    elif isinstance(document.get("candidates"), list):
        yield _raw_message(_first_candidate(document), "gemini")
    elif isinstance(message := _converse_message(document), dict):
        yield _raw_message(message, "bedrock")
    elif isinstance(message := document.get("message"), dict) and "done" in document:  # Ollama
        yield _raw_message(message, "openai_chat")
    elif _is_anthropic_response(document, hint):
        yield _raw_message({"role": document["role"], "content": document["content"]}, "anthropic")
    else:
        yield _raw_message(document, hint)


def _raw_message(document: Any, dialect: str | None) -> RawMessage:
    if not isinstance(document, dict):
        raise InvalidMessage(f"a message must be an object; got {shown(document)}")
    return RawMessage(document=document, dialect=dialect)


def _first_choice(document: dict[str, Any]) -> Any:
    match document["choices"]:
        case [{"message": dict(message)}, *_]:
            return message
    raise InvalidMessage("a chat completion needs a choice with a message", field="choices")


def _first_candidate(document: dict[str, Any]) -> Any:
    match document["candidates"]:
        case [{"content": dict(content)}, *_] if content.get("parts"):
            return {"role": "model", **content}
    raise InvalidMessage("a response of Gemini needs a candidate with parts", field="candidates")


def _converse_message(document: dict[str, Any]) -> Any:
    """Return the message of a response of Bedrock's Converse API."""
    match document:
        case {"output": {"message": dict(message)}, "stopReason": str()}:
            return message
    return None


def _is_anthropic_response(document: dict[str, Any], hint: str | None) -> bool:
    if document.get("type") != "message" or "role" not in document or "content" not in document:
        return False
    return hint == "anthropic" or "stop_reason" in document or "usage" in document


def _dialect_of_type(value: Any) -> str | None:
    module = type(value).__module__
    return next((dialect for prefix, dialect in _MODULES if module.startswith(prefix)), None)


def _as_document(value: Any) -> dict[str, Any]:
    try:
        document = as_json_value(value)
    except RecursionError:
        raise InvalidMessage("the message is nested too deeply") from None
    if not isinstance(document, dict):
        raise InvalidMessage(f"a message must be an object with a role; got {shown(value)}")
    check_json(document, field="message")
    return document


def as_json_value(value: Any) -> Any:
    """Return the value with SDK objects at any depth converted to JSON."""
    if _is_model(value):
        return _dump(value)
    if isinstance(value, Mapping):
        return {key: _as_json_field(key, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json_value(item) for item in value]
    return value


def _as_json_field(key: Any, value: Any) -> Any:
    # The SDKs of Gemini and Bedrock take media as bytes; their interfaces send it as base64.
    if isinstance(value, bytes) and key in ("bytes", "data"):
        return base64.b64encode(value).decode("ascii")
    return as_json_value(value)


def _dump(model: Any) -> dict[str, Any]:
    """Return the provider's fields under the provider's names, without fields that the SDK derived."""
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
            # Each nested object has its own list of derived fields.
            document[field] = as_json_value(inner)
    return document


def _is_model(value: Any) -> bool:
    return hasattr(value, "model_dump") and not isinstance(value, type)


# Detection by shape


def _detect_dialect(document: dict[str, Any]) -> str | None:
    """Return the dialect that the message's shape shows, or None when several fit."""
    if "role" not in document:
        return _dialect_without_role(document)
    if isinstance(document.get("dialect"), str):
        return str(document["dialect"])
    if calls := document.get("tool_calls"):
        return "plain" if _are_plain_calls(calls) else "openai_chat"
    if document["role"] == "function" or not _CHAT_FIELDS.isdisjoint(document):
        return "openai_chat"
    if isinstance(document.get("parts"), list):
        return "gemini"
    blocks = document.get("content")
    if _is_converse(blocks):
        return "bedrock"
    detected = _dialect_of_blocks(blocks) if isinstance(blocks, list) and document["role"] != "tool" else None
    return detected or ("openai_responses" if document.get("type") == "message" else None)


def _dialect_without_role(document: dict[str, Any]) -> str:
    kind = document.get("type")
    if kind == "text" or kind in _BLOCK_DIALECTS:
        raise InvalidMessage(
            f"a {kind} block is content, not a message; pass {{'role': …, 'content': [block]}}",
            field="role",
        )
    if not isinstance(kind, str):
        raise InvalidMessage("a message needs a role", field="role")
    return "openai_responses"


def _are_plain_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(isinstance(call, dict) and "name" in call for call in calls)


def _dialect_of_blocks(blocks: list[Any]) -> str | None:
    dialects = (_dialect_of_block(block) for block in blocks if isinstance(block, dict))
    return next((dialect for dialect in dialects if dialect is not None), None)


def _dialect_of_block(block: dict[str, Any]) -> str | None:
    kind = block.get("type")
    if kind == "thinking" and isinstance(block.get("thinking"), list):
        return "openai_chat"  # Mistral's thinking is a list of text; Anthropic's is text with a signature
    if not isinstance(kind, str):
        return None
    # Tools that Anthropic runs, also those of later versions.
    own = "anthropic" if kind.endswith(("_tool_use", "_tool_result")) else None
    return _BLOCK_DIALECTS.get(kind, own)


def _is_converse(blocks: Any) -> bool:
    """Return whether these are blocks of Bedrock, at least one of which is not text."""
    return is_keyed(blocks) and any(
        found.key not in ("text", "json") for found in map(keyed, blocks) if found
    )


def _all_typed(blocks: list[Any]) -> bool:
    return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks)
