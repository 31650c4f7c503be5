"""The cached backend."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from aforesaid.contracts import Backend, CopyHolder, Watchable, capability
from aforesaid.layers.base import BackendWrapper
from aforesaid.layers.cached.listener import ChangeListener
from aforesaid.layers.cached.memory import Cache, ConversationCache
from aforesaid.layers.cached.store import CachedStore
from aforesaid.model.ids import parse_name
from aforesaid.telemetry import Telemetry, telemetry


class CachedBackend(BackendWrapper):
    """A backend whose stores cache their reads."""

    adds = (CopyHolder,)

    def __init__(
        self,
        inner: Backend,
        cache: Cache | None = None,
        *,
        name: str = "store",
        clock: Callable[[], float] = time.monotonic,
        metrics: Telemetry = telemetry,
    ) -> None:
        super().__init__(inner)
        self.options = cache or Cache()
        self.cache = ConversationCache(self.options, clock=clock, metrics=metrics, name=name)
        self.listener = ChangeListener(self.cache)

    async def open(self) -> None:
        self.cache.clear()
        await self.inner.open()

    async def close(self) -> None:
        try:
            await self.listener.close()
        finally:
            self.cache.clear()
            await self.inner.close()

    def of(self, owner: str) -> CachedStore:
        name = parse_name(owner, field="owner")
        inner = self.inner.of(name)
        is_watched = self.options.watch and capability(inner, Watchable) is not None
        return CachedStore(inner, name, self.cache, self.listener if is_watched else None)

    async def purge_expired(self, now: datetime | None = None) -> int:
        try:
            return await self.inner.purge_expired(now)
        finally:
            self.cache.clear()

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> dict[str, int]:
        """Drop cached copies of the conversation, or of the owner's data; see `contracts.CopyHolder`."""
        copies = (
            self.cache.invalidate_owner(owner)
            if conversation_id is None
            else self.cache.invalidate(owner, conversation_id)
        )
        counts = Counter(cached_copies=copies)
        inner = capability(self.inner, CopyHolder)
        if inner is not None:
            counts.update(await inner.remove_copies(owner, conversation_id, until=until))
        return dict(counts)


def cached(inner: Backend, cache: Cache | None = None, **options: Any) -> CachedBackend:
    """Wrap a backend in the cached layer."""
    return CachedBackend(inner, cache, **options)
