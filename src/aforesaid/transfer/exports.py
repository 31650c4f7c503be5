"""Copy a whole backend into another, owner by owner, or to a file, a chunk at a time."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import BinaryIO, Protocol, runtime_checkable

from msgspec import Struct

from aforesaid._internal.scratch import open_scratch
from aforesaid._internal.tasks import opened
from aforesaid.contracts import JOURNAL, Backend, ConversationStore, Document, Entry, audit_action
from aforesaid.contracts.listing import check_complete
from aforesaid.errors import ConversationNotFound, InvalidInput, StoreUnavailable
from aforesaid.layers.branched import settle
from aforesaid.model.clock import system_clock
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.ids import parse_name
from aforesaid.transfer.conversations import (
    CopyReport,
    Progress,
    ReportBuilder,
    SourceConversation,
    StoreResult,
    log_of,
    store_conversation,
)
from aforesaid.transfer.documents import documents_of, store_owned
from aforesaid.transfer.json_lines import (
    conversation_line,
    document_line,
    entry_line,
    header_line,
    trailer_line,
)

# Copy a whole backend into another, owner by owner.


PAGE = 100
# Conversations copied concurrently: stores commit concurrent writes together.
AT_ONCE = 8


async def copy(source: Backend, target: Backend, *, progress: Progress | None = None) -> CopyReport:
    """Copy everything from the source to the target, verified by digest. Both must be open.

    Run it again after an interruption or after changes in the source: it copies what is missing or
    changed. Conversations changed in the target are not overwritten; after all others are copied,
    `Conflict` names them. Conversations that become active in the source during the copy may be missed:
    stop writing to it and run the copy a last time.
    """
    report = ReportBuilder(progress)
    async for owner, from_store in _stores(source, None):
        report.add_owner()
        source_store, target_store = (
            await from_store.authoritative(),
            await target.of(owner).authoritative(),
        )
        await settle(source_store)
        report.add_documents(owner, await store_owned(partial(documents_of, source_store), target_store))
        async for records in pages_of(source_store):
            rest = iter(records)
            while some := list(islice(rest, AT_ONCE)):
                for outcome in await _copy_all(some, source_store, target_store):
                    report.add(outcome)
    return report.finish()


async def count(source: "Backend | Handle", *, owner: str | None = None) -> int:
    """Return the number of conversations to copy, of all owners or of one."""
    found = 0
    async for _, store in _stores(source, owner):
        whole = await store.authoritative()
        await settle(whole)
        async for records in pages_of(whole):
            found += len(records)
    return found


async def pages_of(store: ConversationStore) -> AsyncIterator[Sequence[Conversation]]:
    """Yield all records of an owner, a page at a time."""
    after = None
    while True:
        page = check_complete(await store.find(Query(limit=PAGE, after=after)))
        if page.conversations:
            yield page.conversations
        after = page.next
        if after is None:
            return


async def _copy_all(
    records: Sequence[Conversation], source_store: ConversationStore, target_store: ConversationStore
) -> list[StoreResult]:
    """Copy these concurrently. Wait for all, even if one fails."""
    # Without `return_exceptions` the others would continue in the background after the first error.
    results = await asyncio.gather(
        *(_copy_one(record, source_store, target_store) for record in records), return_exceptions=True
    )
    outcomes: list[StoreResult] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        outcomes.append(result)
    return outcomes


async def _copy_one(
    record: Conversation, source_store: ConversationStore, target_store: ConversationStore
) -> StoreResult:
    try:
        sessions = await source_store.sessions(record.id)
    except ConversationNotFound:
        return StoreResult(record.id, "changed_meanwhile")
    return await store_conversation(StoredConversation(source_store, record, sessions), target_store)


class StoredConversation(SourceConversation):
    """A conversation in a store at the revision of its record; later messages are left out."""

    def __init__(self, store: ConversationStore, record: Conversation, sessions: Sequence[str]) -> None:
        self._store = store
        self.record = record
        self.sessions = sessions

    async def log(self) -> AsyncIterator[list[Entry]]:
        async for entries in log_of(self._store, self.record.id):
            yield [entry for entry in entries if entry.revision <= self.record.revision]

    async def documents(self) -> AsyncIterator[list[Document]]:
        async for documents in documents_of(self._store, self.record.id):
            yield documents

    async def has_changed(self) -> bool:
        return await self._store.get(self.record.id) != self.record


# Export a whole backend to a file, a chunk at a time. File writes run on threads.


# Bytes copied in one piece.
COPIED_AT_ONCE = 1 << 20
# Attempts to read a conversation that changes meanwhile; afterwards additional turns are left out.
ATTEMPTS = 3


class ExportReport(Struct, frozen=True, kw_only=True):
    """The number of exported items, and the digest."""

    owners: int
    conversations: int
    entries: int
    documents: int
    sha256: str
    unreadable: int = 0
    """Entries that are only placeholders for unreadable messages."""


@runtime_checkable
class Handle(Protocol):
    """An object with one owner's store, such as a manager."""

    store: ConversationStore


async def export(
    source: Backend | Handle,
    file: BinaryIO,
    *,
    owner: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExportReport:
    """Write everything, or one owner's data, as JSON Lines. The source must be open; the file stays open.

    A handle does not contain the owner's name, so `owner` is required with it and written to the file.
    `progress` is called with the number of conversations written so far.
    """
    if owner is not None:
        parse_name(owner, field="owner")
    writer = _Writer(file, progress)
    await writer.put([header_line(system_clock())])
    owners = 0
    async for name, store in _stores(source, owner):
        owners += await _export_store(name, await store.authoritative(), writer)
    return await writer.finish(owners)


async def export_store(
    owner: str, store: ConversationStore, file: BinaryIO, *, progress: Callable[[int], None] | None = None
) -> ExportReport:
    """Export one owner's store under this name."""
    authoritative = await store.authoritative()
    writer = _Writer(file, progress)
    await writer.put([header_line(system_clock())])
    return await writer.finish(int(await _export_store(owner, authoritative, writer)))


async def export_one(
    store: ConversationStore, record: Conversation, file: BinaryIO, *, owner: str
) -> ExportReport:
    """Export one conversation. Raise `ConversationNotFound` if it is removed meanwhile."""
    authoritative = await store.authoritative()
    writer = _Writer(file)
    await writer.put([header_line(system_clock())])
    await _write_conversation(owner, authoritative, record, writer)
    # A conversation that is removed meanwhile is written in part, which must not pass for all of it.
    if await authoritative.get(record.id) is None:
        raise ConversationNotFound(record.id)
    return await writer.finish(1)


async def _export_store(owner: str, store: ConversationStore, writer: "_Writer") -> bool:
    """Export one owner; return whether there was any data."""
    before = writer.lines
    await settle(store)
    async for documents in documents_of(store):
        lines = [document_line(document, owner) for document in documents]
        await writer.put(lines, documents=len(lines))
    async for records in pages_of(store):
        for record in records:
            await _export(owner, store, record, writer)
    await audit_action(store, "export", count=writer.lines - before)
    return writer.lines > before


async def _stores(
    source: Backend | Handle, owner: str | None
) -> AsyncIterator[tuple[str, ConversationStore]]:
    """Yield one owner, or every owner except the journal, which records work of one memory only."""
    if isinstance(source, Handle):
        if owner is None:
            raise InvalidInput("exporting from a handle requires an owner", field="owner")
        yield owner, source.store
    elif owner is not None:
        yield owner, source.of(owner)
    else:
        async for name in source.owners():
            if name != JOURNAL:
                yield name, source.of(name)


async def _export(owner: str, store: ConversationStore, record: Conversation, writer: "_Writer") -> None:
    """Export one conversation in a consistent state. Skip one that is removed meanwhile.

    The conversation is collected in a temporary file and read again if it changed, because a change may be
    a redaction. A conversation that changes constantly is exported without its latest turns.
    """
    now: Conversation | None = record
    for attempt in itertools.count(1):
        if now is None:
            return
        then = now
        # Lines already written to the export cannot be taken back, so each attempt has its own file.
        async with opened(open_scratch) as file:
            part = _Writer(file)
            is_whole = await _write_conversation(owner, store, then, part)
            now = await store.get(record.id)
            if now == then or (now is not None and is_whole and attempt >= ATTEMPTS):
                await writer.append(part)
                return


async def _write_conversation(
    owner: str, store: ConversationStore, record: Conversation, writer: "_Writer"
) -> bool:
    """Write a conversation as of its record; return whether all messages of the record were found."""
    found = 0
    try:
        sessions = await store.sessions(record.id)
        await writer.put([conversation_line(owner, record, sessions)], conversations=1)
        async for entries in log_of(store, record.id):
            # Later turns belong to a later revision, which the record in the first line does not describe.
            then = [entry for entry in entries if entry.revision <= record.revision]
            writer.unreadable += sum(entry.unreadable is not None for entry in then)
            await writer.put([entry_line(entry) for entry in then], entries=len(then))
            found += len(then)
        async for documents in documents_of(store, record.id):
            lines = [document_line(document) for document in documents]
            await writer.put(lines, documents=len(lines))
    except ConversationNotFound:
        return False
    return found == record.message_count


class _Writer:
    """Writes lines to a file, counting and hashing them."""

    def __init__(self, file: BinaryIO, progress: Callable[[int], None] | None = None) -> None:
        self._file = file
        self._progress = progress
        self._hash = sha256()
        self._counts = Counter[str]()
        self.unreadable = 0

    @property
    def lines(self) -> int:
        """The total number of items."""
        return self._counts.total()

    async def put(self, lines: Iterable[bytes], **counts: int) -> None:
        """Write lines and add to the counts of `conversations`, `entries` or `documents`."""
        text = b"".join(lines)
        self._counts.update(counts)
        self._hash.update(text)
        await asyncio.to_thread(self._write, text)

    async def append(self, part: "_Writer") -> None:
        """Append everything written to another writer."""
        self._counts.update(part._counts)
        self.unreadable += part.unreadable
        await asyncio.to_thread(self._copy, part._file)
        if self._progress is not None:
            self._progress(self._counts["conversations"])

    def _copy(self, file: BinaryIO) -> None:
        file.seek(0)
        for text in iter(partial(file.read, COPIED_AT_ONCE), b""):
            self._hash.update(text)
            self._write(text)

    async def finish(self, owners: int) -> ExportReport:
        digest = self._hash.hexdigest()
        counts = {name: self._counts[name] for name in ("conversations", "entries", "documents")}
        await asyncio.to_thread(self._write, trailer_line(**counts, sha256=digest))
        return ExportReport(owners=owners, **counts, sha256=digest, unreadable=self.unreadable)

    def _write(self, text: bytes) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise StoreUnavailable(f"the export cannot be written: {error.strerror or error}") from error
