"""Blocks that are named by a key: those of Gemini and of Amazon Bedrock's Converse API.

    {"text": "hello"}                                                    both
    {"functionCall": {"name": "lookup", "args": {}}}                     Gemini
    {"toolUse": {"toolUseId": "t1", "name": "lookup", "input": {}}}      Bedrock

Other dialects name the type of a block in its field `type`. `typed` returns a keyed block in that form, so
that one parser serves all dialects. The other functions change a keyed block in place of a typed one.

Gemini's REST interface accepts field names in both cases (`functionCall`, `function_call`); a block keeps the
names it came with.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from aforesaid._internal.patterns import lazy_pattern

KEYED_DIALECTS = ("gemini", "bedrock")

GENERATED_ID = "aforesaidId"
"""The id of a Gemini call that came without one, while a request is rendered. It is never sent."""

_UPPER = lazy_pattern(r"_([a-z])")

Typed = dict[str, Any]


class Keyed(Struct, frozen=True):
    """A keyed block: its key in camel case, the key as written, and the value."""

    key: str
    written: str
    value: Any


def keyed(block: Any) -> Keyed | None:
    """Return the key and value of a keyed block; None for a block of another form."""
    if not isinstance(block, Mapping) or "type" in block:
        return None
    # Other fields may stand next to the key: a signature, or one that a later version added.
    found = [name for name in block if _camel(name) in _TYPED]
    if len(found) != 1:
        return None
    return Keyed(_camel(found[0]), found[0], block[found[0]])


def typed(block: Any) -> Typed | None:
    """Return a keyed block in the form of other dialects; None for a block of another form."""
    found = keyed(block)
    return None if found is None else _TYPED[found.key](block, found.value)


def is_keyed(content: Any) -> bool:
    """Return whether the content is a list of keyed blocks."""
    return isinstance(content, list) and bool(content) and all(keyed(block) for block in content)


def text_block(text: str) -> dict[str, Any]:
    return {"text": text}


# Changes


def with_call_id(block: Any, of_call: Callable[[str], str], of_result: Callable[[str], str]) -> Any:
    """Return the block with the id that these functions assign to its call or result."""
    found, form = keyed(block), typed(block)
    if found is None or form is None or form["type"] not in ("tool_use", "tool_result"):
        return block
    is_call = form["type"] == "tool_use"
    assigned = of_call(form["id"]) if is_call else of_result(form["tool_use_id"])
    if found.key in ("toolUse", "toolResult"):
        return {**block, found.written: {**found.value, "toolUseId": assigned}}
    if "id" in found.value:
        return {**block, found.written: {**found.value, "id": assigned}}
    # Gemini pairs calls without ids by order. An id that we add would be refused by some of its servers.
    return {**block, GENERATED_ID: assigned}


def with_result_text(block: Any, text: str) -> Any:
    """Return a result with this text as its content."""
    found = keyed(block)
    if found is None:
        return block
    if found.key == "toolResult":
        return {**block, found.written: {**found.value, "content": [text_block(text)]}}
    return {**block, found.written: {**found.value, "response": {"output": text}}}


def blank(block: Any, mark: str) -> Any:
    """Return a call or result without its content; None for other blocks."""
    found, form = keyed(block), typed(block)
    if found is None or form is None:
        return None
    value = found.value
    if found.key == "toolUse":
        return {found.written: {**_kept(value, "toolUseId", "name"), "input": {}}}
    if found.key == "toolResult":
        return {found.written: {**_kept(value, "toolUseId", "status"), "content": [text_block(mark)]}}
    if found.key == "functionCall":
        return {found.written: {**_kept(value, "id", "name"), "args": {}}}
    if found.key == "functionResponse":
        return {found.written: {**_kept(value, "id", "name"), "response": {"output": mark}}}
    return None


def _kept(value: Any, *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names if isinstance(value.get(name), str)}


# Gemini


def _text(block: Any, value: Any) -> Typed:
    if field(block, "thought") is True:
        return {"type": "thinking", "thinking": value}
    return {"type": "text", "text": value if isinstance(value, str) else ""}


def _function_call(block: Any, value: Any) -> Typed:
    name = str(field(value, "name") or "")
    call_id = block.get(GENERATED_ID) or field(value, "id") or name
    arguments = field(value, "args")
    return {
        "type": "tool_use",
        "id": str(call_id),
        "name": name,
        "input": {} if arguments is None else arguments,
    }


def _function_response(block: Any, value: Any) -> Typed:
    call_id = block.get(GENERATED_ID) or field(value, "id") or field(value, "name") or ""
    response = field(value, "response")
    failed = isinstance(response, Mapping) and "error" in response
    return {
        "type": "tool_result",
        "tool_use_id": str(call_id),
        "content": _response_text(response),
        **({"is_error": True} if failed else {}),
    }


def _response_text(response: Any) -> Any:
    """Return the only value of a response, which by convention is its output, result or error."""
    if isinstance(response, Mapping) and len(response) == 1:
        name, value = next(iter(response.items()))
        if name in ("output", "result", "error", "content"):
            return value
    return response


def _inline_data(block: Any, value: Any) -> Typed:
    return _media(str(field(value, "mimeType") or ""), field(value, "data"))


def _media(kind: str, data: Any) -> Typed:
    source = {"type": "base64", "media_type": kind, "data": data}
    if kind.startswith("image/"):
        return {"type": "image", "source": source}
    return {"type": "document" if kind == "application/pdf" else kind or "file", "source": source}


def _code(block: Any, value: Any) -> Typed:
    text = field(value, "code") or field(value, "output") or ""
    return {"type": "document", "source": {"type": "text", "data": str(text)}}


def _server_call(block: Any, value: Any) -> Typed:
    return _server_tool("server_tool_use", "id", field(value, "id"))


def _server_response(block: Any, value: Any) -> Typed:
    return _server_tool("server_tool_result", "tool_use_id", field(value, "id"))


def _server_tool(kind: str, name: str, call_id: Any) -> Typed:
    """Return a half of a tool that the provider runs: its call and response stay together."""
    return {"type": kind, name: call_id} if isinstance(call_id, str) else {"type": kind}


# Bedrock


def _tool_use(block: Any, value: Any) -> Typed:
    if not isinstance(value, Mapping):
        return {"type": "toolUse"}
    if value.get("type") == "server_tool_use":
        return _server_tool("server_tool_use", "id", value.get("toolUseId"))
    return {
        "type": "tool_use",
        "id": str(value.get("toolUseId") or ""),
        "name": str(value.get("name") or ""),
        "input": value.get("input", {}),
    }


def _tool_result(block: Any, value: Any) -> Typed:
    if not isinstance(value, Mapping):
        return {"type": "toolResult"}
    if value.get("type"):  # only results of tools that the provider runs have one
        return _server_tool("server_tool_result", "tool_use_id", value.get("toolUseId"))
    return {
        "type": "tool_result",
        "tool_use_id": str(value.get("toolUseId") or ""),
        "content": value.get("content"),
        **({"is_error": True} if value.get("status") == "error" else {}),
    }


def _image(block: Any, value: Any) -> Typed:
    match value:
        case {"format": str(kind), "source": {"bytes": str(data)}}:
            return {
                "type": "image",
                "source": {"type": "base64", "media_type": f"image/{kind}", "data": data},
            }
    return {"type": "image"}


def _document(block: Any, value: Any) -> Typed:
    match value:
        case {"source": {"text": str(text)}}:
            return {"type": "document", "source": {"type": "text", "data": text}}
        case {"format": "pdf", "source": {"bytes": str(data)}}:
            return _media("application/pdf", data)
    return {"type": "document"}


def _audio(block: Any, value: Any) -> Typed:
    match value:
        case {"format": str(kind), "source": {"bytes": str(data)}}:
            return _media(f"audio/{kind}", data)
    return {"type": "audio"}


def _file_data(block: Any, value: Any) -> Typed:
    """Return a file at an address that other providers can read, too."""
    kind, url = str(field(value, "mimeType") or ""), str(field(value, "fileUri") or "")
    if not url.startswith("https://") or "generativelanguage.googleapis.com" in url:
        return {"type": "file"}
    if kind.startswith("image/"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    if kind == "application/pdf":
        return {"type": "document", "source": {"type": "url", "url": url}}
    return {"type": "file"}


def _guarded(block: Any, value: Any) -> Typed:
    match value:
        case {"text": {"text": str(text)}}:
            return {"type": "text", "text": text}
    return {"type": "guardContent"}


def _cited(block: Any, value: Any) -> Typed:
    blocks = value.get("content") if isinstance(value, Mapping) else None
    words = [
        each["text"] for each in blocks or () if isinstance(each, dict) and isinstance(each.get("text"), str)
    ]
    cited = value.get("citations") if isinstance(value, Mapping) else None
    return {"type": "text", "text": "".join(words), **({"citations": cited} if cited else {})}


def _search_result(block: Any, value: Any) -> Typed:
    match value:
        case {"source": str(source), "title": str(title), "content": list(blocks)}:
            texts = [each["text"] for each in blocks if isinstance(each, dict) and each.get("text")]
            content = [{"type": "text", "text": text} for text in texts]
            return {"type": "search_result", "source": source, "title": title, "content": content}
    return {"type": "search_result"}


def _json(block: Any, value: Any) -> Typed:
    return {"type": "text", "text": as_json(value)}


def _named(kind: str) -> Callable[[Any, Any], Typed]:
    return lambda block, value: {"type": kind}


_TYPED: dict[str, Callable[[Any, Any], Typed]] = {
    "text": _text,
    "functionCall": _function_call,
    "functionResponse": _function_response,
    "inlineData": _inline_data,
    "fileData": _file_data,
    "executableCode": _code,
    "codeExecutionResult": _code,
    "toolCall": _server_call,
    "toolResponse": _server_response,
    "toolUse": _tool_use,
    "toolResult": _tool_result,
    "image": _image,
    "document": _document,
    "video": _named("video"),
    "audio": _audio,
    "json": _json,
    "reasoningContent": lambda block, value: {"type": "thinking"},
    "cachePoint": lambda block, value: {"type": "text", "text": ""},
    "guardContent": _guarded,
    "citationsContent": _cited,
    "searchResult": _search_result,
}


def with_bytes(value: Any) -> Any:
    """Return the value with media as bytes, as boto3 and Gemini's SDK take it."""
    if isinstance(value, list):
        return [with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _as_bytes(name, each, value) for name, each in value.items()}


def _as_bytes(name: str, value: Any, around: dict[str, Any]) -> Any:
    is_media = name == "bytes" or (name == "data" and field(around, "mimeType") is not None)
    if (is_media or name in ("thoughtSignature", "thought_signature")) and isinstance(value, str):
        return _decoded(value)
    return with_bytes(value)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        return text.encode()  # the documented placeholder of a signature


def as_json(value: Any) -> str:
    """Return the value as JSON text, or empty text when it is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return ""


# Names in both cases


def field(value: Any, name: str) -> Any:
    """Return a field by its name in camel case, however it is written."""
    if not isinstance(value, Mapping):
        return None
    if name in value:
        return value[name]
    return next((content for written, content in value.items() if _camel(written) == name), None)


def _camel(name: Any) -> str:
    return _UPPER.sub(lambda found: found[1].upper(), name) if isinstance(name, str) else ""
