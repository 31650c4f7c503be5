"""Gemini's `generateContent`.

Parsing: a content keeps its parts; the role `model` becomes `assistant` and stays in `extra`. Thought
signatures are fields of parts and stay with them. Field names may be in either case.

Rendering:

- The system prompt goes to `systemInstruction`.
- The first content is the user's, and the contents of a role are joined, because a function call must follow
  the user's content or function responses directly.
- Function responses are a content of their own, in the order of the calls: without ids, Gemini pairs them by
  order. They name the function.
- A converted call has no thought signature. Newer models accept the documented placeholder instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects.conversion import ANY_ID, arguments_object, check_role, with_error_prefix
from aforesaid.dialects.keyed_blocks import GENERATED_ID, field, keyed, typed
from aforesaid.dialects.keyed_requests import NATIVE, ROLES, arrange
from aforesaid.dialects.parse import Request, text_of
from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Message, Role

NAME = "gemini"
CALL_IDS = ANY_ID
NO_SIGNATURE = "skip_thought_signature_validator"
"""The documented signature of a function call that another model made."""

_NAMES: dict[Role, str] = {"user": "user", "assistant": "model"}
_INVALID_IN_NAME = lazy_pattern(r"[^a-zA-Z0-9_.:-]")
_LONGEST_NAME = 64

Block = dict[str, Any]


def read_one(document: dict[str, Any]) -> Message:
    """Parse one content of the `contents` list."""
    if "role" not in document:
        document = {"role": "user", **document}  # the API's default
    role = check_role(document, (*ROLES, "system"), dialect=NAME)
    if role == "system":
        return Message(role="system", content=_checked_parts(document), dialect=NAME)
    extra = {name: value for name, value in document.items() if name not in ("role", "parts", "content")}
    if role != ROLES[role]:
        extra["role"] = role
    return Message(role=ROLES[role], content=_checked_parts(document), dialect=NAME, extra=extra)


def write(messages: Sequence[Message]) -> Request:
    """Render the `contents` and the `systemInstruction` of a request."""
    arranged = arrange(messages, NAME)
    calls = _calls_in([block for message in arranged.messages for block in message.blocks])
    contents: list[Block] = []
    for message in arranged.messages:
        results = sorted(
            (block for block in message.blocks if block["type"] == "tool_result"),
            key=lambda block: calls.get(block["tool_use_id"], _UNKNOWN).order,
        )
        rest = [media for block in results for media in _media_of(block)]
        rest += [block for block in message.blocks if block["type"] != "tool_result"]
        for group in (results, rest):
            if group:
                parts = [_part(block, calls) for block in group]
                contents.append(
                    {"role": _NAMES[message.role], "parts": _with_signature(parts), **message.fields}
                )
    system = {"parts": [{"text": text} for text in arranged.system]} if arranged.system else None
    return Request(messages=contents, system=system)


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a function response."""
    response = {"name": name, "response": {"error" if is_error else "output": text}}
    # A call without an id is known by its name.
    identified = response if call_id == name else {"id": call_id, **response}
    return Message(role="user", content=[{"functionResponse": identified}], dialect=NAME)


def _checked_parts(document: Mapping[str, Any]) -> Any:
    parts = document.get("parts", document.get("content"))
    if isinstance(parts, str):
        return [{"text": parts}]
    if not isinstance(parts, list) or not parts:
        raise InvalidMessage(f"a content of Gemini needs a list of parts; got {shown(parts)}", field="parts")
    for part in parts:
        if not isinstance(part, dict):
            raise InvalidMessage(f"a part must be an object; got {shown(part)}", field="parts", value=part)
        found = keyed(part)
        if found and found.key in ("functionCall", "functionResponse") and not field(found.value, "name"):
            raise InvalidMessage(f"a {found.key} needs a name", field="parts")
    return parts


# Calls


class _Call:
    def __init__(self, order: int, name: str, *, has_id: bool) -> None:
        self.order = order
        self.name = name
        self.has_id = has_id


_UNKNOWN = _Call(10**9, "unknown", has_id=False)


def _calls_in(blocks: Sequence[Block]) -> dict[str, _Call]:
    calls: dict[str, _Call] = {}
    for block in blocks:
        if block["type"] == "tool_use":
            native = keyed(block.get(NATIVE))
            has_id = native is not None and bool(field(native.value, "id"))
            calls[block["id"]] = _Call(len(calls), _name(block["name"]), has_id=has_id)
    return calls


def _name(name: str) -> str:
    return _INVALID_IN_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


# Parts


def _part(block: Block, calls: Mapping[str, _Call]) -> Block:
    if NATIVE in block:
        part = {name: value for name, value in block[NATIVE].items() if name != GENERATED_ID}
        return _aligned(part, block, calls) if block["type"] == "tool_result" else part
    match block:
        case {"type": "tool_use", "id": call_id, "input": arguments}:
            return {"functionCall": {"name": calls[call_id].name, "args": arguments_object(arguments)}}
        case {"type": "tool_result", "tool_use_id": call_id}:
            return {"functionResponse": _response(block, calls.get(call_id, _UNKNOWN), call_id)}
    return _media(block)


def _media(block: Block) -> Block:
    match block:
        case {"source": {"type": "base64", "media_type": kind, "data": data}}:
            return {"inlineData": {"mimeType": kind, "data": data}}
        case {"type": "image", "source": {"url": url}}:
            return {"fileData": {"mimeType": "image/*", "fileUri": url}}
        case {"source": {"url": url, **rest}}:
            return {"fileData": {"mimeType": rest.get("media_type", "application/pdf"), "fileUri": url}}
    return {"text": str(block.get("text", ""))}


def _media_of(result: Block) -> list[Block]:
    """Return the images and files of a result, which a function response cannot contain, with a heading."""
    content = result.get("content")
    if NATIVE in result or not isinstance(content, list):
        return []
    media = [block for block in content if isinstance(block, dict) and isinstance(block.get("source"), dict)]
    heading = {"type": "text", "text": f"Returned by tool call {result['tool_use_id']}:"}
    return [heading, *media] if media else []


def _aligned(part: Block, block: Block, calls: Mapping[str, _Call]) -> Block:
    """Return a native response with an id exactly if its call has one."""
    found, call = keyed(part), calls.get(block["tool_use_id"])
    if found is None or call is None or call.has_id == bool(field(found.value, "id")):
        return part
    response = {name: value for name, value in found.value.items() if name != "id"}
    identity = {"id": block["tool_use_id"]} if call.has_id else {}
    return {**part, found.written: {**identity, **response}}


def _response(block: Block, call: _Call, call_id: str) -> Block:
    words = text_of(block.get("content"))
    failed = block.get("is_error") is True
    response = {"error": with_error_prefix(words, is_error=True)} if failed else {"output": words}
    return {**({"id": call_id} if call.has_id else {}), "name": call.name, "response": response}


def _with_signature(parts: list[Block]) -> list[Block]:
    """Sign the first converted call of a content, as newer models require. Native calls have a signature."""
    calls = [at for at, part in enumerate(parts) if "functionCall" in part or "function_call" in part]
    if not calls or any("thoughtSignature" in part or "thought_signature" in part for part in parts):
        return parts
    first = calls[0]
    if typed(parts[first]) is None or "function_call" in parts[first]:
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": NO_SIGNATURE}, *parts[first + 1 :]]
