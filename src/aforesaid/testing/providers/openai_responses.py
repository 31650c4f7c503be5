"""OpenAI's Responses API over HTTP."""

from collections.abc import Iterator
from typing import Any

from aforesaid.testing.providers.openai_chat import failure
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
    sse,
)
from aforesaid.testing.validity import problems as rule_problems

__all__ = ["BASE_PATH", "failure", "problems", "reply", "stream", "wants_stream"]

BASE_PATH = "/v1"
USAGE = {
    "input_tokens": 23,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 30,
}


def problems(body: dict[str, Any]) -> list[str]:
    found = rule_problems(body.get("input", []), "openai_responses")
    items = [item for item in body.get("input", []) if isinstance(item, dict)]
    if body.get("store") is False:
        # Without storage the provider cannot look up items, so reasoning must be encrypted.
        found += [
            "reasoning that was not kept came back unsealed"
            for item in items
            if item.get("type") == "reasoning" and not item.get("encrypted_content")
        ]
    return found


def wants_stream(request: Request) -> bool:
    return request.json.get("stream") is True


def reply(act: Act, request: Request) -> Response:
    return json_response(_response(act, request), headers={"x-request-id": "req_1"})


def stream(act: Act, request: Request) -> Response:
    events = (
        sse(event | {"sequence_number": number}, event=event["type"])
        for number, event in enumerate(_events(act, request))
    )
    return event_stream(list(events), act)


def _response(act: Act, request: Request) -> dict[str, Any]:
    says = as_says(act)
    filtered = isinstance(act, Refuses) and not act.words
    incomplete = says.out_of_room or filtered
    why = {"reason": "content_filter" if filtered else "max_output_tokens"} if incomplete else None
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "incomplete" if incomplete else "completed",
        "error": None,
        "incomplete_details": why,
        "model": request.json.get("model"),
        "output": list(_output(act)),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
    }


def _output(act: Act) -> Iterator[dict[str, Any]]:
    says = as_says(act)
    part: dict[str, Any]
    if says.thinking:
        yield {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk"}
    if isinstance(act, Refuses):
        part = {"type": "refusal", "refusal": act.words}
        yield {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    elif says.text:
        part = {"type": "output_text", "text": says.text, "annotations": []}
        yield {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    for call in says.calls:
        yield {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_text(call),
            "status": "completed",
        }


def _events(act: Act, request: Request) -> Iterator[dict[str, Any]]:
    begun = _response(act, request) | {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    if isinstance(act, Fails):
        error = {"code": act.kind, "message": act.words}
        yield {"type": "response.failed", "response": begun | {"status": "failed", "error": error}}
        return
    whole = _response(act, request)
    for index, item in enumerate(whole["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield from _item_events(index, item)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        for piece in halves(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    for at, part in enumerate(item.get("content", ())):
        text = part.get("text")
        for piece in halves(text or ""):
            where = {**place, "content_index": at, "logprobs": []}
            yield {"type": "response.output_text.delta", **where, "delta": piece}
