"""Clients of OpenAI's SDK: for OpenAI, for Azure, and for whatever speaks the same. Below: clients."""

from collections.abc import Mapping
from typing import Any

from aforesaid.agents.providers.sdk import Lazy, require

EXTRA = "openai"
NO_KEY = "none"
"""Sent where a server wants no key. The SDK would otherwise send OpenAI's own, from the environment."""


def openai_client(
    *,
    given: Any,
    api_key: str | None,
    base_url: str | None,
    api_version: str | None,
    timeout: float,
    max_retries: int,
) -> Lazy[Any]:
    """The client that was handed in, or one that is made when first needed.

    With `api_version` it is Azure's, and `base_url` the resource's address.
    """
    require("openai", what="an agent of OpenAI, or of a server like it", extra=EXTRA)
    options: dict[str, Any] = {"timeout": timeout, "max_retries": max_retries}
    if api_version is not None:
        options |= {"azure_endpoint": base_url, "api_version": api_version, "api_key": api_key}
        return Lazy(lambda: _made("AsyncAzureOpenAI", options), given=given)
    key = NO_KEY if api_key is None and base_url is not None else api_key
    options |= {"base_url": base_url, "api_key": key}
    return Lazy(lambda: _made("AsyncOpenAI", options), given=given)


def _made(kind: str, options: Mapping[str, Any]) -> Any:
    import openai

    present = {name: value for name, value in options.items() if value is not None}
    return getattr(openai, kind)(**present)


def secrets_of(client: Any) -> tuple[str, ...]:
    """What must not show up in an error."""
    key = getattr(client, "api_key", None)
    return (key,) if isinstance(key, str) and key != NO_KEY else ()
