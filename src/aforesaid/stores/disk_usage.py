"""What a store weighs: bytes of its parts, by name. Each store says for itself how it is asked.

Above: the load generator. A store that is only in memory has no weight of its own.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from aforesaid.contracts import Backend
from aforesaid.stores.urls import STORES, parse_url

_WEIGHED = ("file", "postgres", "postgresql", "sqlite", "redis", "rediss", "redis+cluster", "rediss+cluster")


async def weights(backend: Backend, url: str) -> Mapping[str, int]:
    """Bytes of each part of the store that this backend opened from this URL."""
    scheme = parse_url(url).scheme
    if scheme not in _WEIGHED:
        return {}
    return cast(Mapping[str, int], await import_module(f"{STORES[scheme]}.disk_usage").weigh(backend))
