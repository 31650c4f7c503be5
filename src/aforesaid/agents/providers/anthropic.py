"""Claude, through Anthropic's SDK. Below: clients, replies, dialects."""

from collections.abc import Mapping
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.providers.replies import BROKE_OFF, list_in, refused, usage_of, whole_reply
from aforesaid.agents.providers.sdk import Lazy, described_or_known, require, translated
from aforesaid.contracts import Ask, OnText, Reply, Stop
from aforesaid.dialects import write
from aforesaid.errors import AgentUnavailable

PROVIDER = "Anthropic"
EXTRA = "anthropic"

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
}
_INPUT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@validated
class AnthropicAgent:
    """A Claude model as an agent. Without `client`, one is made when it is first needed.

    `max_tokens` 4096: room for a long answer; the interface wants a number. `max_retries` and
    `timeout` are the SDK's: it comes back after a rate limit by itself. `options` are further
    parameters of a request (`thinking`, `temperature`, …), sent as they are.
    """

    dialect = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        name: str = "assistant",
        client: Any = None,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = 4096,
        timeout: float = 60.0,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        require("anthropic", what=f"an agent of {PROVIDER}", extra=EXTRA)
        self.name = name
        self._fixed = {"model": model, "max_tokens": max_tokens, "extra_body": dict(options or {})}
        given = {"api_key": api_key, "base_url": base_url, "timeout": timeout, "max_retries": max_retries}
        self._client: Lazy[Any] = Lazy(lambda: _client(given), given=client)

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """One request to the Messages interface, streamed where somebody listens."""
        client = await self._client.get()
        parameters = self._fixed | _parameters(ask)
        call = _whole(client, parameters) if on_text is None else _streamed(client, parameters, on_text)
        secrets = (getattr(client, "api_key", None) or "", getattr(client, "auth_token", None) or "")
        response = await translated(call, sdk="anthropic", provider=PROVIDER, secrets=secrets)
        return _reply(response)

    async def close(self) -> None:
        if (client := self._client.take()) is not None:
            await client.close()


def _client(given: Mapping[str, Any]) -> Any:
    import anthropic

    return anthropic.AsyncAnthropic(**given)


def _parameters(ask: Ask) -> dict[str, Any]:
    request = write(ask.messages, "anthropic")
    parameters: dict[str, Any] = {"messages": request.messages}
    if system := _system(ask.system, request.system):
        parameters["system"] = system
    if tools := described_or_known(ask.tools, ask.messages):
        parameters["tools"] = tools
    if tools and not (ask.tools and ask.may_call):
        parameters["tool_choice"] = {"type": "none"}
    return parameters


def _system(prompt: str, from_log: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]] | None:
    """The prompt, and behind it the system messages of the log."""
    if not (prompt and from_log):
        return prompt or from_log
    blocks = [{"type": "text", "text": from_log}] if isinstance(from_log, str) else from_log
    return [{"type": "text", "text": prompt}, *blocks]


async def _whole(client: Any, parameters: dict[str, Any]) -> Any:
    return await client.messages.create(**parameters)


async def _streamed(client: Any, parameters: dict[str, Any], on_text: OnText) -> Any:
    async with client.messages.stream(**parameters) as stream:
        response = None
        async for event in stream:
            if event.type == "text":
                on_text(event.text)
            elif event.type == "message_stop":
                response = event.message
    if response is None:
        raise AgentUnavailable(f"{PROVIDER}: {BROKE_OFF}")
    return response


def _reply(response: Any) -> Reply:
    content = list_in(response, "content", PROVIDER)
    reason = response.stop_reason
    if reason == "refusal":
        raise refused(PROVIDER, "".join(getattr(block, "text", "") for block in content))
    if reason is None:
        raise AgentUnavailable(f"{PROVIDER}: {BROKE_OFF}")
    return whole_reply(
        response,
        dialect="anthropic",
        provider=PROVIDER,
        stop=_STOPS.get(reason, "end"),
        usage=usage_of(response.usage, *_INPUT_TOKENS, output="output_tokens"),
    )
