"""Any model of AWS Strands, Bedrock's first of all, through its SDK. Below: clients, replies, dialects.

Strands speaks Bedrock's Converse form, whose blocks are Anthropic's under other names. So what is
stored speaks Anthropic's dialect: words, thinking with its signature, calls and results translate one to
one. Thinking that nobody signed (of models that are not Claude) could never be sent back, and is left out.
"""

import asyncio
import inspect
import json
import threading
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.providers.replies import BROKE_OFF, readable, refused, whole_reply
from aforesaid.agents.providers.sdk import (
    Lazy,
    agent_error,
    described_or_known,
    error_for_status,
    require,
    without_secrets,
)
from aforesaid.contracts import Ask, OnText, Reply, Stop, Usage
from aforesaid.dialects import write
from aforesaid.errors import AgentError, AgentUnavailable

EXTRA = "strands"
ANSWER_NOW = "Answer now, in words. Do not call any tool."

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
}
_REFUSALS = ("content_filtered", "guardrail_intervened", "refusal")
_THROTTLED = ("ModelThrottledException", "ThrottlingException", "ServiceQuotaExceededException")
_INPUT_TOKENS = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


@validated
class StrandsAgent:
    """A Strands model as an agent: `BedrockModel(...)`, or whichever provider Strands has.

    `model` is the model, or a function that makes it: that takes a second, so it happens on a thread
    when it is first needed. Strands' own settings say whether the provider is asked to stream.
    """

    dialect = "anthropic"

    def __init__(
        self, model: Any | Callable[[], Any], *, name: str = "assistant", provider: str = "Strands"
    ) -> None:
        require("strands", what="an agent of Strands", extra=EXTRA)
        self.name = name
        self.provider = provider
        is_model = hasattr(model, "stream")
        self._model: Lazy[Any] = Lazy(model, given=model if is_model else None)

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """One call of the model's `stream`."""
        model = await self._model.get()
        heard = _Heard(on_text)
        async with aclosing(_events(model, _parameters(ask), self.provider)) as events:
            async for event in events:
                heard.hear(event)
        return heard.reply(self.provider)

    async def close(self) -> None:
        """Let go of the connections of a model that was made here."""
        client: Any = getattr(self._model.take(), "client", None)
        if hasattr(client, "close"):
            closing = await asyncio.to_thread(client.close)
            if inspect.isawaitable(closing):
                await closing


async def _events(
    model: Any, parameters: Mapping[str, Any], provider: str
) -> AsyncGenerator[dict[str, Any], None]:
    """What the model streams. Whoever leaves early makes it stop: it reads on a thread of its own."""
    left = threading.Event()
    try:
        async for event in model.stream(**parameters, cancel_signal=left):
            yield event
    except Exception as error:  # noqa: BLE001  the border: models of Strands raise whatever their SDKs do,
        # and a KeyError where a response is incomplete
        problem = _agent_error(error, provider)
    else:
        return
    finally:
        left.set()
    raise problem


# Out: from Anthropic's form to Converse


def _parameters(ask: Ask) -> dict[str, Any]:
    request = write(ask.messages, "anthropic")
    prompts = [ask.system, *_texts(request.system)]
    spoken = [document for document in request.messages if document["role"] != "system"]
    prompts += [
        text
        for document in request.messages
        if document["role"] == "system"
        for text in _texts(document["content"])
    ]
    if ask.tools and not ask.may_call:
        prompts.append(ANSWER_NOW)
    specs = [_spec(tool) for tool in described_or_known(ask.tools, ask.messages)]
    return {
        "messages": _taking_turns(spoken),
        "tool_specs": specs or None,
        "system_prompt": "\n\n".join(prompt for prompt in prompts if prompt) or None,
    }


def _texts(content: str | Sequence[Mapping[str, Any]] | None) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in content or ()]


def _spec(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": {"json": tool["input_schema"]},
    }


def _taking_turns(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with neighbours of one role joined: Converse wants the two to take turns."""
    turns: list[dict[str, Any]] = []
    for document in documents:
        content = document["content"]
        blocks = [{"text": content}] if isinstance(content, str) else [_out(block) for block in content]
        if turns and turns[-1]["role"] == document["role"]:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": document["role"], "content": blocks})
    return turns


def _out(block: Mapping[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": text}:
            return {"text": text}
        case {"type": "tool_use", "id": call_id, "name": name, "input": given}:
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": given}}
        case {"type": "tool_result", "tool_use_id": call_id, **rest}:
            return {"toolResult": _result_out(call_id, rest)}
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        case {"type": "redacted_thinking", "data": data}:
            return {"reasoningContent": {"redactedContent": b64decode(data)}}
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}:
            return {"image": {"format": kind.partition("/")[2], "source": {"bytes": b64decode(data)}}}
    return {"text": f"[{block.get('type')}]"}


def _result_out(call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    content = result.get("content") or ""
    blocks = [{"text": content}] if isinstance(content, str) else [_out(block) for block in content]
    status = "error" if result.get("is_error") else "success"
    return {"toolUseId": call_id, "content": blocks, "status": status}


# In: from Converse's events to Anthropic's form


class _Heard:
    """What a stream has brought so far."""

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._blocks: list[dict[str, Any]] = []
        self._open: str | None = None
        self._reason: str | None = None
        self._usage: Usage | None = None

    def hear(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}:
                self._begin("tool_use", id=call_id, name=name, input="")
            case {"contentBlockDelta": {"delta": delta}}:
                self._grow(delta)
            case {"contentBlockStop": _}:
                self._open = None
            case {"messageStop": {"stopReason": reason}}:
                self._reason = reason
            case {"metadata": {"usage": usage}}:
                self._usage = _usage(usage)
            case {"redactContent": {"redactAssistantContentMessage": str()}}:
                self._reason = "guardrail_intervened"

    def _grow(self, delta: Mapping[str, Any]) -> None:
        match delta:
            case {"text": str(text)}:
                self._add("text", "text", text)
                if self._on_text is not None and text:
                    self._on_text(text)
            case {"toolUse": {"input": str(piece)}} if self._open == "tool_use":
                self._blocks[-1]["input"] += piece
            case {"reasoningContent": {"redactedContent": bytes(data)}}:
                self._begin("redacted_thinking", data=b64encode(data).decode())
            case {"reasoningContent": {"text": str(text)}}:
                self._add("thinking", "thinking", text)
            case {"reasoningContent": {"signature": str(signature)}}:
                self._add("thinking", "signature", signature)

    def _begin(self, kind: str, **fields: Any) -> None:
        self._blocks.append({"type": kind, **fields})
        self._open = kind

    def _add(self, kind: str, field: str, piece: str) -> None:
        if self._open != kind:
            self._begin(kind, **{kind: ""})
        self._blocks[-1][field] = self._blocks[-1].get(field, "") + piece

    def reply(self, provider: str) -> Reply:
        words = "".join(block["text"] for block in self._blocks if block["type"] == "text")
        if self._reason in _REFUSALS:
            raise refused(provider, words)
        if self._reason is None:
            raise AgentUnavailable(f"{provider}: {BROKE_OFF}")
        blocks = [_whole(block) for block in self._blocks if _can_be_sent_back(block)]
        return whole_reply(
            {"role": "assistant", "content": blocks},
            dialect="anthropic",
            provider=provider,
            stop=_STOPS.get(self._reason, "end"),
            usage=self._usage,
        )


def _can_be_sent_back(block: Mapping[str, Any]) -> bool:
    if block["type"] == "text":
        return bool(block["text"].strip())
    return block["type"] != "thinking" or bool(block.get("signature"))


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """The block; a call's arguments, which came as text, are an object."""
    if block["type"] != "tool_use":
        return block
    return {**block, "input": json.loads(readable(block["input"]).strip() or "{}")}


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=sum(usage.get(field) or 0 for field in _INPUT_TOKENS),
        output_tokens=usage.get("outputTokens") or 0,
    )


# Errors


def _agent_error(error: BaseException, provider: str) -> AgentError:
    """Bedrock's errors carry a status and a code beside their words; Strands' own say it by their class."""
    kind = type(error).__name__
    response = getattr(error, "response", None)
    answer = response if isinstance(response, dict) else {}
    words = without_secrets(str(answer.get("Error", {}).get("Message") or error or kind))
    code = str(answer.get("Error", {}).get("Code") or kind)
    if kind in _THROTTLED or code in _THROTTLED:
        return error_for_status(429, f"{provider}: {words}")
    if kind == "ContextWindowOverflowException":
        return error_for_status(413, f"{provider}: {words}")
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if isinstance(status, int) and status >= 400:
        return error_for_status(status, f"{provider} answered {status}: {words} ({code})")
    return agent_error(error, provider=provider)
