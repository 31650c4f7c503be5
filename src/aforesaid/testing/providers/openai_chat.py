"""OpenAI's Chat Completions API over HTTP, as OpenAI, Azure, Ollama and vLLM implement it."""

from collections.abc import Iterator
from typing import Any

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

BASE_PATH = "/v1"
USAGE = {"prompt_tokens": 23, "completion_tokens": 7, "total_tokens": 30}


def problems(body: dict[str, Any]) -> list[str]:
    return rule_problems(body.get("messages", []), "openai_chat")


def wants_stream(request: Request) -> bool:
    return request.json.get("stream") is True


def reply(act: Act, request: Request) -> Response:
    choice = {"index": 0, "message": _message(act), "finish_reason": _finish_reason(act), "logprobs": None}
    document = _frame(request, "chat.completion") | {"choices": [choice], "usage": USAGE}
    return json_response(document, headers={"x-request-id": "req_1"})


def stream(act: Act, request: Request) -> Response:
    events = [sse(document) for document in _chunks(act, request)]
    return event_stream([*events, b"data: [DONE]\n\n"], act)


def failure(act: Fails) -> Response:
    return json_response(_error(act), status=act.status, headers=retry_headers(act))


def _error(act: Fails) -> dict[str, Any]:
    return {"error": {"message": act.words, "type": act.kind, "param": None, "code": act.kind}}


def _frame(request: Request, kind: str) -> dict[str, Any]:
    model = request.json.get("model", "deployed")
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": model}


def _message(act: Act) -> dict[str, Any]:
    says = as_says(act)
    message: dict[str, Any] = {"role": "assistant", "content": says.text or None, "refusal": None}
    if isinstance(act, Refuses):
        return message | {"content": None, "refusal": act.words}
    if says.thinking:
        message["reasoning_content"] = says.thinking
    if says.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in says.calls
        ]
    return message


def _finish_reason(act: Act) -> str:
    says = as_says(act)
    if isinstance(act, Refuses) and not act.words:
        return "content_filter"
    if says.out_of_room:
        return "length"
    return "tool_calls" if says.calls else "stop"


def _chunks(act: Act, request: Request) -> Iterator[dict[str, Any]]:
    frame = _frame(request, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None}

    yield chunk({"role": "assistant", "content": ""})
    if isinstance(act, Fails):
        yield _error(act)
        return
    yield from (chunk(delta) for delta in _deltas(act))
    yield chunk({}, _finish_reason(act))
    yield frame | {"choices": [], "usage": USAGE}


def _deltas(act: Act) -> Iterator[dict[str, Any]]:
    message = _message(act)
    for field in ("reasoning_content", "content", "refusal"):
        yield from ({field: piece} for piece in halves(message.get(field) or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        name, text = call["function"]["name"], call["function"]["arguments"]
        yield {"tool_calls": [{**call, "index": index, "function": {"name": name, "arguments": ""}}]}
        for piece in halves(text):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
