"""Amazon Bedrock's Converse API over HTTP, including its binary event stream."""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from aforesaid.testing.providers.protocol import (
    Act,
    Fails,
    Refuses,
    Request,
    Response,
    arguments_text,
    as_says,
    cut,
    halves,
    json_response,
    retry_headers,
)
from aforesaid.testing.validity import problems as rule_problems

BASE_PATH = ""
USAGE = {"inputTokens": 23, "outputTokens": 7, "totalTokens": 30}
_ERRORS = {429: "ThrottlingException", 400: "ValidationException", 403: "AccessDeniedException"}


def problems(body: dict[str, Any]) -> list[str]:
    messages = [_as_anthropic(message) for message in body.get("messages", [])]
    found = rule_problems(messages, "anthropic")
    roles = [message["role"] for message in messages]
    if any(one == other for one, other in pairwise(roles)):
        # Roles must alternate between user and assistant.
        found.append("two messages of one role follow each other")
    has_tools = any("toolUse" in block or "toolResult" in block for block in _blocks(body))
    if has_tools and not body.get("toolConfig"):
        found.append("toolConfig must be defined when using toolUse and toolResult content blocks")
    return found


def wants_stream(request: Request) -> bool:
    return request.path.endswith("/converse-stream")


def reply(act: Act, request: Request) -> Response:
    document = {
        "output": {"message": {"role": "assistant", "content": list(_content(act))}},
        "stopReason": _stop_reason(act),
        "usage": USAGE,
        "metrics": {"latencyMs": 1},
    }
    return json_response(document)


def stream(act: Act, request: Request) -> Response:
    pieces, breaks = cut([_frame(name, document) for name, document in _events(act)], act)
    if breaks:
        # The binary format has lengths, so a broken stream ends inside a frame.
        pieces = [*pieces[:-1], pieces[-1][: len(pieces[-1]) // 2]]
    kind = {"content-type": "application/vnd.amazon.eventstream"}
    return Response(headers=kind, pieces=pieces, breaks=breaks)


def failure(act: Fails) -> Response:
    kind = _ERRORS.get(act.status, "InternalServerException")
    headers = {"x-amzn-errortype": kind, **retry_headers(act)}
    return json_response({"message": act.words}, status=act.status, headers=headers)


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (block for message in body.get("messages", []) for block in message["content"])


def _as_anthropic(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a message to Anthropic's format, which has the same rules."""
    return {"role": message["role"], "content": [_as_anthropic_block(block) for block in message["content"]]}


def _as_anthropic_block(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"toolUse": {"toolUseId": call_id, "name": name, "input": given}}:
            return {"type": "tool_use", "id": call_id, "name": name, "input": given}
        case {"toolResult": {"toolUseId": call_id, "content": content}}:
            return {
                "type": "tool_result",
                "tool_use_id": call_id,
                "content": [_as_anthropic_block(inner) for inner in content],
            }
        case {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}:
            return {"type": "thinking", "thinking": text, "signature": signature}
        case {"text": text}:
            return {"type": "text", "text": text}
    return {"type": next(iter(block), "nothing")}


def _content(act: Act) -> Iterator[dict[str, Any]]:
    says = as_says(act)
    if says.thinking:
        signed = {"text": says.thinking, "signature": b64encode(b"signed").decode()}
        yield {"reasoningContent": {"reasoningText": signed}}
    if says.text:
        yield {"text": says.text}
    for call in says.calls:
        given = {} if isinstance(call.arguments, str) else call.arguments
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": given}}


def _stop_reason(act: Act) -> str:
    if isinstance(act, Refuses):
        return "content_filtered"
    says = as_says(act)
    if says.out_of_room:
        return "max_tokens"
    return "tool_use" if says.calls else "end_turn"


def _events(act: Act) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    if isinstance(act, Fails):
        yield _ERRORS.get(act.status, "modelStreamErrorException"), {"message": act.words}
        return
    texts = [arguments_text(call) for call in as_says(act).calls]
    for index, block in enumerate(_content(act)):
        place = {"contentBlockIndex": index}
        if "toolUse" in block:
            call = {field: block["toolUse"][field] for field in ("toolUseId", "name")}
            yield "contentBlockStart", {**place, "start": {"toolUse": call}}
            deltas = [{"toolUse": {"input": piece}} for piece in halves(texts.pop(0))]
        else:
            deltas = list(_deltas(block))
        yield from (("contentBlockDelta", {**place, "delta": delta}) for delta in deltas)
        yield "contentBlockStop", place
    yield "messageStop", {"stopReason": _stop_reason(act)}
    yield "metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match block:
        case {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}:
            yield {"reasoningContent": {"text": text}}
            yield {"reasoningContent": {"signature": signature}}
        case {"text": text}:
            yield from ({"text": piece} for piece in halves(text))


def _frame(name: str, document: dict[str, Any]) -> bytes:
    """Encode one event in AWS's binary format: lengths, their checksum, headers, payload, total checksum."""
    is_error = name.endswith("Exception")
    headers = b"".join(
        _header(key, value)
        for key, value in (
            (":exception-type" if is_error else ":event-type", name),
            (":content-type", "application/json"),
            (":message-type", "exception" if is_error else "event"),
        )
    )
    payload = json.dumps(document).encode()
    lengths = (16 + len(headers) + len(payload)).to_bytes(4) + len(headers).to_bytes(4)
    front = lengths + zlib.crc32(lengths).to_bytes(4) + headers + payload
    return front + zlib.crc32(front).to_bytes(4)


def _header(name: str, value: str) -> bytes:
    return bytes((len(name),)) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
