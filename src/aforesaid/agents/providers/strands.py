"""Any AWS Strands model, such as Bedrock's, through the Strands SDK.

Strands uses Bedrock's Converse format, whose blocks correspond one to one to Anthropic's. Messages are
therefore stored in Anthropic's dialect. Thinking without a signature (of models other than Claude) cannot be
sent back and is left out.
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
from aforesaid.agents.providers.sdk import (
    ANTHROPIC_STOPS,
    ENDED_EARLY,
    LazyClient,
    agent_error,
    as_json_object,
    build_reply,
    error_for_status,
    refusal_error,
    require,
    tools_or_placeholders,
    without_secrets,
)
from aforesaid.contracts import Ask, OnText, Reply, Usage
from aforesaid.dialects import write
from aforesaid.errors import AgentError, AgentUnavailable

EXTRA = "strands"
ANSWER_NOW = "Answer now, in words. Do not call any tool."

_REFUSALS = ("content_filtered", "guardrail_intervened", "refusal")
_THROTTLED = ("ModelThrottledException", "ThrottlingException", "ServiceQuotaExceededException")
_INPUT_TOKENS = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


@validated
class StrandsAgent:
    """A Strands model as an agent: `BedrockModel(...)` or another provider of Strands.

    `model` is a model or a function that creates one. Creation takes about a second, so it runs on a thread
    when first needed. Strands' own settings decide whether the provider streams.
    """

    dialect = "anthropic"

    def __init__(
        self,
        model: Any | Callable[[], Any],
        *,
        name: str = "assistant",
        provider: str = "Strands",
        model_id: str | None = None,
    ) -> None:
        require("strands", what="an agent of Strands", extra=EXTRA)
        self.name = name
        self.provider = provider
        # A model may be callable too, so the method decides.
        is_model = hasattr(model, "stream")
        config = getattr(model, "config", None)
        known = config.get("model_id") if isinstance(config, Mapping) else None
        self.model: str | None = model_id or known
        self._model: LazyClient[Any] = LazyClient(model, existing=model if is_model else None)

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """Call the model's `stream` once."""
        model = await self._model.get()
        streamed = _StreamedReply(on_text)
        async with aclosing(_events(model, _parameters(ask), self.provider)) as events:
            async for event in events:
                streamed.add(event)
        return streamed.reply(self.provider)

    async def close(self) -> None:
        """Close the connections of a model that was created here."""
        client: Any = getattr(self._model.take(), "client", None)
        if hasattr(client, "close"):
            closing = await asyncio.to_thread(client.close)
            if inspect.isawaitable(closing):
                await closing


async def _events(
    model: Any, parameters: Mapping[str, Any], provider: str
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the model's events. Closing the generator stops the model, which reads on its own thread."""
    cancelled = threading.Event()
    try:
        async for event in model.stream(**parameters, cancel_signal=cancelled):
            yield event
    except Exception as error:  # noqa: BLE001  models raise their SDKs' errors,
        # and KeyError for an incomplete response
        problem = _agent_error(error, provider)
    else:
        return
    finally:
        # The model reads on its own thread, which the end of this generator does not stop.
        cancelled.set()
    raise problem


# Requests: from Anthropic's format to Converse


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
        # Converse cannot forbid calls while tools are defined, so the prompt asks for it.
        prompts.append(ANSWER_NOW)
    specs = [_spec(tool) for tool in tools_or_placeholders(ask.tools, ask.messages)]
    return {
        "messages": _alternate_roles(spoken),
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


def _alternate_roles(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with neighbours of the same role merged, because Converse requires alternating
    roles.
    """
    turns: list[dict[str, Any]] = []
    for document in documents:
        content = document["content"]
        blocks = (
            [{"text": content}] if isinstance(content, str) else [_converse_block(block) for block in content]
        )
        if turns and turns[-1]["role"] == document["role"]:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": document["role"], "content": blocks})
    return turns


def _converse_block(block: Mapping[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": text}:
            return {"text": text}
        case {"type": "tool_use", "id": call_id, "name": name, "input": existing}:
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": existing}}
        case {"type": "tool_result", "tool_use_id": call_id, **rest}:
            return {"toolResult": _converse_result(call_id, rest)}
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        case {"type": "redacted_thinking", "data": data}:
            return {"reasoningContent": {"redactedContent": b64decode(data)}}
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}:
            return {"image": {"format": kind.partition("/")[2], "source": {"bytes": b64decode(data)}}}
    return {"text": f"[{block.get('type')}]"}


def _converse_result(call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    content = result.get("content") or ""
    blocks = (
        [{"text": content}] if isinstance(content, str) else [_converse_block(block) for block in content]
    )
    status = "error" if result.get("is_error") else "success"
    return {"toolUseId": call_id, "content": blocks, "status": status}


# Responses: from Converse's events to Anthropic's format


class _StreamedReply:
    """The content of a stream so far."""

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._blocks: list[dict[str, Any]] = []
        self._open: str | None = None
        self._reason: str | None = None
        self._usage: Usage | None = None

    def add(self, event: Mapping[str, Any]) -> None:
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
                self._append("text", "text", text)
                if self._on_text is not None and text:
                    self._on_text(text)
            case {"toolUse": {"input": str(piece)}} if self._open == "tool_use":
                self._blocks[-1]["input"] += piece
            case {"reasoningContent": {"redactedContent": bytes(data)}}:
                self._begin("redacted_thinking", data=b64encode(data).decode())
            case {"reasoningContent": {"text": str(text)}}:
                self._append("thinking", "thinking", text)
            case {"reasoningContent": {"signature": str(signature)}}:
                self._append("thinking", "signature", signature)

    def _begin(self, kind: str, **fields: Any) -> None:
        self._blocks.append({"type": kind, **fields})
        self._open = kind

    def _append(self, kind: str, field: str, piece: str) -> None:
        if self._open != kind:
            self._begin(kind, **{kind: ""})
        self._blocks[-1][field] = self._blocks[-1].get(field, "") + piece

    def reply(self, provider: str) -> Reply:
        words = "".join(block["text"] for block in self._blocks if block["type"] == "text")
        if self._reason in _REFUSALS:
            raise refusal_error(provider, words)
        if self._reason is None:
            raise AgentUnavailable(f"{provider}: {ENDED_EARLY}")
        blocks = [_parse_arguments(block) for block in self._blocks if _can_be_sent_back(block)]
        return build_reply(
            {"role": "assistant", "content": blocks},
            dialect="anthropic",
            provider=provider,
            stop=ANTHROPIC_STOPS.get(self._reason, "end"),
            usage=self._usage,
        )


def _can_be_sent_back(block: Mapping[str, Any]) -> bool:
    if block["type"] == "text":
        return bool(block["text"].strip())
    return block["type"] != "thinking" or bool(block.get("signature"))


def _parse_arguments(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block with a call's arguments parsed from text."""
    if block["type"] != "tool_use":
        return block
    return {**block, "input": json.loads(as_json_object(block["input"]).strip() or "{}")}


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=sum(usage.get(field) or 0 for field in _INPUT_TOKENS),
        output_tokens=usage.get("outputTokens") or 0,
    )


# Errors


def _agent_error(error: BaseException, provider: str) -> AgentError:
    """Translate an error. Bedrock's carry a status and a code; Strands' own are identified by class name."""
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
