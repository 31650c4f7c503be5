"""The background indexer: write vectors of messages without delaying turns.

A turn only enqueues its conversation. The indexer starts after a moment without turns, or after a maximum
delay, and then pauses after every block: encoding a message takes ten times as long as a turn.

Progress is read from the stored vectors themselves. After a crash, or after another process wrote vectors,
indexing continues where the documents end.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.tasks import Background
from aforesaid.contracts import ConversationStore, Embedder, Entry, Position, fingerprint
from aforesaid.contracts.listing import all_documents, all_records
from aforesaid.errors import Conflict, NotFound, StoreError
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import ROLES
from aforesaid.search.analysis import indexed_terms
from aforesaid.search.cues import flags_of
from aforesaid.search.memory_index import all_entries
from aforesaid.search.vectors import (
    BLOCK,
    KIND_PREFIX,
    Block,
    blocks_of,
    decode_block,
    embedded_text,
    key_of,
    kind_of,
)
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.search")

# Seconds without a turn before indexing starts. Searches rarely target messages that are a second old.
QUIET = 1.0
# Maximum seconds before indexing starts although turns keep arriving.
PATIENCE = 30 * QUIET
# Pause after each block, as a multiple of the block's duration, while turns keep arriving. The indexer then
# uses a fifth of one processor, enough for about eighty turns a second.
REST = 4
_MOST_PROGRESS = 1_000


class Progress(Struct, frozen=True, kw_only=True):
    """The extent of a conversation's vectors."""

    begun: int
    covered: frozenset[int] = frozenset()
    last: Block | None = None
    version: int = 0
    """The version of the document that holds the last block."""


class IndexTask(NamedTuple):
    """A conversation with new messages, or (without an id) an owner whose conversations need a scan."""

    owner: str
    conversation_id: str | None


class Indexer:
    """Writes vectors, one conversation after another, when no task has arrived for a moment."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        on_written: Callable[[str, str], None],
        quiet: float = QUIET,
        patience: float = PATIENCE,
        rest: float = REST,
    ) -> None:
        self.embedder = embedder
        self._on_written = on_written
        self._quiet = quiet
        self._patience = patience
        self._rest = rest
        self._enqueued_at = -math.inf
        self._queue: dict[IndexTask, ConversationStore] = {}
        self._scanned_owners: set[str] = set()
        self._progress: BoundedDict[str, Progress] = BoundedDict(_MOST_PROGRESS)
        self._background = Background(self._work, lambda: bool(self._queue), name="aforesaid-indexer")

    def enqueue(self, owner: str, store: ConversationStore, conversation_id: str | None = None) -> None:
        """Enqueue a conversation. An owner's first task also enqueues a scan of all conversations."""
        if self._background.is_closed:
            return
        if owner not in self._scanned_owners:
            self._scanned_owners.add(owner)
            self._queue[IndexTask(owner, None)] = store
        if conversation_id is not None:
            self._queue[IndexTask(owner, conversation_id)] = store
        self._enqueued_at = self._background.here().time()
        if self._queue and self._background.is_idle:
            latest = self._enqueued_at + self._patience
            self._background.begin_at(lambda: min(self._enqueued_at + self._quiet, latest))

    def mark_scanned(self, owner: str) -> None:
        """Skip the initial scan: the caller has scanned the owner's conversations and enqueues what lacks
        vectors.
        """
        self._scanned_owners.add(owner)

    def forget(self, owner: str) -> None:
        """Drop the owner's tasks before the owner's data are removed; scan again if new data arrive."""
        self._scanned_owners.discard(owner)
        self._queue = {task: store for task, store in self._queue.items() if task.owner != owner}

    async def wait_until_idle(self) -> None:
        """Wait until every task is done."""
        await self._background.done()

    async def close(self) -> None:
        """Stop. Remaining vectors are written when the store is used again."""
        await self._background.close()

    async def _work(self) -> None:
        while self._queue:
            task = next(iter(self._queue))
            store = self._queue.pop(task)
            await self._process(task, store)

    async def _process(self, task: IndexTask, store: ConversationStore) -> None:
        """Run a task. Log a failure and continue; the next task for the owner retries."""
        try:
            if task.conversation_id is not None:
                await self.index(task.owner, store, task.conversation_id)
                return
            async for record in all_records(store):
                await self.index(task.owner, store, record.id)
        except (StoreError, Conflict) as error:
            log.warning("writing vectors failed, will retry: %s", describe(error))
            self._scanned_owners.discard(task.owner)
        except Exception:  # a plug-in encoder may raise anything; other tasks must continue
            log.exception("writing vectors failed")

    async def index(self, owner: str, store: ConversationStore, conversation_id: str) -> int:
        """Write the missing vectors of a conversation; return the number of messages processed."""
        record = await store.get(conversation_id)
        if record is None or not record.message_count:
            return 0
        try:
            progress = await self._progress_of(store, record)
            entries = await _missing(store, record, progress.covered)
            for at in range(0, len(entries), BLOCK):
                began = time.monotonic()
                progress = await self._write(store, progress, entries[at : at + BLOCK])
                self._progress[record.id] = progress
                self._on_written(owner, record.id)
                await self._throttle(time.monotonic() - began)
        except (Conflict, NotFound):
            # Another process wrote the same vectors, or the conversation was removed.
            self._progress.pop(record.id, None)
            return 0
        return len(entries)

    async def _throttle(self, took: float) -> None:
        """Pause after a block until turns stop arriving or a caller waits for the vectors."""
        quiet_in = self._enqueued_at + self._quiet - asyncio.get_running_loop().time()
        if quiet_in > 0:
            await self._background.rest(min(self._rest * took, quiet_in))

    async def _progress_of(self, store: ConversationStore, record: Conversation) -> Progress:
        """Return the cached progress if the last block is unchanged, else read it from the store."""
        cached = self._progress.get(record.id)
        if cached is not None and cached.last is not None and len(cached.covered) <= record.message_count:
            last = await store.get_document(
                kind_of(self.embedder), cached.last.key, conversation_id=record.id
            )
            if last is not None and last.version == cached.version:
                return cached
        return await read_progress(store, record, self.embedder)

    async def _write(
        self, store: ConversationStore, progress: Progress, entries: Sequence[Entry]
    ) -> Progress:
        """Store the vectors of some entries: in the last block while it has space, else in a new block."""
        conversation_id = entries[0].conversation_id
        fresh = await asyncio.to_thread(encode_block, entries, self.embedder, begun=progress.begun)
        await self._check_unchanged(store, progress, entries)
        last, version = progress.last, progress.version
        if last is None or last.covered + fresh.covered > BLOCK:
            last, version = None, 0
        block = fresh if last is None else _merge_blocks(last, fresh)
        stored = await store.put_document(
            kind_of(self.embedder),
            block.key,
            block.encode(),
            conversation_id=conversation_id,
            expected_version=version,
        )
        try:
            # Replacing a message removes the existing vectors, but not the block written just now.
            await self._check_unchanged(store, progress, entries)
        except Conflict:
            await remove_vectors(store, conversation_id, only=self.embedder.name)
            raise
        covered = progress.covered.union(fresh.sequences, fresh.skipped)
        return Progress(begun=progress.begun, covered=covered, last=block, version=stored.version)

    async def _check_unchanged(
        self, store: ConversationStore, progress: Progress, entries: Sequence[Entry]
    ) -> None:
        """Raise `Conflict` if the messages were replaced meanwhile, or if preceding vectors were removed."""
        conversation_id, kind = entries[0].conversation_id, kind_of(self.embedder)
        if progress.covered:
            key = key_of(progress.covered)
            first = await store.get_document(kind, key, conversation_id=conversation_id)
            if first is None or decode_block(first, self.embedder).begun != progress.begun:
                raise Conflict(f"the vectors of {conversation_id} were replaced during indexing")
        if fingerprint(await _read_again(store, entries)) != fingerprint(entries):
            raise Conflict(f"messages of {conversation_id} changed during indexing")


def encode_block(entries: Sequence[Entry], embedder: Embedder, *, begun: int) -> Block:
    """Return the block of these entries. Slow: call it off the event loop."""
    texts = [embedded_text(entry.message) for entry in entries]
    with_text = [(entry, text) for entry, text in zip(entries, texts, strict=True) if text]
    return Block(
        model=embedder.name,
        dimension=embedder.dimension,
        begun=begun,
        sequences=[entry.sequence for entry, _ in with_text],
        micros=[entry.position.micros for entry, _ in with_text],
        roles=[ROLES.index(entry.message.role) for entry, _ in with_text],
        lengths=[len(indexed_terms(entry.message)) for entry, _ in with_text],
        flags=[flags_of(text, entry.message.role) for entry, text in with_text],
        skipped=[entry.sequence for entry, text in zip(entries, texts, strict=True) if not text],
        matrix=_float16_bytes(embedder.embed([text for _, text in with_text])) if with_text else b"",
    )


def _float16_bytes(rows: Any) -> bytes:
    import numpy

    return bytes(numpy.ascontiguousarray(rows, numpy.float16).tobytes())


def _merge_blocks(block: Block, more: Block) -> Block:
    return replace(
        block,
        sequences=[*block.sequences, *more.sequences],
        micros=[*block.micros, *more.micros],
        roles=[*block.roles, *more.roles],
        lengths=[*block.lengths, *more.lengths],
        flags=[*block.flags_by_row, *more.flags_by_row],
        skipped=[*block.skipped, *more.skipped],
        matrix=block.matrix + more.matrix,
    )


async def _missing(store: ConversationStore, record: Conversation, covered: frozenset[int]) -> list[Entry]:
    """Return the entries without vectors: usually the last few, otherwise found by reading the whole log."""
    wanted = record.message_count - len(covered)
    if wanted <= 0:
        return []
    latest = await store.tail(record.id, limit=wanted)
    if len(latest) == wanted and covered.isdisjoint(entry.sequence for entry in latest):
        return latest
    return [entry async for entry in all_entries(store, record.id) if entry.sequence not in covered]


async def _read_again(store: ConversationStore, entries: Sequence[Entry]) -> list[Entry]:
    """Return the current state of these entries, without removed ones."""
    sequences = {entry.sequence for entry in entries}
    first, last = entries[0].position, entries[-1].position
    before = Position(last.micros, last.sequence + 1)
    found: list[Entry] = []
    while page := await store.tail(entries[0].conversation_id, limit=len(entries), before=before):
        found[:0] = [entry for entry in page if entry.sequence in sequences]
        before = page[0].position
        if before <= first:
            break
    return found


async def read_progress(store: ConversationStore, record: Conversation, embedder: Embedder) -> Progress:
    """Determine the extent of a conversation's vectors from the stored blocks."""
    blocks = await blocks_of(store, record.id, embedder)
    if len({block.begun for block in blocks}) > 1:
        # A message was replaced during a write, so some blocks may be outdated.
        await remove_vectors(store, record.id, only=embedder.name)
        blocks = []
    if not blocks:
        return Progress(begun=record.revision)
    last = await store.get_document(kind_of(embedder), blocks[-1].key, conversation_id=record.id)
    return Progress(
        begun=blocks[-1].begun,
        covered=frozenset(number for block in blocks for number in (*block.sequences, *block.skipped)),
        last=blocks[-1],
        version=0 if last is None else last.version,
    )


async def remove_vectors(
    store: ConversationStore, conversation_id: str, *, only: str | None = None, all_but: str | None = None
) -> int:
    """Remove a conversation's vectors: of every model, of one, or of all but one. Return the number of
    blocks.
    """
    removed = 0
    for kind in await store.document_kinds(conversation_id=conversation_id):
        model = kind.removeprefix(KIND_PREFIX)
        if model in (kind, all_but) or only not in (None, model):
            continue
        documents = all_documents(store, kind, conversation_id=conversation_id)
        keys = [document.key async for document in documents]
        for key in keys:
            removed += await store.delete_document(kind, key, conversation_id=conversation_id)
    return removed
