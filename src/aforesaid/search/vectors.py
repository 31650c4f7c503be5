"""One owner's vectors: how messages are encoded, stored blocks, and their copy in memory."""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from aforesaid._internal.freshness import noting_freshness
from aforesaid._internal.tasks import PerLoop
from aforesaid.contracts import ConversationStore, Document, Embedder, Position
from aforesaid.contracts.listing import all_documents, known_records
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    EncoderFailed,
    StoreDamaged,
    StoreError,
)
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.messages import ROLES, Message
from aforesaid.search.analysis import named_speaker, searchable_text
from aforesaid.search.ranking import Neighbour
from aforesaid.search.vector_matrix import Compared, VectorMatrix

# Characters of a message that are encoded. Measured: the rest of a long answer does not improve results and
# costs most of the time.
LONGEST_TEXT = 600


def embedded_text(message: Message) -> str:
    """Return the text that a message's vector represents; empty if there is nothing to encode."""
    if message.role == "system":
        return ""
    text, name = searchable_text(message).strip(), named_speaker(message)
    if not any(character.isalnum() for character in text[:LONGEST_TEXT]):
        return ""
    return encodable_text(f"{name}: {text}" if name else text)


def encodable_text(text: str) -> str:
    """Return the beginning of the text without lone surrogates and null characters."""
    return text[:LONGEST_TEXT].encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")


async def encode_text(embedder: Embedder, text: str) -> Any:
    """Return a text's vector, computed off the event loop. Raise `EncoderFailed` for any encoder error."""
    return (await encode_texts(embedder, [text]))[0]


async def encode_texts(embedder: Embedder, texts: Sequence[str]) -> Any:
    """Return the vectors of several texts, one row each."""
    try:
        return await asyncio.to_thread(embedder.embed, list(texts))
    except AforesaidError:
        raise
    except Exception as error:  # a plug-in encoder may raise anything
        raise EncoderFailed(f"the encoder failed: {type(error).__name__}: {error}") from error


# One owner's vectors: stored blocks, and their copy in memory for searching.
#
# Vectors are documents of the kind `vectors/<model>`, in blocks of a few messages, each with the model's
# name and dimension. A model reads only its own kind, so vectors of two models are never compared. A search
# loads all of them into one `VectorMatrix` and updates it from the store before every question.


# Messages per document: a turn rewrites at most this many vectors, and a long history has few documents.
BLOCK = 32
# Number of candidates by meaning that share no word with the question.
NEAREST = 100

_KEY_DIGITS = 16
_PAGE = 100
# Most recently active records that are checked before every question.
_RECENT = 10
# Seconds between checks of all records.
_SCAN_INTERVAL = 60.0
# Seconds after which a conversation with incomplete vectors is read again.
_RETRY_AFTER = 5.0
# Conversations read concurrently.
_AT_ONCE = 16
# Removed rows below which the matrix is not rebuilt.
_MIN_REMOVED = 5_000


def kind_of(embedder: Embedder) -> str:
    """Return the document kind of this model's vectors."""
    return f"vectors/{embedder.name}"


def key_of(sequences: Iterable[int]) -> str:
    """Return the key of the block that starts with these messages."""
    return f"{min(sequences):0{_KEY_DIGITS}d}"


KIND_PREFIX = "vectors/"


class Block(Struct, frozen=True, kw_only=True):
    """The vectors of some messages of a conversation, as one document."""

    model: str
    dimension: int
    begun: int
    """The conversation's revision when its first block was written. Replacing a message removes all blocks,
    and new blocks have a later revision, so that copies can be recognized as outdated.
    """
    sequences: list[int] = []
    micros: list[int] = []
    roles: list[int] = []
    lengths: list[int] = []
    flags: list[int] = []
    """See `cues`."""
    skipped: list[int] = []
    """Messages without words, which have no vector."""
    matrix: bytes = b""
    """One row of float16 per sequence."""

    @property
    def key(self) -> str:
        """The first sequence: a conversation's documents sort by it."""
        return key_of((*self.sequences, *self.skipped))

    @property
    def covered(self) -> int:
        return len(self.sequences) + len(self.skipped)

    @property
    def flags_by_row(self) -> list[int]:
        """The flags; 0 in a block that was written without them."""
        return self.flags or [0] * len(self.sequences)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


_decoder = msgspec.msgpack.Decoder(Block)


def decode_block(document: Document, embedder: Embedder) -> Block:
    """Decode a document. Raise `StoreDamaged` if it does not match its kind."""
    try:
        block = _decoder.decode(document.data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"vectors of {document.conversation_id} cannot be read: {error}") from error
    rows = len(block.sequences)
    sizes = {
        len(block.micros),
        len(block.roles),
        len(block.lengths),
        len(block.flags_by_row),
        len(block.matrix) // (2 * block.dimension),
    }
    if (block.model, block.dimension) != (embedder.name, embedder.dimension) or sizes != {rows}:
        raise StoreDamaged(f"vectors of {document.conversation_id} do not match the model {embedder.name}")
    return block


async def blocks_of(
    store: ConversationStore, conversation_id: str, embedder: Embedder, *, after: str | None = None
) -> list[Block]:
    """Return the blocks of a conversation that follow the key `after`."""
    documents = all_documents(store, kind_of(embedder), conversation_id=conversation_id, after=after)
    return [decode_block(document, embedder) async for document in documents]


class LoadedConversation(Struct):
    """The copy of one conversation's vectors in memory."""

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


N = TypeVar("N", int, float)


class VectorSimilarities(Struct, frozen=True):
    """The similarity of the owner's messages to one question."""

    nearest: Sequence[Neighbour]
    lowest: float
    highest: float
    loaded: dict[str, LoadedConversation]
    compared: Compared
    neighbour: Callable[[int, float], Neighbour]

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        rows = [
            row for key, loaded in self.loaded.items() if key in conversations for row in loaded.rows.values()
        ]
        rows = [row for row in rows if row < self.compared.rows]
        similarities = self.compared.similarities(rows)
        return [self.neighbour(row, similarity) for row, similarity in zip(rows, similarities, strict=True)]

    def of(self, messages: Sequence[tuple[str, int]]) -> Sequence[float | None]:
        return self._of(messages, self.compared.similarities)

    def cosines(self, messages: Sequence[tuple[str, int]]) -> Sequence[float | None]:
        return self._of(messages, self.compared.cosines)

    def likeness(
        self, best: Sequence[tuple[str, int]], messages: Sequence[tuple[str, int]]
    ) -> Sequence[float | None]:
        rows = [row for row in self._rows(best) if row is not None]
        return self._of(messages, partial(self.compared.likeness, rows)) if rows else [None] * len(messages)

    def flags(self, messages: Sequence[tuple[str, int]]) -> Sequence[int]:
        return [flags or 0 for flags in self._of(messages, self.compared.flags)]

    def _of(
        self, messages: Sequence[tuple[str, int]], read: Callable[[Sequence[int]], Sequence[N]]
    ) -> Sequence[N | None]:
        rows = self._rows(messages)
        known = [row for row in rows if row is not None]
        if len(known) == len(rows):
            return read(known)
        found = iter(read(known))
        return [None if row is None else next(found) for row in rows]

    def _rows(self, messages: Sequence[tuple[str, int]]) -> Sequence[int | None]:
        """Return the row of each message; None for one without a vector."""
        # Rows added after the comparison have no similarity.
        nothing, end, loaded = dict[int, int](), self.compared.rows, self.loaded
        by_sequence = {key: loaded[key].rows for key in {key for key, _ in messages} if key in loaded}
        rows = [by_sequence.get(key, nothing).get(sequence) for key, sequence in messages]
        return [None if row is None or row >= end else row for row in rows]


class OwnerVectors:
    """All vectors of one owner and one model, in one matrix."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = PerLoop(asyncio.Lock)
        self._dirty: set[str] = set()
        self._incomplete: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self._loaded: dict[str, LoadedConversation] = {}
        self._ids: list[str] = []
        self._matrix = VectorMatrix(self._embedder.dimension)
        self._scanned_at = 0.0

    @property
    def size(self) -> int:
        """The number of rows, including removed ones."""
        return self._matrix.count

    def vector_count(self, conversation_id: str | None) -> int:
        """Return the number of vectors of a conversation, or of all."""
        return sum(len(loaded.rows) for one, loaded in self._loaded.items() if conversation_id in (None, one))

    def mark_changed(self, conversation_id: str) -> None:
        """Reload this conversation on the next search: its vectors were written, or it was removed."""
        self._dirty.add(conversation_id)

    @property
    def fully_scanned(self) -> bool:
        """Whether every conversation has been checked once, so that missing vectors are known."""
        return self._scanned_at > 0

    def take_incomplete(self) -> set[str]:
        """Return the conversations found to lack vectors since the last call."""
        incomplete, self._incomplete = self._incomplete, set()
        return incomplete

    async def similarities(
        self, store: ConversationStore, text: str, ready: asyncio.Event
    ) -> VectorSimilarities | None:
        """Update, then compare everything with the text; None if there are no vectors.

        `ready` is set when only the comparison remains.
        """
        async with self._lock.here():
            # Encoding takes about as long as the update, so both run concurrently.
            row, _ = await asyncio.gather(encode_text(self._embedder, text), self._update(store))
            ready.set()
            if not self._matrix.alive:
                return None
            return await asyncio.to_thread(self._compare, row)

    async def conversation_similarities(
        self, store: ConversationStore, conversation_id: str
    ) -> dict[str, float]:
        """Return the similarity of every conversation's centroid to this one's, from 0 to 1."""
        async with self._lock.here():
            await self._update(store)
            if conversation_id not in self._loaded or not self._loaded[conversation_id].rows:
                return {}
            return await asyncio.to_thread(self._compare_centroids, conversation_id)

    # Updating

    async def _update(self, store: ConversationStore) -> None:
        dirty, self._dirty = self._dirty, set()
        try:
            await self._load_changes(store, dirty)
        except StoreError:
            # Nothing of this batch may be lost: the next search tries all of them again.
            self._dirty |= dirty
            raise
        # Removed rows stay in the matrix as zeros. Rebuilding costs a full read, so it waits for a quarter.
        if self._matrix.removed > max(_MIN_REMOVED, self._matrix.count // 4):
            self._clear()
            await self._update(store)

    async def _load_changes(self, store: ConversationStore, dirty: set[str]) -> None:
        if not self._loaded or monotonic() - self._scanned_at > _SCAN_INTERVAL:
            scanned = await self._scan_all(store, dirty)
        else:
            scanned = await self._scan_recent(store, dirty)
        await self._load_remaining(store, dirty - scanned)

    async def _scan_all(self, store: ConversationStore, dirty: set[str]) -> set[str]:
        """Load every changed conversation and drop removed ones; return the ids of all."""
        with noting_freshness() as freshness:
            records = [record async for record in known_records(store)]
        # Known sizes allow one allocation instead of repeated copies of a growing matrix.
        self._matrix.reserve(sum(record.message_count for record in records))
        await self._load_all(store, [record for record in records if self._is_stale(record, dirty)])
        scanned = {record.id for record in records}
        if freshness.degraded:
            return scanned  # a degraded listing is incomplete: absent conversations may still exist
        for removed in self._loaded.keys() - scanned:
            self._forget(removed)
        self._scanned_at = monotonic()
        return scanned

    async def _scan_recent(self, store: ConversationStore, dirty: set[str]) -> set[str]:
        """Load the changes among the most recently active records, page by page; return the ids checked."""
        scanned: set[str] = set()
        after = None
        while True:
            page = await store.find(Query(limit=_PAGE if after else _RECENT, after=after))
            scanned.update(record.id for record in page.conversations)
            changed = [record for record in page.conversations if self._is_stale(record, dirty)]
            await self._load_all(store, changed)
            after = page.next
            # Records are sorted by activity, so changed ones come first. The scan of all records finds other
            # changes.
            if after is None or not changed:
                return scanned

    async def _load_all(self, store: ConversationStore, records: Sequence[Conversation]) -> None:
        """Load several conversations concurrently."""
        for at in range(0, len(records), _AT_ONCE):
            loading = (self._load(store, record) for record in records[at : at + _AT_ONCE])
            # Let all loads end before raising: none may continue after the lock is released.
            outcomes = await asyncio.gather(*loading, return_exceptions=True)
            for failure in filter(None, outcomes):
                raise failure

    def _is_stale(self, record: Conversation, dirty: set[str]) -> bool:
        loaded = self._loaded.get(record.id)
        if loaded is None or record.id in dirty or loaded.revision != record.revision:
            return True
        # The indexer writes vectors after the turn. Do not read again at every search while it is behind.
        return loaded.covered != record.message_count and monotonic() - loaded.checked > _RETRY_AFTER

    async def _load_remaining(self, store: ConversationStore, dirty: set[str]) -> None:
        """Load changed conversations that are not among the most recently active."""
        for conversation_id in dirty:
            record = await store.get(conversation_id)
            if record is None:
                self._forget(conversation_id)
            else:
                await self._load(store, record)

    async def _load(self, store: ConversationStore, record: Conversation) -> None:
        loaded = self._loaded.get(record.id)
        # Messages were removed, and the loaded rows do not show which: load everything again.
        if loaded is not None and loaded.covered > record.message_count:
            self._forget(record.id)
        loaded = self._loaded.get(record.id) or self._start_loading(record)
        try:
            blocks = await blocks_of(store, record.id, self._embedder, after=_before(loaded.last_key))
            # Other blocks than the loaded ones: a message was replaced, and all vectors were written again.
            if loaded.begun not in (None, *(block.begun for block in blocks[:1])):
                self._forget(record.id)
                loaded, blocks = (
                    self._start_loading(record),
                    await blocks_of(store, record.id, self._embedder),
                )
            self._add_blocks(loaded, blocks)
            # A block before the last loaded one may have been written since.
            if loaded.covered != record.message_count and loaded.last_key is not None:
                self._add_blocks(loaded, await blocks_of(store, record.id, self._embedder))
        except ConversationNotFound:
            self._forget(record.id)
            return
        loaded.revision, loaded.checked = record.revision, monotonic()
        if loaded.covered < record.message_count:
            self._incomplete.add(record.id)

    def _start_loading(self, record: Conversation) -> LoadedConversation:
        self._ids.append(record.id)
        loaded = self._loaded[record.id] = LoadedConversation(len(self._ids) - 1, record.revision)
        return loaded

    def _add_blocks(self, loaded: LoadedConversation, blocks: Sequence[Block]) -> None:
        for block in blocks:
            fresh = [at for at, sequence in enumerate(block.sequences) if sequence not in loaded.rows]
            if fresh:
                self._append(loaded, block, fresh)
            loaded.begun = block.begun
            loaded.skipped.update(block.skipped)
            loaded.last_key = max(loaded.last_key or "", block.key)

    def _append(self, loaded: LoadedConversation, block: Block, fresh: list[int]) -> None:
        columns = zip(
            block.sequences, block.micros, block.roles, block.lengths, block.flags_by_row, strict=True
        )
        rows = list(columns)
        meta = [(loaded.number, *rows[at]) for at in fresh]
        for row, at in zip(self._matrix.append(block.matrix, fresh, meta), fresh, strict=True):
            loaded.rows[block.sequences[at]] = row

    def _forget(self, conversation_id: str) -> None:
        loaded = self._loaded.pop(conversation_id, None)
        if loaded is not None and loaded.rows:
            self._matrix.remove(list(loaded.rows.values()))

    # Comparing

    def _compare(self, vector: Any) -> VectorSimilarities:
        compared = self._matrix.compare(vector, nearest=NEAREST)
        nearest = [self._neighbour(row, similarity) for row, similarity in compared.best]
        return VectorSimilarities(
            nearest, compared.lowest, compared.highest, dict(self._loaded), compared, self._neighbour
        )

    def _neighbour(self, row: int, similarity: float) -> Neighbour:
        number, sequence, micros, role, length, _ = self._matrix.meta(row)
        return Neighbour(self._ids[number], Position(micros, sequence), ROLES[role], length, similarity)

    def _compare_centroids(self, conversation_id: str) -> dict[str, float]:
        ids = [key for key, loaded in self._loaded.items() if loaded.rows]
        groups = [list(self._loaded[key].rows.values()) for key in ids]
        cosines = self._matrix.compare_groups(groups, ids.index(conversation_id))
        return {key: max(0.0, cosine) for key, cosine in zip(ids, cosines, strict=True)}


def _before(key: str | None) -> str | None:
    """Return the key directly before this one, because the last block may have grown."""
    return None if key is None else f"{int(key) - 1:0{_KEY_DIGITS}d}"
