"""Anthropic's Messages API over HTTP."""

from collections.abc import Iterator
from typing import Any

from aforesaid.dialects import Request as Written
from aforesaid.testing.providers.protocol import (
    Act,
    Fails,
    Refuses,
    Request,
    Response,
    arguments_text,
    as_says,
    event_stream,
    halves,
    json_response,
    retry_headers,
    sse,
)
from aforesaid.testing.validity import problems as rule_problems

BASE_PATH = ""
USAGE = {"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 3}


def problems(body: dict[str, Any]) -> list[str]:
    found = rule_problems(Written(messages=body.get("messages", []), system=body.get("system")), "anthropic")
    blocks = [block for message in body.get("messages", []) for block in _blocks(message)]
    if any(block.get("type") in ("tool_use", "tool_result") for block in blocks) and not body.get("tools"):
        # Requests with calls or results must describe tools.
        found.append("tools were called, and none is described")
    if "max_tokens" not in body:
        found.append("max_tokens is missing")
    return found


def wants_stream(request: Request) -> bool:
    return request.json.get("stream") is True


def reply(act: Act, request: Request) -> Response:
    message = _message(request) | {
        "content": list(_content(act)),
        "stop_reason": _stop_reason(act),
        "usage": USAGE,
    }
    return json_response(message, headers={"request-id": "req_1"})


def stream(act: Act, request: Request) -> Response:
    return event_stream([sse(event, event=event["type"]) for event in _events(act, request)], act)


def failure(act: Fails) -> Response:
    document = {"type": "error", "error": {"type": act.kind, "message": act.words}}
    return json_response(document, status=act.status, headers=retry_headers(act))


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message["content"] if isinstance(message.get("content"), list) else []


def _message(request: Request) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request.json.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 1},
    }


def _content(act: Act) -> Iterator[dict[str, Any]]:
    says = as_says(act)
    if says.thinking:
        yield {"type": "thinking", "thinking": says.thinking, "signature": "c2lnbmVk"}
    if says.text:
        yield {"type": "text", "text": says.text}
    for call in says.calls:
        given = {} if isinstance(call.arguments, str) else call.arguments
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def _stop_reason(act: Act) -> str:
    if isinstance(act, Refuses):
        return "refusal"
    says = as_says(act)
    if says.out_of_room or says.paused:
        return "max_tokens" if says.out_of_room else "pause_turn"
    return "tool_use" if says.calls else "end_turn"


def _events(act: Act, request: Request) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message(request)}
    yield {"type": "ping"}
    if isinstance(act, Fails):
        yield {"type": "error", "error": {"type": act.kind, "message": act.words}}
        return
    says = as_says(act)
    texts = {call.id: arguments_text(call) for call in says.calls}
    for index, block in enumerate(_content(act)):
        yield from _block_events(index, block, texts)
    delta = {"stop_reason": _stop_reason(act), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": USAGE}
    yield {"type": "message_stop"}


def _block_events(index: int, block: dict[str, Any], texts: dict[str, str]) -> Iterator[dict[str, Any]]:
    start: dict[str, Any]
    match block["type"]:
        case "text":
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
        case "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in halves(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            start = {**block, "input": {}}
            pieces = halves(texts[block["id"]])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
