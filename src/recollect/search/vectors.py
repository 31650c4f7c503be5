"""One owner's vectors: as they are kept, and as they are searched. Below: contracts, ranking.

Vectors are documents of the kind `vectors/<model>`, in blocks of a few messages, each with the model's name
and dimension. A model reads only its own kind, so two models never meet in one space. To search them all are
held in one matrix and compared with the question, every one: exact, and fast up to some 100,000 messages.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from recollect.contracts import ConversationStore, Document, Embedder, Position
from recollect.conversations import Conversation, Query
from recollect.errors import ConversationNotFound, StoreDamaged
from recollect.messages import ROLES
from recollect.search.ranking import Neighbour

BLOCK = 32
"""Messages in one document: a turn rewrites at most that many vectors, a long history has few documents."""
NEAREST = 100
"""How many messages that share no word with the question are candidates by their meaning."""

_KEY_DIGITS = 16
_PAGE = 100
_THOROUGH_AFTER = 60.0
"""Seconds after which all records are looked at again, not only the most recently active."""
_RETRY_AFTER = 5.0
"""Seconds after which a conversation whose vectors were not complete is read again."""
_MEAN_MOVES_AT = 0.02
"""The share of new vectors at which the middle of all is worked out anew, in a large history."""
_SMALL = 5_000


def kind_of(embedder: Embedder) -> str:
    """The kind of the documents that hold this model's vectors."""
    return f"vectors/{embedder.name}"


KIND_PREFIX = "vectors/"


class Block(Struct, frozen=True, kw_only=True):
    """The vectors of some messages of a conversation, as a document holds them."""

    model: str
    dimension: int
    begun: int
    """The conversation's revision when its first block was made. When a message is replaced all blocks go,
    and those that are made then begin later: who holds copies sees by it that they are void."""
    sequences: list[int] = []
    micros: list[int] = []
    roles: list[int] = []
    lengths: list[int] = []
    skipped: list[int] = []
    """Messages without words: they have been looked at and have no vector."""
    matrix: bytes = b""
    """One row of float16 for each sequence."""

    @property
    def key(self) -> str:
        """The documents of a conversation sort by their first sequence."""
        return f"{min((*self.sequences, *self.skipped)):0{_KEY_DIGITS}d}"

    @property
    def covered(self) -> int:
        return len(self.sequences) + len(self.skipped)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


_decoder = msgspec.msgpack.Decoder(Block)


def decode_block(document: Document, embedder: Embedder) -> Block:
    """The block in a document. One that is not what its kind says is refused."""
    try:
        block = _decoder.decode(document.data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"vectors of {document.conversation_id} cannot be read: {error}") from error
    rows = len(block.sequences)
    sizes = {
        len(block.micros),
        len(block.roles),
        len(block.lengths),
        len(block.matrix) // (2 * block.dimension),
    }
    if (block.model, block.dimension) != (embedder.name, embedder.dimension) or sizes != {rows}:
        raise StoreDamaged(f"vectors of {document.conversation_id} are not those of {embedder.name}")
    return block


async def blocks_of(
    store: ConversationStore, conversation_id: str, embedder: Embedder, *, after: str | None = None
) -> list[Block]:
    """The blocks of a conversation, from the one that follows a key."""
    blocks: list[Block] = []
    while True:
        page = await store.documents(
            kind_of(embedder), conversation_id=conversation_id, after=after, limit=_PAGE
        )
        blocks += [decode_block(document, embedder) for document in page]
        if len(page) < _PAGE:
            return blocks
        after = page[-1].key


class Loaded(Struct):
    """What is held of one conversation."""

    number: int
    revision: int
    begun: int | None = None
    rows: dict[int, int] = {}
    """Sequence → row of the matrix."""
    skipped: set[int] = set()
    last_key: str | None = None
    checked: float = 0.0

    @property
    def covered(self) -> int:
        return len(self.rows) + len(self.skipped)


class Near(Struct, frozen=True):
    """The owner's messages and their similarity to one question."""

    nearest: Sequence[Neighbour]
    lowest: float
    highest: float
    loaded: dict[str, Loaded]
    similarities: Any

    def of(self, conversation_id: str, sequence: int) -> float | None:
        held = self.loaded.get(conversation_id)
        row = None if held is None else held.rows.get(sequence)
        return None if row is None else float(self.similarities[row])


class OwnerVectors:
    """All vectors of one owner, in one matrix, for one model."""

    def __init__(self, embedder: Embedder) -> None:
        import numpy

        self._np = numpy
        self._embedder = embedder
        self._lock = asyncio.Lock()
        self._dirty: set[str] = set()
        self._incomplete: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        np = self._np
        self._loaded: dict[str, Loaded] = {}
        self._ids: list[str] = []
        self._count = 0
        self._dead = 0
        self._matrix = np.zeros((0, self._embedder.dimension), np.float32)
        self._meta = np.zeros((0, 5), np.int64)
        self._mean: Any = None
        self._mean_of = 0
        self._lengths: Any = None
        self._thorough = 0.0

    @property
    def size(self) -> int:
        return int(self._count)

    @property
    def bytes(self) -> int:
        """What the matrix takes in memory."""
        return int(self._matrix.nbytes + self._meta.nbytes)

    def changed(self, conversation_id: str) -> None:
        """Vectors of this conversation were written, or it is gone."""
        self._dirty.add(conversation_id)

    def take_incomplete(self) -> set[str]:
        """The conversations that were found to lack vectors since this was last asked."""
        incomplete, self._incomplete = self._incomplete, set()
        return incomplete

    async def near(self, store: ConversationStore, text: str) -> Near | None:
        """How near everything is to the text, after catching up; None when there are no vectors."""
        async with self._lock:
            # Encoding takes as long as looking for what is new: both at once.
            encoding = asyncio.to_thread(self._embedder.embed, [text])
            rows, _ = await asyncio.gather(encoding, self._catch_up(store))
            if self._count == self._dead:
                return None
            return await asyncio.to_thread(self._compare, rows[0])

    async def alike(self, store: ConversationStore, conversation_id: str) -> dict[str, float]:
        """For every conversation, how near its middle is to this one's, from 0 to 1."""
        async with self._lock:
            await self._catch_up(store)
            if conversation_id not in self._loaded or not self._loaded[conversation_id].rows:
                return {}
            return await asyncio.to_thread(self._compare_middles, conversation_id)

    # Catching up

    async def _catch_up(self, store: ConversationStore) -> None:
        thorough = monotonic() - self._thorough > _THOROUGH_AFTER or not self._loaded
        dirty, self._dirty = self._dirty, set()
        seen: set[str] = set()
        after = None
        while True:
            page = await store.find(Query(limit=_PAGE, after=after))
            seen.update(record.id for record in page.conversations)
            changed = [record for record in page.conversations if self._is_stale(record, dirty)]
            for record in changed:
                await self._load(store, record)
            after = page.next
            if after is None or not (thorough or changed):
                break
        await self._load_left_over(store, dirty - seen)
        if thorough and after is None:
            self._forget_all_but(seen)
        if self._dead > max(_SMALL, self._count // 4):
            self._clear()
            await self._catch_up(store)

    def _is_stale(self, record: Conversation, dirty: set[str]) -> bool:
        held = self._loaded.get(record.id)
        if held is None or record.id in dirty or held.revision != record.revision:
            return True
        return held.covered != record.message_count and monotonic() - held.checked > _RETRY_AFTER

    async def _load_left_over(self, store: ConversationStore, dirty: set[str]) -> None:
        """What was noted as changed and is not among the most recently active."""
        for conversation_id in dirty:
            record = await store.get(conversation_id)
            if record is None:
                self._forget(conversation_id)
            else:
                await self._load(store, record)

    def _forget_all_but(self, seen: set[str]) -> None:
        for gone in self._loaded.keys() - seen:
            self._forget(gone)
        self._thorough = monotonic()

    async def _load(self, store: ConversationStore, record: Conversation) -> None:
        held = self._loaded.get(record.id)
        if held is not None and held.covered > record.message_count:
            self._forget(record.id)
        held = self._loaded.get(record.id) or self._started(record)
        try:
            blocks = await blocks_of(store, record.id, self._embedder, after=_before(held.last_key))
            if held.begun not in (None, *(block.begun for block in blocks[:1])):
                self._forget(record.id)
                held, blocks = self._started(record), await blocks_of(store, record.id, self._embedder)
            self._take(held, blocks)
            if held.covered != record.message_count and held.last_key is not None:
                self._take(held, await blocks_of(store, record.id, self._embedder))
        except ConversationNotFound:
            self._forget(record.id)
            return
        held.revision, held.checked = record.revision, monotonic()
        if held.covered < record.message_count:
            self._incomplete.add(record.id)

    def _started(self, record: Conversation) -> Loaded:
        self._ids.append(record.id)
        held = self._loaded[record.id] = Loaded(len(self._ids) - 1, record.revision)
        return held

    def _take(self, held: Loaded, blocks: Sequence[Block]) -> None:
        for block in blocks:
            fresh = [at for at, sequence in enumerate(block.sequences) if sequence not in held.rows]
            if fresh:
                self._append(held, block, fresh)
            held.begun = block.begun
            held.skipped.update(block.skipped)
            held.last_key = max(held.last_key or "", block.key)

    def _append(self, held: Loaded, block: Block, fresh: list[int]) -> None:
        np = self._np
        rows = np.frombuffer(block.matrix, np.float16).reshape(-1, block.dimension)[fresh].astype(np.float32)
        start, end = self._count, self._count + len(fresh)
        self._grow(end)
        self._matrix[start:end] = rows
        for row, at in enumerate(fresh, start):
            held.rows[block.sequences[at]] = row
            self._meta[row] = (
                held.number,
                block.sequences[at],
                block.micros[at],
                block.roles[at],
                block.lengths[at],
            )
        self._count = end

    def _grow(self, needed: int) -> None:
        if needed <= len(self._matrix):
            return
        np, size = self._np, max(256, needed, len(self._matrix) * 3 // 2)
        matrix = np.zeros((size, self._embedder.dimension), np.float32)
        meta = np.zeros((size, 5), np.int64)
        matrix[: self._count], meta[: self._count] = self._matrix[: self._count], self._meta[: self._count]
        self._matrix, self._meta = matrix, meta

    def _forget(self, conversation_id: str) -> None:
        held = self._loaded.pop(conversation_id, None)
        if held is not None and held.rows:
            rows = list(held.rows.values())
            self._meta[rows, 3] = _GONE
            self._matrix[rows] = 0
            self._dead += len(rows)

    # Comparing

    def _compare(self, vector: Any) -> Near:
        """Cosines around the middle of all the owner's vectors, which says what they have in common."""
        np = self._np
        self._find_middle()
        matrix = self._matrix[: self._count]
        asked = vector - self._mean
        offset = float(asked @ self._mean)
        length = float(np.linalg.norm(asked)) or 1.0
        cosines = (matrix @ asked - offset) / (self._lengths[: self._count] * length)
        alive = self._meta[: self._count, 3] != _GONE
        counted = cosines if self._dead == 0 else cosines[alive]
        cosines = cosines if self._dead == 0 else np.where(alive, cosines, -np.inf)
        best = np.argpartition(-cosines, min(NEAREST, self._count - 1))[:NEAREST]
        return Near(
            [self._neighbour(int(row), float(cosines[row])) for row in best if alive[row]],
            float(counted.min()),
            float(counted.max()),
            dict(self._loaded),
            cosines,
        )

    def _compare_middles(self, conversation_id: str) -> dict[str, float]:
        np = self._np
        self._find_middle()
        ids = [key for key, held in self._loaded.items() if held.rows]
        middles = np.stack([self._matrix[list(self._loaded[key].rows.values())].mean(axis=0) for key in ids])
        middles -= self._mean
        middles /= np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-6)
        cosines = middles @ middles[ids.index(conversation_id)]
        return {key: max(0.0, float(cosine)) for key, cosine in zip(ids, cosines, strict=True)}

    def _find_middle(self) -> None:
        np, alive = self._np, self._count - self._dead
        moved = abs(alive - self._mean_of)
        if self._mean is None or (moved and (alive < _SMALL or moved > alive * _MEAN_MOVES_AT)):
            self._mean = self._matrix[: self._count].sum(axis=0, dtype=np.float64).astype(np.float32) / alive
            self._mean_of = alive
            self._lengths = None
        self._measure()

    def _measure(self) -> None:
        """How long each vector is, seen from the middle."""
        np = self._np
        known = 0 if self._lengths is None else len(self._lengths)
        if known == self._count:
            return
        along = self._matrix[known : self._count] @ self._mean
        lengths = np.sqrt(np.maximum(1 - 2 * along + float(self._mean @ self._mean), 1e-6))
        self._lengths = lengths if known == 0 else np.concatenate((self._lengths, lengths))

    def _neighbour(self, row: int, similarity: float) -> Neighbour:
        number, sequence, micros, role, length = (int(value) for value in self._meta[row])
        return Neighbour(self._ids[number], Position(micros, sequence), ROLES[role], length, similarity)


_GONE = -1


def _before(key: str | None) -> str | None:
    """A key that sorts directly before this one: the last block may have grown."""
    return None if key is None else f"{int(key) - 1:0{_KEY_DIGITS}d}"
