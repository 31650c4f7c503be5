"""Conversations that happened, as data, and how each provider's own client would have written them.

The renderers here are written by hand from the providers' forms; they share nothing with the
dialects under test.
"""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

PNG = "iVBORw0KGgo="

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
unknown_fields = st.dictionaries(st.text(min_size=1).map("x_{}".format), json_values, max_size=2)
words = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))


class Call(Struct, frozen=True):
    """A tool call and what came back."""

    id: str
    arguments: dict[str, Any]
    answer: str
    with_image: bool
    is_error: bool


class Step(Struct, frozen=True):
    """One message of the model's: thinking, words, calls."""

    thinks: bool
    says: list[str]
    calls: list[Call]


class Exchange(Struct, frozen=True):
    """A question, the steps with calls, and the last words."""

    asks: list[str]
    shows_image: bool
    steps: list[Step]
    last: str


class History(Struct, frozen=True):
    """A whole conversation, perhaps with a system prompt."""

    system: str | None
    exchanges: list[Exchange]


_ids = st.integers(min_value=0, max_value=10**9)
_calls = st.builds(
    Call,
    _ids.map("call_{}".format),
    st.dictionaries(st.text(), json_values, max_size=2),
    st.text(max_size=20),
    st.booleans(),
    st.booleans(),
)
_steps = st.builds(Step, st.booleans(), st.lists(words, max_size=2), st.lists(_calls, min_size=1, max_size=3))
# Anthropic refuses blanks at the end of the last answer.
_last = words.map(str.rstrip)
_exchanges = st.builds(
    Exchange, st.lists(words, min_size=1, max_size=2), st.booleans(), st.lists(_steps, max_size=2), _last
)


def _ids_are_unique(history: History) -> bool:
    ids = [call.id for exchange in history.exchanges for step in exchange.steps for call in step.calls]
    return len(ids) == len(set(ids))


histories = st.builds(History, st.none() | words, st.lists(_exchanges, min_size=1, max_size=3)).filter(
    _ids_are_unique
)


# Anthropic


def as_anthropic(history: History) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if history.system is not None:
        messages.append({"role": "system", "content": history.system})
    for exchange in history.exchanges:
        messages.append({"role": "user", "content": _anthropic_question(exchange)})
        for step in exchange.steps:
            messages.append({"role": "assistant", "content": _anthropic_step(step)})
            messages.append({"role": "user", "content": [_anthropic_answer(call) for call in step.calls]})
        messages.append({"role": "assistant", "content": exchange.last})
    return messages


def _anthropic_question(exchange: Exchange) -> str | list[dict[str, Any]]:
    if len(exchange.asks) == 1 and not exchange.shows_image:
        return exchange.asks[0]
    blocks = [anthropic_image()] if exchange.shows_image else []
    return blocks + [{"type": "text", "text": text} for text in exchange.asks]


def _anthropic_step(step: Step) -> list[dict[str, Any]]:
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}] if step.thinks else []
    texts = [{"type": "text", "text": text} for text in step.says]
    calls = [
        {"type": "tool_use", "id": call.id, "name": "look", "input": call.arguments} for call in step.calls
    ]
    return [*thinking, *texts, *calls]


def _anthropic_answer(call: Call) -> dict[str, Any]:
    content: Any = call.answer
    if call.with_image:
        content = [anthropic_image()] + (
            [{"type": "text", "text": call.answer}] if call.answer.strip() else []
        )
    flag = {"is_error": True} if call.is_error else {}
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, **flag}


def anthropic_image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


# OpenAI chat


def as_openai_chat(history: History) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if history.system is not None:
        messages.append({"role": "developer", "content": history.system})
    for exchange in history.exchanges:
        messages.append({"role": "user", "content": _chat_question(exchange)})
        for step in exchange.steps:
            messages.append(_chat_step(step))
            messages.extend(
                {"role": "tool", "tool_call_id": call.id, "content": call.answer} for call in step.calls
            )
        messages.append({"role": "assistant", "content": exchange.last, "refusal": None})
    return messages


def _chat_question(exchange: Exchange) -> str | list[dict[str, Any]]:
    if len(exchange.asks) == 1 and not exchange.shows_image:
        return exchange.asks[0]
    blocks = [chat_image()] if exchange.shows_image else []
    return blocks + [{"type": "text", "text": text} for text in exchange.asks]


def _chat_step(step: Step) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps(call.arguments)},
        }
        for call in step.calls
    ]
    return {"role": "assistant", "content": "".join(step.says) or None, "tool_calls": calls}


def chat_image() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}


# OpenAI Responses


def as_openai_responses(history: History) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if history.system is not None:
        items.append({"role": "developer", "content": history.system})
    for exchange in history.exchanges:
        items.append({"role": "user", "content": _responses_question(exchange)})
        for number, step in enumerate(exchange.steps):
            items.extend(_responses_step(step, number))
        items.append(_responses_words(exchange.last))
    return items


def _responses_question(exchange: Exchange) -> list[dict[str, Any]]:
    blocks = [responses_image()] if exchange.shows_image else []
    return blocks + [{"type": "input_text", "text": text} for text in exchange.asks]


def _responses_words(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def _responses_step(step: Step, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if step.thinks:
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "e"})
    items.extend(_responses_words(text) for text in step.says)
    items.extend(
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": "look",
            "arguments": json.dumps(call.arguments),
        }
        for call in step.calls
    )
    items.extend(_responses_answer(call) for call in step.calls)
    return items


def _responses_answer(call: Call) -> dict[str, Any]:
    output: Any = call.answer
    if call.with_image:
        output = [{"type": "input_text", "text": call.answer}, responses_image()]
    return {"type": "function_call_output", "call_id": call.id, "output": output}


def responses_image() -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}


# Plain


def as_plain(history: History) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if history.system is not None:
        messages.append({"role": "system", "content": history.system})
    for exchange in history.exchanges:
        messages.append({"role": "user", "content": "\n".join(exchange.asks)})
        for step in exchange.steps:
            calls = [{"id": call.id, "name": "look", "arguments": call.arguments} for call in step.calls]
            messages.append({"role": "assistant", "content": "".join(step.says), "tool_calls": calls})
            messages.extend(_plain_answer(call) for call in step.calls)
        messages.append({"role": "assistant", "content": exchange.last})
    return messages


def _plain_answer(call: Call) -> dict[str, Any]:
    flag = {"is_error": True} if call.is_error else {}
    return {"role": "tool", "tool_call_id": call.id, "content": call.answer, **flag}


# Gemini


def as_gemini(history: History) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    if history.system is not None:
        contents.append({"role": "system", "parts": [{"text": history.system}]})
    for exchange in history.exchanges:
        image = [{"inlineData": {"mimeType": "image/png", "data": PNG}}] if exchange.shows_image else []
        contents.append({"role": "user", "parts": image + [{"text": text} for text in exchange.asks]})
        for step in exchange.steps:
            contents.append({"role": "model", "parts": _gemini_step(step)})
            contents.append({"role": "user", "parts": [_gemini_answer(call) for call in step.calls]})
        contents.append({"role": "model", "parts": [{"text": exchange.last}]})
    return contents


def _gemini_step(step: Step) -> list[dict[str, Any]]:
    thought: list[dict[str, Any]] = [{"text": "hm", "thought": True}] if step.thinks else []
    calls: list[dict[str, Any]] = [
        {"functionCall": {"id": call.id, "name": "look", "args": call.arguments}} for call in step.calls
    ]
    signed = [{**calls[0], "thoughtSignature": "c2ln"}, *calls[1:]]
    return [*thought, *({"text": text} for text in step.says), *signed]


def _gemini_answer(call: Call) -> dict[str, Any]:
    response = {"error" if call.is_error else "output": call.answer}
    return {"functionResponse": {"id": call.id, "name": "look", "response": response}}


# Bedrock


def as_bedrock(history: History) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if history.system is not None:
        messages.append({"role": "system", "content": [{"text": history.system}]})
    for exchange in history.exchanges:
        image = [bedrock_image()] if exchange.shows_image else []
        messages.append({"role": "user", "content": image + [{"text": text} for text in exchange.asks]})
        for step in exchange.steps:
            messages.append({"role": "assistant", "content": _bedrock_step(step)})
            messages.append({"role": "user", "content": [_bedrock_answer(call) for call in step.calls]})
        messages.append({"role": "assistant", "content": [{"text": exchange.last}]})
    return messages


def _bedrock_step(step: Step) -> list[dict[str, Any]]:
    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    calls = [
        {"toolUse": {"toolUseId": call.id, "name": "look", "input": call.arguments}} for call in step.calls
    ]
    return [*([reasoning] if step.thinks else []), *({"text": text} for text in step.says), *calls]


def _bedrock_answer(call: Call) -> dict[str, Any]:
    content = [bedrock_image()] if call.with_image else []
    content.append({"text": call.answer or "-"})
    status = "error" if call.is_error else "success"
    return {"toolResult": {"toolUseId": call.id, "content": content, "status": status}}


def bedrock_image() -> dict[str, Any]:
    return {"image": {"format": "png", "source": {"bytes": PNG}}}


RENDERERS: dict[str, Callable[[History], list[dict[str, Any]]]] = {
    "plain": as_plain,
    "anthropic": as_anthropic,
    "openai_chat": as_openai_chat,
    "openai_responses": as_openai_responses,
    "gemini": as_gemini,
    "bedrock": as_bedrock,
}


@st.composite
def decorated(draw: st.DrawFn, dialect: str) -> list[dict[str, Any]]:
    """A history in this dialect, with unknown fields at messages and blocks."""
    messages = RENDERERS[dialect](draw(histories))
    return [_decorated_message(draw, message) for message in messages]


def _decorated_message(draw: st.DrawFn, message: dict[str, Any]) -> dict[str, Any]:
    message = {**message, **draw(unknown_fields)}
    place = "parts" if "parts" in message else "content"
    if isinstance(message.get(place), list) and message.get("role") != "system":
        blocks = [{**block, **draw(unknown_fields)} for block in message[place]]
        # A content of function responses holds nothing else.
        alone = any("functionResponse" in block for block in blocks)
        more = draw(_unknown_blocks) if message.get("role") == "user" and not alone else []
        if "type" not in blocks[0]:
            more = [{"x_hologram": block} for block in more]
        message[place] = [*blocks, *more]
    return message


_unknown_blocks = st.lists(
    st.builds(lambda fields: {"type": "x_hologram", **fields}, unknown_fields), max_size=1
)
