"""Optional capabilities of a resilient store: those of the store that it wraps."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from aforesaid.contracts import (
    Entry,
    LogEnd,
    Matches,
    Sealable,
    Searchable,
    VectorMatch,
    VectorSearchable,
    Watchable,
)
from aforesaid.layers._capabilities import with_capabilities_of
from aforesaid.layers.resilient.store import ResilientStore
from aforesaid.layers.resilient.store_base import parse_id
from aforesaid.model.ids import parse_uuid

if TYPE_CHECKING:
    from aforesaid.layers.resilient.backend import ResilientBackend


class _SealableStore(ResilientStore):
    """A resilient store around a `Sealable` store."""

    inner: Any

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        def remember(end: LogEnd | None) -> None:
            if end is None:
                self._last_known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
            else:
                self._last_known.end(self._owner, conversation_id, end)

        return await self._answer(
            self._remembering(lambda: self.inner.log_end(conversation_id), remember, conversation_id),
            lambda view: view.owner_data.log_end(conversation_id, now=self.now()),
            lambda view: parse_id(conversation_id) in view.ends,
            conversation_id=parse_id(conversation_id),
        )

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        exchanged: int = await self._write_through(
            lambda: self.inner.reseal(conversation_id, entries), repeat=True
        )
        self._last_known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
        return exchanged

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        done: bool = await self._write_through(lambda: self.inner.exchange_head(conversation_id, old, new))
        return done


class _SearchableStore(ResilientStore):
    """A resilient store around a `Searchable` store. During an outage it raises."""

    inner: Any

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        return await self._search(lambda: self.inner.matches(terms, limit=limit))


class _VectorSearchableStore(ResilientStore):
    """A resilient store around a `VectorSearchable` store. During an outage it raises."""

    inner: Any

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        return await self._search(lambda: self.inner.nearest(model, vector, limit=limit, around=around))


_CLASSES: dict[type, type[ResilientStore]] = {
    Sealable: _SealableStore,
    Searchable: _SearchableStore,
    VectorSearchable: _VectorSearchableStore,
}


@cache
def _class_with(capabilities: tuple[type, ...]) -> type[ResilientStore]:
    """Return the class for a store with these capabilities."""
    return type(
        "ResilientStore", (*(_CLASSES[capability] for capability in capabilities), ResilientStore), {}
    )


def resilient_store(backend: "ResilientBackend", owner: str) -> "ResilientStore":
    inner = backend.inner.of(owner)
    capabilities = tuple(
        capability for capability in (Sealable, Searchable, VectorSearchable) if isinstance(inner, capability)
    )
    return with_capabilities_of(inner, _class_with(capabilities)(backend, owner, inner), [Watchable])
