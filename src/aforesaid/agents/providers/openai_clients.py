"""Clients of OpenAI's SDK for OpenAI, Azure and compatible servers."""

from collections.abc import Mapping
from typing import Any

from aforesaid.agents.providers.sdk import LazyClient, require

EXTRA = "openai"
NO_KEY = "none"
"""Sent when a server needs no key. Otherwise the SDK would send OpenAI's key from the environment."""


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
    return getattr(openai, kind)(**present)


def secrets_of(client: Any) -> tuple[str, ...]:
    """Return the secrets that must not appear in an error."""
    key = getattr(client, "api_key", None)
    return (key,) if isinstance(key, str) and key != NO_KEY else ()
