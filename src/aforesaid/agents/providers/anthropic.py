"""Claude through Anthropic's SDK."""

from collections.abc import Mapping
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.providers.sdk import (
    ANTHROPIC_STOPS,
    ENDED_EARLY,
    LazyClient,
    build_reply,
    list_field,
    missing_key,
    refusal_error,
    require,
    tools_or_placeholders,
    translate_errors,
    usage_of,
)
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import write
from aforesaid.errors import AgentUnavailable

PROVIDER = "Anthropic"
EXTRA = "anthropic"

_INPUT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@validated
class AnthropicAgent:
    """A Claude model as an agent. Without `client`, one is created when first needed.

    `max_tokens` 4096: the API requires a limit, and this fits a long answer. `max_retries` and `timeout` are
    the SDK's; it retries after a rate limit. `options` are additional request parameters (`thinking`,
    `temperature`, …), sent unchanged.
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
        self.model = model
        self._fixed = {"model": model, "max_tokens": max_tokens, "extra_body": dict(options or {})}
        connection = {
            "api_key": api_key,
            "base_url": base_url,
            "timeout": timeout,
            "max_retries": max_retries,
        }
        self._client: LazyClient[Any] = LazyClient(lambda: _client(connection), existing=client)

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """Send one request to the Messages API, streaming if `on_text` is given."""
        client = await self._client.get()
        parameters = self._fixed | _parameters(ask)
        call = _whole(client, parameters) if on_text is None else _streamed(client, parameters, on_text)
        secrets = (getattr(client, "api_key", None) or "", getattr(client, "auth_token", None) or "")
        response = await translate_errors(call, sdk="anthropic", provider=PROVIDER, secrets=secrets)
        return _reply(response)

    async def close(self) -> None:
        if (client := self._client.take()) is not None:
            await client.close()


def _client(options: Mapping[str, Any]) -> Any:
    import anthropic

    client = anthropic.AsyncAnthropic(**options)
    credentials = client.api_key, client.auth_token, getattr(client, "credentials", None)
    if credentials == (None, None, None):
        raise missing_key(PROVIDER, "ANTHROPIC_API_KEY")
    return client


def _parameters(ask: Ask) -> dict[str, Any]:
    request = write(ask.messages, "anthropic")
    parameters: dict[str, Any] = {"messages": request.messages}
    if system := _system(ask.system, request.system):
        parameters["system"] = system
    if tools := tools_or_placeholders(ask.tools, ask.messages):
        parameters["tools"] = tools
    # The API requires definitions of all tools that the history calls, even if none may be called now.
    if tools and not (ask.tools and ask.may_call):
        parameters["tool_choice"] = {"type": "none"}
    return parameters


def _system(prompt: str, from_log: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]] | None:
    """Return the prompt followed by the log's system messages."""
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
        raise AgentUnavailable(f"{PROVIDER}: {ENDED_EARLY}")
    return response


def _reply(response: Any) -> Reply:
    content = list_field(response, "content", PROVIDER)
    reason = response.stop_reason
    if reason == "refusal":
        raise refusal_error(PROVIDER, "".join(getattr(block, "text", "") for block in content))
    # The connection closed before the last event: the text is incomplete.
    if reason is None:
        raise AgentUnavailable(f"{PROVIDER}: {ENDED_EARLY}")
    return build_reply(
        response,
        dialect="anthropic",
        provider=PROVIDER,
        stop=ANTHROPIC_STOPS.get(reason, "end"),
        usage=usage_of(response.usage, *_INPUT_TOKENS, output="output_tokens"),
    )
