"""Ollama's own chat API, rendered from messages of OpenAI's.

- Content is text. Images are base64 data in `images`; an image at a URL is mentioned.
- A call has no id, and its arguments are an object. Results name their tool, in the order of the calls.
- Thinking is the text field `thinking`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aforesaid.dialects.conversion import arguments_object
from aforesaid.dialects.parse import Image, Other, Part, Text, parts_in

Document = dict[str, Any]

_THINKING = ("thinking", "reasoning", "reasoning_content")


def render(documents: Sequence[Document]) -> list[Document]:
    """Return the messages in the form of Ollama's API."""
    return list(_rendered(documents))


def _rendered(documents: Sequence[Document]) -> Iterator[Document]:
    names: dict[str, str] = {}
    results: list[Document] = []
    for document in documents:
        if document["role"] == "tool":
            results.append(document)
            continue
        yield from _results(results, names)
        results, names = [], {call["id"]: call["function"]["name"] for call in _calls_of(document)}
        yield _message(document)
    yield from _results(results, names)


def _results(results: Sequence[Document], names: dict[str, str]) -> Iterator[Document]:
    order = list(names)
    known = [each for each in results if each.get("tool_call_id") in names]
    for document in sorted(known, key=lambda each: order.index(each["tool_call_id"])):
        text, _ = _split(parts_in(document.get("content")))
        yield {"role": "tool", "content": text, "tool_name": names[document["tool_call_id"]]}


def _message(document: Document) -> Document:
    text, images = _split(parts_in(document.get("content")))
    message: Document = {"role": document["role"], "content": text}
    if images:
        message["images"] = images
    thinking = next((document[name] for name in _THINKING if isinstance(document.get(name), str)), "")
    if thinking and document["role"] == "assistant":
        message["thinking"] = thinking
    if calls := [_call(call) for call in _calls_of(document)]:
        message["tool_calls"] = calls
    return message


def _calls_of(document: Document) -> list[Document]:
    calls = document.get("tool_calls")
    return [call for call in calls if "function" in call] if isinstance(calls, list) else []


def _call(call: Document) -> Document:
    function = call["function"]
    arguments = arguments_object(function.get("arguments"))
    return {"function": {"name": function["name"], "arguments": arguments}}


def _split(parts: Sequence[Part]) -> tuple[str, list[str]]:
    """Return the text and the images of a message."""
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        if isinstance(part, Image) and part.data is not None:
            images.append(part.data)
        elif isinstance(part, Image):
            texts.append(f"[image: {part.url}]")
        elif isinstance(part, Text | Other):
            texts.append(part.text)
    return "\n".join(texts), images
