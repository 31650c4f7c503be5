"""Shared by the searches of all owners: the encoder, the indexer, and bounded caches in memory."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import ConversationStore, Embedder
from aforesaid.errors import EncoderFailed
from aforesaid.search.encoders import MiniLMEncoder, UniversalEncoder
from aforesaid.search.indexing import QUIET, Indexer
from aforesaid.search.labels import OwnerLabels
from aforesaid.search.memory_index import OwnerIndex
from aforesaid.search.relevance import BUILT_IN, HYBRID, MINILM, RELATED, CosineScale, scale_of
from aforesaid.search.vectors import OwnerVectors, encodable_text, encode_texts

# Seconds after which an unused value is evicted. Reloading a hundred thousand vectors takes a second.
IDLE = 900.0


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


class _Entry(Generic[S]):
    def __init__(self, value: S, used_at: float) -> None:
        self.value = value
        self.used_at = used_at


class OwnerCache(Generic[S]):
    """One value per owner; evicts the least recently used when the total size is too large, and idle ones."""

    def __init__(
        self,
        make: Callable[[], S],
        *,
        max_size: int,
        idle: float = IDLE,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._make = make
        self._idle = idle
        self._now = now
        self._entries: BoundedDict[str, _Entry[S]] = BoundedDict(
            max_size, size=lambda entry: entry.value.size
        )
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def owners(self) -> list[str]:
        """Return the owners with a value."""
        return list(self._entries)

    def get(self, owner: str) -> S | None:
        """Return the value without marking it as used, or None."""
        entry = self._entries.get(owner)
        return None if entry is None else entry.value

    def of(self, owner: str) -> S:
        """Return the owner's value, created if necessary, and evict others until the total size fits."""
        entry = self._entries.use(owner)
        if entry is None:
            entry = self._entries[owner] = _Entry(self._make(), 0.0)
        entry.used_at = self._now()
        self._entries.remeasure()  # values grow after they are cached
        self._schedule_eviction()
        return entry.value

    def pop(self, owner: str) -> S | None:
        entry = self._entries.pop(owner, None)
        return None if entry is None else entry.value

    def clear(self) -> None:
        self._entries.clear()
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    def evict_idle(self) -> None:
        """Remove every value that has not been used within the idle time."""
        since = self._now() - self._idle
        for owner in [owner for owner, entry in self._entries.items() if entry.used_at <= since]:
            self.pop(owner)

    def _schedule_eviction(self) -> None:
        """Start one timer for all values, if none is running on this event loop."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer[0] is not loop:
            self._timer = (loop, loop.call_later(self._idle, self._on_timer))

    def _on_timer(self) -> None:
        self._timer = None
        self.evict_idle()
        if self._entries:
            self._schedule_eviction()


class TextVectors:
    """One owner's texts with their vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, Any] = {}

    @property
    def size(self) -> int:
        return len(self._vectors)

    async def similarities(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return each text's similarity to the question. May raise `EncoderFailed`.

        Afterwards only these texts stay cached.
        """
        if not texts:
            return []
        cached = self._vectors
        new = list(dict.fromkeys(text for text in texts if text not in cached))
        rows = await encode_texts(self._embedder, [encodable_text(text) for text in (question, *new)])
        found = {**cached, **dict(zip(new, rows[1:], strict=True))}
        self._vectors = {text: found[text] for text in texts}
        return [float(found[text] @ rows[0]) for text in texts]


# Messages of all owners in indexes in memory.
MOST_MESSAGES = 500_000
# Memory for the vectors of all owners. The least recently used owner is evicted first; idle ones after 15
# minutes (see `owner_cache`).
MOST_VECTOR_BYTES = 512 * 1024 * 1024

# Labels of all owners in memory: about 400 bytes each.
MOST_LABELS = 500_000

# Texts of all owners, other than messages, with cached vectors.
MOST_TEXTS = 20_000


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
        self._scale = BUILT_IN if embedder is None or embedder.name == UniversalEncoder.name else None
        # Error of the last attempt to encode a question, if it failed.
        self.encoder_error: str | None = None
        self.indexer = (
            None if embedder is None else Indexer(embedder, on_written=self._vectors_changed, quiet=quiet)
        )
        self._indexes = OwnerCache(OwnerIndex, max_size=most_messages)
        self._labels = OwnerCache(OwnerLabels, max_size=MOST_LABELS)
        self._vectors, self._texts = None, None
        if embedder is not None:
            most_vectors = most_vector_bytes // (embedder.dimension * 4)
            self._vectors = OwnerCache(partial(OwnerVectors, embedder), max_size=most_vectors)
            self._texts = OwnerCache(partial(TextVectors, embedder), max_size=MOST_TEXTS)

    async def cosine_scale(self) -> CosineScale:
        """Return the scale of the encoder's cosines, measured once for an encoder that is not built in."""
        if self._scale is None:
            assert self.embedder is not None, "the built-in scale is known"
            texts = [text for pair in RELATED for text in pair]
            try:
                rows = await encode_texts(self.embedder, texts)
                calibration = MINILM if self.embedder.name == MiniLMEncoder.name else HYBRID
                self._scale = scale_of(rows, calibration)
            except EncoderFailed:
                return BUILT_IN
        return self._scale

    def owners(self) -> set[str]:
        """Return the owners with copies in memory."""
        caches = (self._indexes, self._labels, self._vectors, self._texts)
        return {owner for cache in caches if cache is not None for owner in cache.owners()}

    def index_of(self, owner: str) -> OwnerIndex:
        """Return the owner's index in memory."""
        return self._indexes.of(owner)

    def labels_of(self, owner: str) -> OwnerLabels:
        """Return the owner's labels in memory."""
        return self._labels.of(owner)

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
        labels = self._labels.get(owner)
        if labels is not None:
            labels.remove(conversation_id)

    def _vectors_changed(self, owner: str, conversation_id: str) -> None:
        vectors = None if self._vectors is None else self._vectors.get(owner)
        if vectors is not None:
            vectors.mark_changed(conversation_id)

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Drop the owner's copies in memory; they are rebuilt on demand. Implements `CopyHolder`."""
        index = self._indexes.pop(owner)
        self._labels.pop(owner)
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
        for cache in (self._indexes, self._labels, self._vectors, self._texts):
            if cache is not None:
                cache.clear()
