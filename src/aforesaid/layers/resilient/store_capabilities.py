"""Optional capabilities of a resilient store."""

from collections.abc import Sequence

from aforesaid.contracts import (
    Entry,
    LogEnd,
    Matches,
    Sealable,
    Searchable,
    VectorMatch,
    VectorSearchable,
)
from aforesaid.layers.resilient.store_base import ResilientStoreBase, parse_id
from aforesaid.model.ids import parse_uuid


class ResilientCapabilities(ResilientStoreBase):
    """The optional capabilities that need retries. A search raises during an outage."""

    # Sealable

    async def log_end(self, conversation_id: str) -> LogEnd | None:
        def remember(end: LogEnd | None) -> None:
            if end is None:
                self._last_known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
            else:
                self._last_known.end(self._owner, conversation_id, end)

        inner = self.inner_capability(Sealable)
        return await self._answer(
            self._remembering(lambda: inner.log_end(conversation_id), remember, conversation_id),
            lambda view: view.owner_data.log_end(conversation_id, now=self.now()),
            lambda view: parse_id(conversation_id) in view.ends,
            conversation_id=parse_id(conversation_id),
        )

    async def reseal(self, conversation_id: str, entries: Sequence[Entry]) -> int:
        inner = self.inner_capability(Sealable)
        exchanged = await self._write_through(lambda: inner.reseal(conversation_id, entries), repeat=True)
        self._last_known.drop(self._owner, parse_uuid(conversation_id, field="conversation_id"))
        return exchanged

    async def exchange_head(self, conversation_id: str, old: str | None, new: str) -> bool:
        inner = self.inner_capability(Sealable)
        return await self._write_through(lambda: inner.exchange_head(conversation_id, old, new))

    # Searchable and VectorSearchable

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        inner = self.inner_capability(Searchable)
        return await self._search(lambda: inner.matches(terms, limit=limit))

    async def nearest(
        self, model: str, vector: Sequence[float], *, limit: int, around: Sequence[float] | None = None
    ) -> list[VectorMatch] | None:
        inner = self.inner_capability(VectorSearchable)
        return await self._search(lambda: inner.nearest(model, vector, limit=limit, around=around))
