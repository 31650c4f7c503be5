"""Check whether a provider would accept a request.

The rules come from the providers' documentation and error messages. They are in `provider_rules`, one
module per dialect, and share no code with the renderers that they check. They cover what the messages
alone show. Rules that depend on the model or on other parameters are left out, such as length limits and
whether a request may end with an assistant message.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aforesaid.dialects.parse import Request
from aforesaid.errors import InvalidInput
from aforesaid.testing.provider_rules import (
    anthropic,
    bedrock,
    chat_variants,
    gemini,
    openai_chat,
    openai_responses,
    plain,
)
from aforesaid.testing.provider_rules.common import Messages, shape_problems

Rules = Callable[[Messages], Iterator[str]]

_RULES: Mapping[str, Rules] = {
    "plain": plain.problems,
    "anthropic": anthropic.problems,
    "openai_chat": openai_chat.problems,
    "openai_responses": openai_responses.problems,
    "gemini": gemini.problems,
    "bedrock": bedrock.problems,
    "mistral": chat_variants.mistral_problems,
    "ollama": chat_variants.ollama_problems,
    "vllm": chat_variants.vllm_problems,
    "azure": chat_variants.azure_problems,
    "openrouter": chat_variants.openrouter_problems,
}

_SYSTEM_RULES: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "anthropic": anthropic.system_problems,
    "gemini": gemini.system_problems,
    "bedrock": bedrock.system_problems,
}


def _no_problems(request: Mapping[str, Any]) -> Iterator[str]:
    return iter(())


# Rules about more than the messages, for a whole request.
_REQUEST_RULES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "anthropic": anthropic.choice_problems,
    "gemini": gemini.request_problems,
    "bedrock": bedrock.request_problems,
    "mistral": chat_variants.mistral_choice_problems,
    **dict.fromkeys(
        ("openai_chat", "openai_responses", "vllm", "azure", "openrouter"),
        openai_chat.choice_problems,
    ),
}


def problems(request: Request | Mapping[str, Any] | Sequence[Any], dialect: str) -> list[str]:
    """Return what the provider would reject in this request, one sentence each; empty for a valid request."""
    if dialect not in _RULES:
        raise InvalidInput.not_in("dialect", dialect, _RULES)
    messages, system = _parts(request)
    found = list(_system_problems(system, dialect))
    shape = list(shape_problems(messages))
    # The rules assume a valid shape, so report only the shape if it is broken.
    if shape:
        return [*found, *shape]
    if dialect == "anthropic":
        found += anthropic.request_problems(messages, system)
    if isinstance(request, Mapping):
        found += _REQUEST_RULES.get(dialect, _no_problems)(request)
    if dialect == "openai_responses" and _continues(request):
        return [*found, *openai_responses.problems(messages, continues=True)]
    return [*found, *_RULES[dialect](messages)]


def _continues(request: Request | Mapping[str, Any] | Sequence[Any]) -> bool:
    """Return whether the provider stores what came before the items of this request."""
    fields = ("previous_response_id", "conversation")
    return isinstance(request, Mapping) and any(request.get(field) for field in fields)


def _parts(request: Request | Mapping[str, Any] | Sequence[Any]) -> tuple[Sequence[Any], Any]:
    if isinstance(request, Request):
        return request.messages, request.system
    if isinstance(request, Mapping):
        name = next(each for each in ("input", "contents", "messages") if each in request)
        config = request.get("config")
        inner = config.get("system_instruction") if isinstance(config, Mapping) else None
        return request[name], request.get("system", request.get("systemInstruction", inner))
    return request, None


def _system_problems(system: Any, dialect: str) -> Iterator[str]:
    if system is None:
        return
    if dialect in _SYSTEM_RULES:
        yield from _SYSTEM_RULES[dialect](system)
    else:
        # Other dialects have no system parameter; the system prompt is a message.
        yield f"{dialect} has no system parameter; the system prompt belongs in the messages"
