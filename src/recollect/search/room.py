"""What the searches of all owners share: the encoder, the indexer, and indexes held in memory, within bounds.

Below: vectors, the portable index, the indexer. Above: the searcher of one owner.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol, TypeVar

from recollect.contracts import ConversationStore, Embedder
from recollect.search.indexing import QUIET, Indexer
from recollect.search.portable import OwnerIndex
from recollect.search.texts import TextVectors
from recollect.search.vectors import OwnerVectors

MOST_MESSAGES = 500_000
"""Messages, of all owners together, in indexes that stand in for a store's own."""
MOST_VECTOR_BYTES = 512 * 1024 * 1024
"""Memory for vectors, of all owners together. Whoever searched longest ago goes first."""

MOST_TEXTS = 20_000
"""Texts that are no messages, of all owners together, whose vectors are held."""


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=_Sized)


class SearchRoom:
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
        self._most_messages = most_messages
        self._most_vectors = 0 if embedder is None else most_vector_bytes // (embedder.dimension * 4)
        self._indexes: OrderedDict[str, OwnerIndex] = OrderedDict()
        self._vectors: OrderedDict[str, OwnerVectors] = OrderedDict()
        self._texts: OrderedDict[str, TextVectors] = OrderedDict()

    def index_of(self, owner: str) -> OwnerIndex:
        """The portable index of an owner."""
        if owner not in self._indexes:
            self._indexes[owner] = OwnerIndex()
        return _used(self._indexes, owner, self._most_messages)

    def vectors_of(self, owner: str) -> OwnerVectors:
        """The vectors of an owner. Only for a room with an encoder."""
        if owner not in self._vectors:
            assert self.embedder is not None, "without an encoder there are no vectors"
            self._vectors[owner] = OwnerVectors(self.embedder)
        return _used(self._vectors, owner, self._most_vectors)

    def texts_of(self, owner: str) -> TextVectors | None:
        """The vectors of an owner's texts that are no messages: notes. None without an encoder."""
        if self.embedder is None:
            return None
        if owner not in self._texts:
            self._texts[owner] = TextVectors(self.embedder)
        return _used(self._texts, owner, MOST_TEXTS)

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
        if owner in self._vectors:
            self._vectors[owner].changed(conversation_id)

    async def forgets(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Let go of copies in memory, as `Holds` asks: what is needed of them is made anew."""
        index, vectors = self._indexes.pop(owner, None), self._vectors.pop(owner, None)
        self._texts.pop(owner, None)
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
        self._indexes.clear()
        self._vectors.clear()
        self._texts.clear()


def _used(held: "OrderedDict[str, S]", owner: str, most: int) -> S:
    """The owner's, marked as used now. Others go until what is held fits; the owner's own always stays."""
    held.move_to_end(owner)
    while len(held) > 1 and sum(one.size for one in held.values()) > most:
        held.popitem(last=False)
    return held[owner]
