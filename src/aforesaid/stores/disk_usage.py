"""Disk and memory usage of a store, by part. Each store measures its own."""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from aforesaid.contracts import Backend
from aforesaid.stores.urls import STORES, parse_url

_MEASURED = ("file", "postgres", "postgresql", "sqlite", "redis", "rediss", "redis+cluster", "rediss+cluster")


async def disk_usage(backend: Backend, url: str) -> Mapping[str, int]:
    """Return the bytes of each part of a store. The in-memory store has no parts."""
    scheme = parse_url(url).scheme
    if scheme not in _MEASURED:
        return {}
    return cast(Mapping[str, int], await import_module(f"{STORES[scheme]}.disk_usage").measure(backend))
