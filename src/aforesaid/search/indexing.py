"""The background indexer: writes the vectors of what was said, and never delays a turn. Below: vectors.

A turn only leaves a note that its conversation has something new; after a moment of quiet, the indexer works
through the notes. Where it is never quiet, it begins all the same, and rests after every piece of work: a
vector takes ten times as long as a turn, and somebody waits for the turn.

What has vectors is read from the vectors themselves, so after a crash, or when another process wrote, it goes
on where the documents end.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.background import Background
from aforesaid.contracts import ConversationStore, Embedder, Entry, Position, fingerprint
from aforesaid.contracts.listing import all_records
from aforesaid.errors import Conflict, NotFound, StoreError
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import ROLES
from aforesaid.search.analysis import indexed_terms
from aforesaid.search.encoders import embedded_text
from aforesaid.search.new_entries import all_entries
from aforesaid.search.vectors import BLOCK, KIND_PREFIX, Block, blocks_of, decode_block, key_of, kind_of
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.search")

QUIET = 1.0
"""Seconds without a turn before vectors are made: nobody searches for what was said a second ago."""
PATIENCE = 30 * QUIET
"""Seconds after which they are made although turns keep coming."""
REST = 4
"""How many times as long as each piece of work took the indexer rests, while turns keep coming. So it has a
fifth of one processor, enough for the vectors of some eighty turns a second."""
_MOST_PROGRESS = 1_000


class Progress(Struct, frozen=True, kw_only=True):
    """How far a conversation's vectors go."""

    begun: int
    covered: frozenset[int] = frozenset()
    last: Block | None = None
    version: int = 0
    """The version of the document that holds the last block."""


class Auditable(NamedTuple):
    """A conversation with something new, or an owner that has not been looked at yet."""

    owner: str
    conversation_id: str | None


class Indexer:
    """Writes vectors, one conversation after another, when nothing was noted for a moment."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        written: Callable[[str, str], None],
        quiet: float = QUIET,
        patience: float = PATIENCE,
        rest: float = REST,
    ) -> None:
        self.embedder = embedder
        self._written = written
        self._quiet = quiet
        self._patience = patience
        self._rest = rest
        self._noted_at = -math.inf
        self._notes: dict[Auditable, ConversationStore] = {}
        self._known: set[str] = set()
        self._progress: OrderedDict[str, Progress] = OrderedDict()
        self._background = Background(self._work, lambda: bool(self._notes), name="aforesaid-indexer")

    def note(self, owner: str, store: ConversationStore, conversation_id: str | None = None) -> None:
        """Something was said here. Costs next to nothing; an owner's first note brings in all that lacks."""
        if self._background.is_closed:
            return
        if owner not in self._known:
            self._known.add(owner)
            self._notes[Auditable(owner, None)] = store
        if conversation_id is not None:
            self._notes[Auditable(owner, conversation_id)] = store
        self._noted_at = self._background.here().time()
        if self._notes and self._background.is_idle:
            latest = self._noted_at + self._patience
            self._background.begin_at(lambda: min(self._noted_at + self._quiet, latest))

    def knows(self, owner: str) -> None:
        """Somebody looked at all that this owner has, and notes what lacks."""
        self._known.add(owner)

    def forget(self, owner: str) -> None:
        """The owner's data are going: leave them alone, and look at them afresh if there will be new ones."""
        self._known.discard(owner)
        self._notes = {noted: store for noted, store in self._notes.items() if noted.owner != owner}

    async def settled(self) -> None:
        """Wait until everything that was noted has its vectors."""
        await self._background.done()

    async def close(self) -> None:
        """Stop. What is left is made when the store is used again."""
        await self._background.close()

    async def _work(self) -> None:
        while self._notes:
            noted = next(iter(self._notes))
            store = self._notes.pop(noted)
            await self._answer(noted, store)

    async def _answer(self, noted: Auditable, store: ConversationStore) -> None:
        """Do what a note says. A failure is logged and ends nothing: the next note brings it up again."""
        try:
            if noted.conversation_id is not None:
                await self.index(noted.owner, store, noted.conversation_id)
                return
            async for record in all_records(store):
                await self.index(noted.owner, store, record.id)
        except (StoreError, Conflict) as error:
            log.warning("vectors not written, next time again: %s", describe(error))
            self._known.discard(noted.owner)
        except Exception:  # the edge of a task: whatever an encoder raises must not stop the others
            log.exception("vectors not written")

    async def index(self, owner: str, store: ConversationStore, conversation_id: str) -> int:
        """Write the vectors that a conversation lacks; returns how many messages were looked at."""
        record = await store.get(conversation_id)
        if record is None or not record.message_count:
            return 0
        try:
            progress = await self._progress_of(store, record)
            entries = await _missing(store, record, progress.covered)
            for at in range(0, len(entries), BLOCK):
                began = time.monotonic()
                progress = await self._write(store, progress, entries[at : at + BLOCK])
                self._remember(record.id, progress)
                self._written(owner, record.id)
                await self._give_way(time.monotonic() - began)
        except (Conflict, NotFound):
            # Another process writes the same vectors, or the conversation is gone.
            self._progress.pop(record.id, None)
            return 0
        return len(entries)

    async def _give_way(self, took: float) -> None:
        """Rest after a piece of work, until it is quiet, or somebody waits for the vectors."""
        quiet_in = self._noted_at + self._quiet - asyncio.get_running_loop().time()
        if quiet_in > 0:
            await self._background.rest(min(self._rest * took, quiet_in))

    async def _progress_of(self, store: ConversationStore, record: Conversation) -> Progress:
        """From memory while the last block is still the one that was written then."""
        known = self._progress.get(record.id)
        if known is not None and known.last is not None and len(known.covered) <= record.message_count:
            last = await store.get_document(kind_of(self.embedder), known.last.key, conversation_id=record.id)
            if last is not None and last.version == known.version:
                return known
        return await read_progress(store, record, self.embedder)

    def _remember(self, conversation_id: str, progress: Progress) -> None:
        self._progress[conversation_id] = progress
        self._progress.move_to_end(conversation_id)
        if len(self._progress) > _MOST_PROGRESS:
            self._progress.popitem(last=False)

    async def _write(
        self, store: ConversationStore, progress: Progress, entries: Sequence[Entry]
    ) -> Progress:
        """Store the vectors of some entries: in the last block while it has room, else in a new one."""
        conversation_id = entries[0].conversation_id
        fresh = await asyncio.to_thread(encoded, entries, self.embedder, begun=progress.begun)
        await self._check_unchanged(store, progress, entries)
        last, version = progress.last, progress.version
        if last is None or last.covered + fresh.covered > BLOCK:
            last, version = None, 0
        block = fresh if last is None else _joined(last, fresh)
        kept = await store.put_document(
            kind_of(self.embedder),
            block.key,
            block.encode(),
            conversation_id=conversation_id,
            expected_version=version,
        )
        try:
            # A message that was replaced just now took the vectors with it that were there, not these.
            await self._check_unchanged(store, progress, entries)
        except Conflict:
            await remove_vectors(store, conversation_id, only=self.embedder.name)
            raise
        covered = progress.covered.union(fresh.sequences, fresh.skipped)
        return Progress(begun=progress.begun, covered=covered, last=block, version=kept.version)

    async def _check_unchanged(
        self, store: ConversationStore, progress: Progress, entries: Sequence[Entry]
    ) -> None:
        """Refuse vectors of words that were replaced meanwhile, or that follow vectors which went then."""
        conversation_id, kind = entries[0].conversation_id, kind_of(self.embedder)
        if progress.covered:
            key = key_of(progress.covered)
            first = await store.get_document(kind, key, conversation_id=conversation_id)
            if first is None or decode_block(first, self.embedder).begun != progress.begun:
                raise Conflict(f"the vectors of {conversation_id} are no longer those that were read")
        if fingerprint(await _read_again(store, entries)) != fingerprint(entries):
            raise Conflict(f"messages of {conversation_id} were changed while their vectors were made")


def encoded(entries: Sequence[Entry], embedder: Embedder, *, begun: int) -> Block:
    """The block of these entries. Takes its time: call it off the event loop."""
    texts = [embedded_text(entry.message) for entry in entries]
    spoken = [(entry, text) for entry, text in zip(entries, texts, strict=True) if text]
    return Block(
        model=embedder.name,
        dimension=embedder.dimension,
        begun=begun,
        sequences=[entry.sequence for entry, _ in spoken],
        micros=[entry.position.micros for entry, _ in spoken],
        roles=[ROLES.index(entry.message.role) for entry, _ in spoken],
        lengths=[len(indexed_terms(entry.message)) for entry, _ in spoken],
        skipped=[entry.sequence for entry, text in zip(entries, texts, strict=True) if not text],
        matrix=_halves(embedder.embed([text for _, text in spoken])) if spoken else b"",
    )


def _halves(rows: Any) -> bytes:
    import numpy

    return bytes(numpy.ascontiguousarray(rows, numpy.float16).tobytes())


def _joined(block: Block, more: Block) -> Block:
    return replace(
        block,
        sequences=[*block.sequences, *more.sequences],
        micros=[*block.micros, *more.micros],
        roles=[*block.roles, *more.roles],
        lengths=[*block.lengths, *more.lengths],
        skipped=[*block.skipped, *more.skipped],
        matrix=block.matrix + more.matrix,
    )


async def _missing(store: ConversationStore, record: Conversation, covered: frozenset[int]) -> list[Entry]:
    """The entries without vectors: mostly the last few, else found by reading all."""
    wanted = record.message_count - len(covered)
    if wanted <= 0:
        return []
    latest = await store.tail(record.id, limit=wanted)
    if len(latest) == wanted and covered.isdisjoint(entry.sequence for entry in latest):
        return latest
    return [entry async for entry in all_entries(store, record.id) if entry.sequence not in covered]


async def _read_again(store: ConversationStore, entries: Sequence[Entry]) -> list[Entry]:
    """These entries as they are now, without those that are gone."""
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
    """How far the vectors of a conversation go, from the vectors themselves."""
    blocks = await blocks_of(store, record.id, embedder)
    if len({block.begun for block in blocks}) > 1:
        # A message was replaced while somebody wrote: some blocks may be from before.
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
    """Remove a conversation's vectors: of every model, of one, or of all but one. Returns how many blocks."""
    removed = 0
    for kind in await store.document_kinds(conversation_id=conversation_id):
        model = kind.removeprefix(KIND_PREFIX)
        if model in (kind, all_but) or only not in (None, model):
            continue
        keys = [key async for key in _keys(store, kind, conversation_id)]
        for key in keys:
            removed += await store.delete_document(kind, key, conversation_id=conversation_id)
    return removed


async def _keys(store: ConversationStore, kind: str, conversation_id: str) -> AsyncIterator[str]:
    after = None
    while page := await store.documents(kind, conversation_id=conversation_id, after=after):
        for document in page:
            yield document.key
        after = page[-1].key
