"""OpenAI's Responses API.

The provider stores nothing (`store=False`). Items are therefore sent by value, without the ids that the
provider would look up. Reasoning is sent back only if it is encrypted (requested by `reasoning_effort`); the
provider accepts no other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.providers.openai_chat import openai_client, secrets_of
from aforesaid.agents.providers.sdk import (
    ENDED_EARLY,
    build_reply,
    error_for_status,
    list_field,
    refusal_error,
    translate_errors,
    usage_of,
    without_secrets,
)
from aforesaid.contracts import Ask, OnText, Reply, Stop
from aforesaid.dialects import write
from aforesaid.errors import AgentError, AgentUnavailable

_ENDS = ("response.completed", "response.incomplete", "response.failed")


@validated
class OpenAIResponsesAgent:
    """A model behind the Responses API as an agent. Parameters as for `OpenAIChatAgent`.

    `reasoning_effort` enables reasoning and requests it encrypted, so that it can be sent back. With `store`
    the provider also stores the conversation.
    """

    dialect = "openai_responses"

    def __init__(
        self,
        model: str,
        *,
        name: str = "assistant",
        client: Any = None,
        api_key: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        reasoning_effort: str | None = None,
        store: bool = False,
        timeout: float = 60.0,
        max_retries: int = 2,
        provider: str = "OpenAI",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.provider = provider
        self._fixed = {"model": model, "store": store, **_reasoning(reasoning_effort)}
        self._fixed["extra_body"] = dict(options or {})
        self._client = openai_client(
            existing=client,
            api_key=api_key,
            base_url=base_url,
            api_version=api_version,
            timeout=timeout,
            max_retries=max_retries,
        )

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """Request one response, streaming if `on_text` is given."""
        client = await self._client.get()
        parameters = self._fixed | _parameters(ask, stored=self._fixed["store"])
        call = _whole(client, parameters) if on_text is None else _streamed(client, parameters, on_text)
        response = await translate_errors(
            call, sdk="openai", provider=self.provider, secrets=secrets_of(client)
        )
        return self._reply(response)

    def _reply(self, response: Any) -> Reply:
        output = [] if response is None else list_field(response, "output", self.provider)
        if response is None or response.status in ("in_progress", "queued", "cancelled"):
            raise AgentUnavailable(f"{self.provider}: {ENDED_EARLY}")
        if response.status == "failed":
            raise _failure(self.provider, response.error)
        refusals = [part.refusal for item in output for part in _refusals(item)]
        if refusals or _why_incomplete(response) == "content_filter":
            raise refusal_error(self.provider, " ".join(refusals))
        stop: Stop = "length" if response.status == "incomplete" else "end"
        return build_reply(
            output,
            dialect=self.dialect,
            provider=self.provider,
            stop=stop,
            usage=usage_of(response.usage, "input_tokens", output="output_tokens"),
        )

    async def close(self) -> None:
        if (client := self._client.take()) is not None:
            await client.close()


def _reasoning(effort: str | None) -> dict[str, Any]:
    if effort is None:
        return {}
    return {"reasoning": {"effort": effort}, "include": ["reasoning.encrypted_content"]}


def _parameters(ask: Ask, *, stored: bool) -> dict[str, Any]:
    items = write(ask.messages, "openai_responses").messages
    parameters: dict[str, Any] = {"input": items if stored else _by_value(items)}
    if ask.system:
        parameters["instructions"] = ask.system
    if ask.tools:
        parameters["tools"] = list(ask.tools)
    if ask.tools and not ask.may_call:
        parameters["tool_choice"] = "none"
    return parameters


def _by_value(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {field: value for field, value in item.items() if field != "id"}
        for item in items
        if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]


async def _whole(client: Any, parameters: dict[str, Any]) -> Any:
    return await client.responses.create(**parameters)


async def _streamed(client: Any, parameters: dict[str, Any], on_text: OnText) -> Any:
    response = None
    async with await client.responses.create(**parameters, stream=True) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                on_text(event.delta)
            elif event.type in _ENDS:
                response = event.response
    return response


def _refusals(item: Any) -> list[Any]:
    content = getattr(item, "content", None) if getattr(item, "type", None) == "message" else None
    return [part for part in content or () if part.type == "refusal"]


def _why_incomplete(response: Any) -> str | None:
    return getattr(response.incomplete_details, "reason", None)


def _failure(provider: str, error: Any) -> AgentError:
    code = getattr(error, "code", None)
    words = without_secrets(str(getattr(error, "message", None) or "the request failed"))
    status = 429 if code == "rate_limit_exceeded" else 500
    return error_for_status(status, f"{provider}: {words} ({code})")
