"""Shared by the searches of all owners: the encoder, the indexer, and bounded caches in memory."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from aforesaid.contracts import ConversationStore, Embedder
from aforesaid.search.indexing import QUIET, Indexer
from aforesaid.search.memory_index import OwnerIndex
from aforesaid.search.owner_cache import OwnerCache
from aforesaid.search.text_vectors import TextVectors
from aforesaid.search.vectors import OwnerVectors

MOST_MESSAGES = 500_000
"""Messages of all owners in indexes in memory."""
MOST_VECTOR_BYTES = 512 * 1024 * 1024
"""Memory for the vectors of all owners. The least recently used owner is evicted first; idle ones after 15
minutes (see `owner_cache`).
"""

MOST_TEXTS = 20_000
"""Texts of all owners, other than messages, with cached vectors."""


class SearchResources:
    """Created once per memory and passed to every owner's searcher."""

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        quiet: float = QUIET,
        most_messages: int = MOST_MESSAGES,
        most_vector_bytes: int = MOST_VECTOR_BYTES,
    ) -> None:
        self.embedder = embedder
        self.encoder_error: str | None = None
        """Error of the last attempt to encode a question, if it failed."""
        self.indexer = (
            None if embedder is None else Indexer(embedder, on_written=self._vectors_changed, quiet=quiet)
        )
        self._indexes = OwnerCache(OwnerIndex, max_size=most_messages)
        self._vectors, self._texts = None, None
        if embedder is not None:
            most_vectors = most_vector_bytes // (embedder.dimension * 4)
            self._vectors = OwnerCache(partial(OwnerVectors, embedder), max_size=most_vectors)
            self._texts = OwnerCache(partial(TextVectors, embedder), max_size=MOST_TEXTS)

    def owners(self) -> set[str]:
        """Return the owners with copies in memory."""
        caches = (self._indexes, self._vectors, self._texts)
        return {owner for cache in caches if cache is not None for owner in cache.owners()}

    def index_of(self, owner: str) -> OwnerIndex:
        """Return the owner's index in memory."""
        return self._indexes.of(owner)

    def vectors_of(self, owner: str) -> OwnerVectors:
        """Return the owner's vectors. Requires an encoder."""
        assert self._vectors is not None, "vectors require an encoder"
        return self._vectors.of(owner)

    def texts_of(self, owner: str) -> TextVectors | None:
        """Return the vectors of the owner's notes; None without an encoder."""
        return None if self._texts is None else self._texts.of(owner)

    def enqueue(self, owner: str, store: ConversationStore, conversation_id: str | None = None) -> None:
        """Enqueue a conversation, or the owner's initial scan, for indexing."""
        if self.indexer is not None:
            self.indexer.enqueue(owner, store, conversation_id)

    def mark_scanned(self, owner: str) -> None:
        """Tell the indexer that a search has scanned the owner's conversations and enqueued those without
        vectors.
        """
        if self.indexer is not None:
            self.indexer.mark_scanned(owner)

    def forget(self, owner: str, conversation_id: str) -> None:
        """Reload a conversation that was removed or cleared, on the next search."""
        self._vectors_changed(owner, conversation_id)

    def _vectors_changed(self, owner: str, conversation_id: str) -> None:
        vectors = None if self._vectors is None else self._vectors.get(owner)
        if vectors is not None:
            vectors.mark_changed(conversation_id)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Drop the owner's copies in memory; they are rebuilt on demand. Implements `CopyHolder`."""
        index = self._indexes.pop(owner)
        vectors = None if self._vectors is None else self._vectors.pop(owner)
        if self._texts is not None:
            self._texts.pop(owner)
        if self.indexer is not None:
            self.indexer.forget(owner)
        return {
            "index_entries": 0 if index is None else index.message_count(conversation_id),
            "cached_copies": 0 if vectors is None else vectors.vector_count(conversation_id),
        }

    async def close(self) -> None:
        """Stop indexing and clear the caches."""
        if self.indexer is not None:
            await self.indexer.close()
        for cache in (self._indexes, self._vectors, self._texts):
            if cache is not None:
                cache.clear()
