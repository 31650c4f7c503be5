"""Servers that implement OpenAI's chat API with differences: Mistral, Ollama, vLLM, Azure and OpenRouter.

Parsing: the log keeps a message as it came, in the dialect `openai_chat`. Rendering: a variant changes the
messages of OpenAI's API where its server refuses them or expects another form.

- Mistral: ids of nine letters and digits, thinking as content, documents by URL, no other fields. A system
  message never follows an answer, and a user message never follows a result. A final answer is a prefix.
- Ollama: its own API; see `ollama`.
- vLLM: the role `system` instead of `developer`, no files, no custom tools. It reads `reasoning`.
- Azure: no fields besides those of the request's schema, no files, and `content` in every message.
- OpenRouter: `reasoning_details` go back unchanged. No custom tools.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from aforesaid.dialects import ollama, openai_chat
from aforesaid.dialects.conversion import OPENING, CallIdRule, arguments_text, convertible_parts
from aforesaid.dialects.parse import Image, Other, Request, Text, parts_in
from aforesaid.model.messages import Message

Document = dict[str, Any]
Render = Callable[[list[Document]], list[Document]]


class ChatVariant(Struct, frozen=True, kw_only=True):
    """A server with OpenAI's chat API, as a dialect."""

    NAME: str
    render: Render
    CALL_IDS: CallIdRule = openai_chat.CALL_IDS

    def read_one(self, document: Document) -> Message:
        """Parse one message of the `messages` list."""
        return openai_chat.read_one(document)

    def write(self, messages: Sequence[Message]) -> Request:
        """Render the `messages` of a request."""
        return Request(messages=self.render(openai_chat.documents_of(messages)))

    def result(self, *, call_id: str, name: str, text: str, is_error: bool) -> Message:
        """Return a tool result message."""
        return openai_chat.result(call_id=call_id, name=name, text=text, is_error=is_error)


# Shared steps


def _each(documents: Iterable[Document], *steps: Callable[[Document], Document]) -> list[Document]:
    """Return the messages after these steps, without answers that have nothing left."""
    rendered = []
    for document in documents:
        for step in steps:
            document = step(document)
        if document["role"] != "assistant" or document.get("content") or document.get("tool_calls"):
            rendered.append(document)
    return rendered


def _with_system_role(document: Document) -> Document:
    return {**document, "role": "system"} if document["role"] == "developer" else document


def _with_words(document: Document) -> Document:
    """Return an answer whose refusal or transcript is its content, for servers without these fields."""
    if document["role"] != "assistant":
        return document
    audio, content = document.get("audio"), document.get("content")
    transcript = audio.get("transcript") if isinstance(audio, dict) and not content else None
    words = [text for text in (document.get("refusal"), transcript) if isinstance(text, str) and text]
    kept = {name: value for name, value in document.items() if name not in ("refusal", "audio")}
    if isinstance(content, list):
        return {**kept, "content": [*map(_without_refusal, content), *map(_text_part, words)]}
    return {**kept, "content": "\n".join([*([content] if content else []), *words]) or content}


def _without_refusal(part: Document) -> Document:
    return _text_part(str(part.get("refusal"))) if part.get("type") == "refusal" else part


def _text_part(text: str) -> Document:
    return {"type": "text", "text": text}


def _with_function_calls(document: Document) -> Document:
    """Return an answer whose calls of custom tools are calls of functions."""
    calls = document.get("tool_calls")
    if not isinstance(calls, list) or not any("custom" in call for call in calls):
        return document
    return {**document, "tool_calls": [_function_call(call) for call in calls]}


def _function_call(call: Document) -> Document:
    custom = call.get("custom")
    if not isinstance(custom, Mapping):
        return call
    function = {"name": custom.get("name"), "arguments": arguments_text(custom.get("input"))}
    return {"id": call.get("id"), "type": "function", "function": function}


def _with_parts(convert: Callable[[Document], Document | None]) -> Callable[[Document], Document]:
    """Return a step that converts the parts of a user's message."""

    def step(document: Document) -> Document:
        content = document.get("content")
        if document["role"] != "user" or not isinstance(content, list):
            return document
        parts = [_described(part) if (own := convert(part)) is None else own for part in content]
        return {**document, "content": parts}

    return step


def _described(part: Document) -> Document:
    """Return a part that the server refuses as text."""
    found = convertible_parts(parts_in([part]))
    match found[0] if found else None:
        case Text(text=text) | Other(text=text):
            return _text_part(text)
        case Image():
            return _text_part("[image]")
    return _text_part(f"[{part.get('type')}]")


def _with_fields(fields: Mapping[str, Sequence[str]]) -> Callable[[Document], Document]:
    """Return a step that keeps role, content, and these fields by role."""

    def step(document: Document) -> Document:
        own = fields.get(document["role"], ())
        kept = {name: document[name] for name in own if document.get(name) is not None}
        return {"role": document["role"], "content": document.get("content"), **kept}

    return step


def _kinds(*kinds: str, own: Sequence[str] = ()) -> Callable[[Document], Document | None]:
    """Return a conversion to parts of OpenAI's API of these kinds, and the server's own ones unchanged."""

    def convert(part: Document) -> Document | None:
        parts = [part] if part.get("type") in own else openai_chat.own_parts(part)
        return parts[0] if parts and parts[0]["type"] in (*kinds, *own) else None

    return convert


# vLLM


def _vllm(documents: list[Document]) -> list[Document]:
    return _each(
        documents,
        _with_system_role,
        _with_words,
        _with_function_calls,
        _with_parts(_kinds("text", "image_url", "input_audio", own=("audio_url", "video_url"))),
        _without_details,
    )


def _without_details(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "reasoning_details"}


# Azure

_AZURE_FIELDS = {
    "system": ("name",),
    "developer": ("name",),
    "user": ("name",),
    "assistant": ("name", "tool_calls"),
    "tool": ("tool_call_id",),
}


def _azure(documents: list[Document]) -> list[Document]:
    return _each(
        documents,
        _with_words,
        _with_parts(_kinds("text", "image_url", "input_audio")),
        _with_fields(_AZURE_FIELDS),
        _with_plain_calls,
        _with_plain_parts,
    )


def _with_plain_calls(document: Document) -> Document:
    """Return an answer whose calls have no field besides those of the schema, such as `index`."""
    calls = document.get("tool_calls")
    if calls is None:
        return document
    fields = ("id", "type", "function", "custom")
    kept = [{name: call[name] for name in fields if name in call} for call in calls]
    return {**document, "tool_calls": kept}


def _with_plain_parts(document: Document) -> Document:
    """Return a message whose parts have no marks of other providers, such as a breakpoint of a cache."""
    content = document.get("content")
    if not isinstance(content, list):
        return document
    return {**document, "content": [_plain_part(part) for part in content]}


def _plain_part(part: Document) -> Document:
    fields = ("type", part.get("type"), "document_name", "closed")
    return part if set(part) <= set(fields) else {name: part[name] for name in fields if name in part}


# OpenRouter


def _openrouter(documents: list[Document]) -> list[Document]:
    convert = _kinds("text", "image_url", "input_audio", "file", own=("video_url",))
    return _each(documents, _with_words, _with_function_calls, _with_parts(convert), _with_valid_details)


def _with_valid_details(document: Document) -> Document:
    details = document.get("reasoning_details")
    if details is None:
        return document
    typed = isinstance(details, list) and all(
        isinstance(each, dict) and str(each.get("type")).startswith("reasoning.") for each in details
    )
    return document if typed and document["role"] == "assistant" else _without_details(document)


# Mistral

_MISTRAL_FIELDS = {"assistant": ("tool_calls",), "tool": ("tool_call_id", "name")}
# The server refuses a user message directly after a result.
_BETWEEN = {"role": "assistant", "content": "OK"}


def _mistral(documents: list[Document]) -> list[Document]:
    rendered = _each(
        documents,
        _with_system_role,
        _with_words,
        _with_function_calls,
        _with_parts(_mistral_part),
        _with_mistral_answer,
        _with_fields(_MISTRAL_FIELDS),
        _with_plain_calls,
        _with_plain_parts,
    )
    return _as_prefix(_in_mistral_order(rendered))


def _mistral_part(part: Document) -> Document | None:
    match part:
        case {"type": "text" | "image_url" | "document_url"}:
            return part
        case {"type": "input_audio", "input_audio": str()}:
            return part
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return {"type": "input_audio", "input_audio": data}
        case {"type": "file", "file": {"file_data": str(url), **rest}}:
            name = {"document_name": rest["filename"]} if isinstance(rest.get("filename"), str) else {}
            return {"type": "document_url", "document_url": url, **name}
    return None


def _with_mistral_answer(document: Document) -> Document:
    content = document.get("content")
    if document["role"] != "assistant" or not isinstance(content, list):
        return document
    kept = [part for part in content if part.get("type") in ("text", "thinking")]
    return {**document, "content": kept or None}


def _in_mistral_order(documents: Sequence[Document]) -> list[Document]:
    ordered: list[Document] = []
    if documents and documents[0]["role"] == "assistant":
        ordered.append({"role": "user", "content": OPENING})
    for document in documents:
        before = ordered[-1]["role"] if ordered else None
        if document["role"] == "system" and before in ("assistant", "tool"):
            ordered.insert(_after_question(ordered), document)
            continue
        if document["role"] == "user" and before == "tool":
            ordered.append(_BETWEEN)
        ordered.append(document)
    return ordered


def _after_question(documents: Sequence[Document]) -> int:
    """Return the index behind the last message that a system message may follow."""
    asked = (at for at in reversed(range(len(documents))) if documents[at]["role"] in ("user", "system"))
    return next(asked, -1) + 1


def _as_prefix(documents: list[Document]) -> list[Document]:
    """Return the messages with a final answer marked as one to continue."""
    if not documents or documents[-1]["role"] != "assistant" or documents[-1].get("tool_calls"):
        return documents
    return [*documents[:-1], {**documents[-1], "prefix": True}]


MISTRAL = ChatVariant(NAME="mistral", render=_mistral, CALL_IDS=CallIdRule(letters_and_digits=9))
OLLAMA = ChatVariant(
    NAME="ollama",
    render=lambda documents: ollama.render(
        _each(documents, _with_system_role, _with_words, _with_function_calls)
    ),
)
VLLM = ChatVariant(NAME="vllm", render=_vllm)
AZURE = ChatVariant(NAME="azure", render=_azure)
OPENROUTER = ChatVariant(
    NAME="openrouter", render=_openrouter, CALL_IDS=CallIdRule(max_length=40, regular=True)
)
