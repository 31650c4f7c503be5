"""What the searches of all owners share: the encoder, the indexer, and indexes held in memory, within bounds.

Below: vectors, the portable index, the indexer. Above: the searcher of one owner.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from aforesaid.contracts import ConversationStore, Embedder
from aforesaid.search.indexing import QUIET, Indexer
from aforesaid.search.memory_index import OwnerIndex
from aforesaid.search.owner_cache import Held
from aforesaid.search.text_vectors import TextVectors
from aforesaid.search.vectors import OwnerVectors

MOST_MESSAGES = 500_000
"""Messages, of all owners together, in indexes that stand in for a store's own."""
MOST_VECTOR_BYTES = 512 * 1024 * 1024
"""Memory for vectors, of all owners together. Whoever searched longest ago goes first, and after a quarter of
an hour everybody: see `holding`."""

MOST_TEXTS = 20_000
"""Texts that are no messages, of all owners together, whose vectors are held."""


class SearchResources:
    """Made once for a memory; handed to every owner's searcher."""

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        quiet: float = QUIET,
        most_messages: int = MOST_MESSAGES,
        most_vector_bytes: int = MOST_VECTOR_BYTES,
    ) -> None:
        self.embedder = embedder
        self.encoder_trouble: str | None = None
        """Why the last question could not be encoded, if it could not."""
        self.indexer = None if embedder is None else Indexer(embedder, written=self._written, quiet=quiet)
        self._indexes = Held(OwnerIndex, most=most_messages)
        self._vectors, self._texts = None, None
        if embedder is not None:
            most = most_vector_bytes // (embedder.dimension * 4)
            self._vectors = Held(partial(OwnerVectors, embedder), most=most)
            self._texts = Held(partial(TextVectors, embedder), most=MOST_TEXTS)

    def index_of(self, owner: str) -> OwnerIndex:
        """The portable index of an owner."""
        return self._indexes.of(owner)

    def vectors_of(self, owner: str) -> OwnerVectors:
        """The vectors of an owner. Only for a room with an encoder."""
        assert self._vectors is not None, "without an encoder there are no vectors"
        return self._vectors.of(owner)

    def texts_of(self, owner: str) -> TextVectors | None:
        """The vectors of an owner's texts that are no messages: notes. None without an encoder."""
        return None if self._texts is None else self._texts.of(owner)

    def note(self, owner: str, store: ConversationStore, conversation_id: str | None = None) -> None:
        """Something was said, or is going to be looked for."""
        if self.indexer is not None:
            self.indexer.note(owner, store, conversation_id)

    def looked_at(self, owner: str) -> None:
        """All that lacks vectors is noted by whoever searches: the indexer need not look for it."""
        if self.indexer is not None:
            self.indexer.knows(owner)

    def forget(self, owner: str, conversation_id: str) -> None:
        """A conversation is gone, or was emptied."""
        self._written(owner, conversation_id)

    def _written(self, owner: str, conversation_id: str) -> None:
        vectors = None if self._vectors is None else self._vectors.get(owner)
        if vectors is not None:
            vectors.changed(conversation_id)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Let go of copies in memory, as `CopyHolder` asks: what is needed of them is made anew."""
        index = self._indexes.pop(owner)
        vectors = None if self._vectors is None else self._vectors.pop(owner)
        if self._texts is not None:
            self._texts.pop(owner)
        if self.indexer is not None:
            self.indexer.forget(owner)
        return {
            "index_entries": 0 if index is None else index.holds(conversation_id),
            "cached_copies": 0 if vectors is None else vectors.holds(conversation_id),
        }

    async def close(self) -> None:
        """Stop indexing and let go of everything."""
        if self.indexer is not None:
            await self.indexer.close()
        for held in (self._indexes, self._vectors, self._texts):
            if held is not None:
                held.clear()
