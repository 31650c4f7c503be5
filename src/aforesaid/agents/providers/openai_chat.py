"""OpenAI's Chat Completions, and every server that speaks it: Azure, Ollama, vLLM. Below: openai_clients."""

from collections.abc import Mapping
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.providers.openai_clients import openai_client, secrets_of
from aforesaid.agents.providers.replies import BROKE_OFF, list_in, refused, usage_of, whole_reply
from aforesaid.agents.providers.sdk import translated
from aforesaid.contracts import Ask, OnText, Reply, Stop
from aforesaid.dialects import write
from aforesaid.errors import AgentUnavailable

_STOPS: dict[str, Stop] = {"stop": "end", "tool_calls": "tools", "function_call": "tools", "length": "length"}


@validated
class OpenAIChatAgent:
    """A model behind Chat Completions as an agent. Without `client`, one is made when first needed.

    `base_url` leads to another server (`http://localhost:11434/v1` for Ollama), which gets the
    `api_key` that is given here or none at all, never the one of the environment. With
    `api_version` the server is Azure's. `provider` is what errors call it. `options` are further
    parameters of a request (`temperature`, `max_completion_tokens`, …), sent as they are.
    """

    dialect = "openai_chat"

    def __init__(
        self,
        model: str,
        *,
        name: str = "assistant",
        client: Any = None,
        api_key: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        provider: str = "OpenAI",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.provider = provider
        self._fixed = {"model": model, "extra_body": dict(options or {})}
        self._client = openai_client(
            given=client,
            api_key=api_key,
            base_url=base_url,
            api_version=api_version,
            timeout=timeout,
            max_retries=max_retries,
        )

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """One completion, streamed where somebody listens."""
        client = await self._client.get()
        parameters = self._fixed | _parameters(ask)
        call = self._whole(client, parameters) if on_text is None else _streamed(client, parameters, on_text)
        message, reason, usage = await translated(
            call, sdk="openai", provider=self.provider, secrets=secrets_of(client)
        )
        return self._reply(message, reason, usage)

    async def _whole(self, client: Any, parameters: dict[str, Any]) -> tuple[Any, str | None, Any]:
        response = await client.chat.completions.create(**parameters)
        for choice in list_in(response, "choices", self.provider)[:1]:
            return choice.message, choice.finish_reason, response.usage
        return None, None, response.usage

    def _reply(self, message: Any, reason: str | None, usage: Any) -> Reply:
        if reason is None or message is None:
            raise AgentUnavailable(f"{self.provider}: {BROKE_OFF}")
        refusal = message.get("refusal") if isinstance(message, dict) else message.refusal
        if reason == "content_filter" or refusal:
            raise refused(self.provider, refusal)
        return whole_reply(
            message,
            dialect=self.dialect,
            provider=self.provider,
            stop=_STOPS.get(reason, "end"),
            usage=usage_of(usage, "prompt_tokens", output="completion_tokens"),
        )

    async def close(self) -> None:
        if (client := self._client.take()) is not None:
            await client.close()


def _parameters(ask: Ask) -> dict[str, Any]:
    prompt = [{"role": "system", "content": ask.system}] if ask.system else []
    parameters: dict[str, Any] = {"messages": [*prompt, *write(ask.messages, "openai_chat").messages]}
    if ask.tools:
        parameters["tools"] = list(ask.tools)
    if ask.tools and not ask.may_call:
        parameters["tool_choice"] = "none"
    return parameters


async def _streamed(
    client: Any, parameters: dict[str, Any], on_text: OnText
) -> tuple[dict[str, Any], str | None, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    reason, usage = None, None
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with await client.chat.completions.create(**parameters, **options) as stream:
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in (chunk.choices or ())[:1]:
                reason = choice.finish_reason or reason
                grow(message, choice.delta.model_dump(exclude_unset=True))
                if choice.delta.content:
                    on_text(choice.delta.content)
    message.setdefault("content", None)
    return message, reason, usage


def grow(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a piece of a streamed message: texts grow, lists grow by index, other values are set.

    Fields that we do not know grow too, so that a server's own (a model's reasoning) come out whole.
    """
    for field, piece in delta.items():
        known = message.get(field)
        if piece is None or field == "index":
            continue
        if isinstance(piece, list):
            _grow_list(message.setdefault(field, []), piece)
        elif isinstance(piece, dict):
            grow(message.setdefault(field, {}), piece)
        elif isinstance(known, str) and isinstance(piece, str) and field not in _SAID_AT_ONCE:
            message[field] = known + piece
        else:
            message[field] = piece


_SAID_AT_ONCE = frozenset(("role", "id", "type"))
"""Fields that some servers repeat in every piece."""


def _grow_list(items: list[Any], pieces: list[Any]) -> None:
    for piece in pieces:
        if not isinstance(piece, dict):
            items.append(piece)
            continue
        at = _place(items, piece)
        if at == len(items):
            items.append({})
        grow(items[at], piece)


def _place(items: list[Any], piece: Mapping[str, Any]) -> int:
    """Where the piece belongs: at its index; where servers send none, a new id is a new item."""
    index = piece.get("index")
    if isinstance(index, int):
        return min(index, len(items))
    if piece.get("id") is None:
        return max(0, len(items) - 1)
    known = [item.get("id") for item in items]
    return known.index(piece["id"]) if piece["id"] in known else len(items)
