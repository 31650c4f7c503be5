"""OpenAI's APIs, and servers compatible with them: Azure, Ollama, vLLM."""

from collections.abc import Mapping, Sequence
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.providers.sdk import (
    ENDED_EARLY,
    LazyClient,
    build_reply,
    error_for_status,
    list_field,
    missing_key,
    refusal_error,
    require,
    translate_errors,
    usage_of,
    without_secrets,
)
from aforesaid.contracts import Ask, OnText, Reply, Stop
from aforesaid.dialects import write
from aforesaid.errors import AgentError, AgentUnavailable

# OpenAI's Chat Completions API and compatible servers: Azure, Ollama, vLLM.


EXTRA = "openai"
# Sent when a server needs no key. Otherwise the SDK would send OpenAI's key from the environment.
NO_KEY = "none"


def openai_client(
    *,
    existing: Any,
    api_key: str | None,
    base_url: str | None,
    api_version: str | None,
    timeout: float,
    max_retries: int,
) -> LazyClient[Any]:
    """Return the given client, or one that is created when first needed.

    With `api_version` the client is Azure's and `base_url` is the resource's endpoint.
    """
    require("openai", what="an agent of OpenAI, or of a server like it", extra=EXTRA)
    options: dict[str, Any] = {"timeout": timeout, "max_retries": max_retries}
    if api_version is not None:
        options |= {"azure_endpoint": base_url, "api_version": api_version, "api_key": api_key}
        return LazyClient(lambda: _create("AsyncAzureOpenAI", options), existing=existing)
    key = NO_KEY if api_key is None and base_url is not None else api_key
    options |= {"base_url": base_url, "api_key": key}
    return LazyClient(lambda: _create("AsyncOpenAI", options), existing=existing)


def _create(kind: str, options: Mapping[str, Any]) -> Any:
    import openai

    present = {name: value for name, value in options.items() if value is not None}
    try:
        return getattr(openai, kind)(**present)
    except openai.OpenAIError as error:
        azure = kind == "AsyncAzureOpenAI"
        name = "AZURE_OPENAI_API_KEY" if azure else "OPENAI_API_KEY"
        raise missing_key("Azure OpenAI" if azure else "OpenAI", name) from error


def secrets_of(client: Any) -> tuple[str, ...]:
    """Return the secrets that must not appear in an error."""
    key = getattr(client, "api_key", None)
    return (key,) if isinstance(key, str) and key != NO_KEY else ()


_STOPS: dict[str, Stop] = {"stop": "end", "tool_calls": "tools", "function_call": "tools", "length": "length"}


@validated
class OpenAIChatAgent:
    """A model behind Chat Completions as an agent. Without `client`, one is created when first needed.

    `base_url` selects another server (`http://localhost:11434/v1` for Ollama). It receives only the `api_key`
    given here, never the one from the environment. With `api_version` the server is Azure's. `provider` is
    the name in errors. `options` are additional request parameters (`temperature`, `max_completion_tokens`,
    …), sent unchanged.
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
        self.model = model
        self._fixed = {"model": model, "extra_body": dict(options or {})}
        self._client = openai_client(
            existing=client,
            api_key=api_key,
            base_url=base_url,
            api_version=api_version,
            timeout=timeout,
            max_retries=max_retries,
        )

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """Request one completion, streaming if `on_text` is given."""
        client = await self._client.get()
        parameters = self._fixed | _parameters(ask)
        call = self._whole(client, parameters) if on_text is None else _streamed(client, parameters, on_text)
        message, reason, usage = await translate_errors(
            call, sdk="openai", provider=self.provider, secrets=secrets_of(client)
        )
        return self._reply(message, reason, usage)

    async def _whole(self, client: Any, parameters: dict[str, Any]) -> tuple[Any, str | None, Any]:
        response = await client.chat.completions.create(**parameters)
        for choice in list_field(response, "choices", self.provider)[:1]:
            return choice.message, choice.finish_reason, response.usage
        return None, None, response.usage

    def _reply(self, message: Any, reason: str | None, usage: Any) -> Reply:
        if reason is None or message is None:
            raise AgentUnavailable(f"{self.provider}: {ENDED_EARLY}")
        refusal = message.get("refusal") if isinstance(message, dict) else message.refusal
        if reason == "content_filter" or refusal:
            raise refusal_error(self.provider, refusal)
        return build_reply(
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
                merge_delta(message, choice.delta.model_dump(exclude_unset=True))
                if choice.delta.content:
                    on_text(choice.delta.content)
    message.setdefault("content", None)
    return message, reason, usage


def merge_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Merge a streamed delta into a message: texts are concatenated, lists merged by index, other values
    replaced.

    Unknown fields are merged too, so that server-specific ones (such as reasoning) are complete.
    """
    for field, piece in delta.items():
        current = message.get(field)
        if piece is None or field == "index":
            continue
        if isinstance(piece, list):
            _merge_list(message.setdefault(field, []), piece)
        elif isinstance(piece, dict):
            merge_delta(message.setdefault(field, {}), piece)
        elif isinstance(current, str) and isinstance(piece, str) and field not in _NOT_CONCATENATED:
            message[field] = current + piece
        else:
            message[field] = piece


# Fields that some servers repeat in every chunk.
_NOT_CONCATENATED = frozenset(("role", "id", "type"))


def _merge_list(items: list[Any], pieces: list[Any]) -> None:
    for piece in pieces:
        if not isinstance(piece, dict):
            items.append(piece)
            continue
        at = _index_of(items, piece)
        if at == len(items):
            items.append({})
        merge_delta(items[at], piece)


def _index_of(items: list[Any], piece: Mapping[str, Any]) -> int:
    """Return the index of a streamed item. Some servers send no index; then a new id means a new item."""
    index = piece.get("index")
    if isinstance(index, int):
        return min(index, len(items))
    if piece.get("id") is None:
        # Neither index nor id: the piece continues the last item.
        return max(0, len(items) - 1)
    ids = [item.get("id") for item in items]
    return ids.index(piece["id"]) if piece["id"] in ids else len(items)


# OpenAI's Responses API.
#
# The provider stores nothing (`store=False`). Items are therefore sent by value, without the ids that the
# provider would look up. Reasoning is sent back only if it is encrypted (requested by `reasoning_effort`);
# the provider accepts no other.


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
        self.model = model
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
        parameters = self._fixed | _response_parameters(ask, stored=self._fixed["store"])
        call = (
            _whole_response(client, parameters)
            if on_text is None
            else _streamed_response(client, parameters, on_text)
        )
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


def _response_parameters(ask: Ask, *, stored: bool) -> dict[str, Any]:
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


async def _whole_response(client: Any, parameters: dict[str, Any]) -> Any:
    return await client.responses.create(**parameters)


async def _streamed_response(client: Any, parameters: dict[str, Any], on_text: OnText) -> Any:
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
