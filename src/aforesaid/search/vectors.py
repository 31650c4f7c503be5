"""One owner's vectors: as they are kept, and as they are searched. Below: contracts, ranking.

Vectors are documents of the kind `vectors/<model>`, in blocks of a few messages, each with the model's name
and dimension. A model reads only its own kind, so two models never meet in one space. To be searched, all are
held in one matrix (`comparing`), which is caught up with the store before every question.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.loops import PerLoop
from aforesaid.contracts import ConversationStore, Document, Embedder, Position
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound, StoreDamaged, StoreError
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.messages import ROLES
from aforesaid.search.encoders import encoded
from aforesaid.search.ranking import Neighbour
from aforesaid.search.vector_matrix import Compared, VectorMatrix

BLOCK = 32
"""Messages in one document: a turn rewrites at most that many vectors, a long history has few documents."""
NEAREST = 100
"""How many messages that share no word with the question are candidates by their meaning."""

_KEY_DIGITS = 16
_PAGE = 100
_GLANCE = 10
"""Records that are looked at before every question: the most recently active."""
_THOROUGH_AFTER = 60.0
"""Seconds after which all records are looked at again, not only the most recently active."""
_RETRY_AFTER = 5.0
"""Seconds after which a conversation whose vectors were not complete is read again."""
_AT_ONCE = 16
"""Conversations that are read at the same time."""
_MANY_GONE = 5_000


def kind_of(embedder: Embedder) -> str:
    """The kind of the documents that hold this model's vectors."""
    return f"vectors/{embedder.name}"


def key_of(sequences: Iterable[int]) -> str:
    """The key of the first block that holds these messages."""
    return f"{min(sequences):0{_KEY_DIGITS}d}"


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
        return key_of((*self.sequences, *self.skipped))

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
    compared: Compared
    neighbour: Callable[[int, float], Neighbour]

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        rows = [
            row for key, held in self.loaded.items() if key in conversations for row in held.rows.values()
        ]
        rows = [row for row in rows if row < self.compared.rows]
        similarities = self.compared.similarities(rows)
        return [self.neighbour(row, similarity) for row, similarity in zip(rows, similarities, strict=True)]

    def of(self, messages: Sequence[tuple[str, int]]) -> Sequence[float | None]:
        rows = [self._row(conversation_id, sequence) for conversation_id, sequence in messages]
        found = iter(self.compared.similarities([row for row in rows if row is not None]))
        return [None if row is None else next(found) for row in rows]

    def _row(self, conversation_id: str, sequence: int) -> int | None:
        held = self.loaded.get(conversation_id)
        row = None if held is None else held.rows.get(sequence)
        # What was added while this question is being answered is not compared.
        return None if row is None or row >= self.compared.rows else row


class OwnerVectors:
    """All vectors of one owner, in one matrix, for one model."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = PerLoop(asyncio.Lock)
        self._dirty: set[str] = set()
        self._incomplete: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self._loaded: dict[str, Loaded] = {}
        self._ids: list[str] = []
        self._matrix = VectorMatrix(self._embedder.dimension)
        self._thorough = 0.0

    @property
    def size(self) -> int:
        """How many vectors it holds, removed ones included."""
        return self._matrix.count

    def holds(self, conversation_id: str | None) -> int:
        """How many vectors of a conversation, or of all, are held."""
        return sum(len(held.rows) for one, held in self._loaded.items() if conversation_id in (None, one))

    def changed(self, conversation_id: str) -> None:
        """Vectors of this conversation were written, or it is gone."""
        self._dirty.add(conversation_id)

    @property
    def looked_at_all(self) -> bool:
        """Whether every conversation has been looked at once: then what lacks vectors is known."""
        return self._thorough > 0

    def take_incomplete(self) -> set[str]:
        """The conversations that were found to lack vectors since this was last asked."""
        incomplete, self._incomplete = self._incomplete, set()
        return incomplete

    async def near(self, store: ConversationStore, text: str, ready: asyncio.Event) -> Near | None:
        """How near everything is to the text, after catching up; None when there are no vectors.

        `ready` is set when all that is left is to compare.
        """
        async with self._lock.here():
            # Encoding takes as long as looking for what is new: both at once.
            row, _ = await asyncio.gather(encoded(self._embedder, text), self._catch_up(store))
            ready.set()
            if not self._matrix.alive:
                return None
            return await asyncio.to_thread(self._compare, row)

    async def alike(self, store: ConversationStore, conversation_id: str) -> dict[str, float]:
        """For every conversation, how near its middle is to this one's, from 0 to 1."""
        async with self._lock.here():
            await self._catch_up(store)
            if conversation_id not in self._loaded or not self._loaded[conversation_id].rows:
                return {}
            return await asyncio.to_thread(self._compare_middles, conversation_id)

    # Catching up

    async def _catch_up(self, store: ConversationStore) -> None:
        dirty, self._dirty = self._dirty, set()
        try:
            await self._load_news(store, dirty)
        except StoreError:
            self._dirty |= dirty
            raise
        if self._matrix.gone > max(_MANY_GONE, self._matrix.count // 4):
            self._clear()
            await self._catch_up(store)

    async def _load_news(self, store: ConversationStore, dirty: set[str]) -> None:
        if not self._loaded or monotonic() - self._thorough > _THOROUGH_AFTER:
            seen = await self._look_at_all(store, dirty)
        else:
            seen = await self._snapshot(store, dirty)
        await self._load_left_over(store, dirty - seen)

    async def _look_at_all(self, store: ConversationStore, dirty: set[str]) -> set[str]:
        """Load whatever is not as it was, and let go of what is no longer there; returns what there is."""
        with noting_freshness() as freshness:
            records = [record async for record in known_records(store)]
        self._matrix.reserve(sum(record.message_count for record in records))
        await self._load_all(store, [record for record in records if self._is_stale(record, dirty)])
        seen = {record.id for record in records}
        if freshness.degraded:
            return seen  # what is not known while the store is away is not gone
        for gone in self._loaded.keys() - seen:
            self._forget(gone)
        self._thorough = monotonic()
        return seen

    async def _snapshot(self, store: ConversationStore, dirty: set[str]) -> set[str]:
        """Load what changed among the most recently active, page by page; returns what was seen."""
        seen: set[str] = set()
        after = None
        while True:
            page = await store.find(Query(limit=_PAGE if after else _GLANCE, after=after))
            seen.update(record.id for record in page.conversations)
            changed = [record for record in page.conversations if self._is_stale(record, dirty)]
            await self._load_all(store, changed)
            after = page.next
            if after is None or not changed:
                return seen

    async def _load_all(self, store: ConversationStore, records: Sequence[Conversation]) -> None:
        """Several at a time: while some are being read, others are taken in."""
        for at in range(0, len(records), _AT_ONCE):
            loading = (self._load(store, record) for record in records[at : at + _AT_ONCE])
            # All come to an end before one's failure is told: nobody goes on behind the lock.
            outcomes = await asyncio.gather(*loading, return_exceptions=True)
            for failure in filter(None, outcomes):
                raise failure

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
        meta = [
            (held.number, block.sequences[at], block.micros[at], block.roles[at], block.lengths[at])
            for at in fresh
        ]
        for row, at in zip(self._matrix.append(block.matrix, fresh, meta), fresh, strict=True):
            held.rows[block.sequences[at]] = row

    def _forget(self, conversation_id: str) -> None:
        held = self._loaded.pop(conversation_id, None)
        if held is not None and held.rows:
            self._matrix.remove(list(held.rows.values()))

    # Comparing

    def _compare(self, vector: Any) -> Near:
        compared = self._matrix.compare(vector, nearest=NEAREST)
        nearest = [self._neighbour(row, similarity) for row, similarity in compared.best]
        return Near(nearest, compared.lowest, compared.highest, dict(self._loaded), compared, self._neighbour)

    def _neighbour(self, row: int, similarity: float) -> Neighbour:
        number, sequence, micros, role, length = self._matrix.meta(row)
        return Neighbour(self._ids[number], Position(micros, sequence), ROLES[role], length, similarity)

    def _compare_middles(self, conversation_id: str) -> dict[str, float]:
        ids = [key for key, held in self._loaded.items() if held.rows]
        groups = [list(self._loaded[key].rows.values()) for key in ids]
        cosines = self._matrix.compare_groups(groups, ids.index(conversation_id))
        return {key: max(0.0, cosine) for key, cosine in zip(ids, cosines, strict=True)}


def _before(key: str | None) -> str | None:
    """A key that sorts directly before this one: the last block may have grown."""
    return None if key is None else f"{int(key) - 1:0{_KEY_DIGITS}d}"
