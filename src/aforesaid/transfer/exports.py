"""A whole backend into a file, a chunk at a time. Below: `json_lines`. The file is written off the loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from functools import partial
from hashlib import sha256
from itertools import count
from typing import BinaryIO, Protocol, runtime_checkable

from msgspec import Struct

from aforesaid._internal.scratch import open_scratch
from aforesaid._internal.threads import opened
from aforesaid.contracts import JOURNAL, Backend, ConversationStore, audit_action
from aforesaid.errors import ConversationNotFound, InvalidInput, StoreUnavailable
from aforesaid.model.clock import system_clock
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.transfer.conversations import log_of
from aforesaid.transfer.copies import pages_of
from aforesaid.transfer.documents import documents_of
from aforesaid.transfer.json_lines import (
    conversation_line,
    document_line,
    entry_line,
    header_line,
    trailer_line,
)

COPIED_AT_ONCE = 1 << 20
"""Bytes of one conversation that are copied in one piece."""
ATTEMPTS = 3
"""How often a conversation is read that changes meanwhile, and to which turns were only added."""


class ExportReport(Struct, frozen=True, kw_only=True):
    """What was exported."""

    owners: int
    conversations: int
    entries: int
    documents: int
    sha256: str
    unreadable: int = 0
    """How many of the entries only hold the place of a message that cannot be read."""


@runtime_checkable
class Handle(Protocol):
    """Something with one owner's store: a manager."""

    store: ConversationStore


async def export(source: Backend | Handle, file: BinaryIO, *, owner: str | None = None) -> ExportReport:
    """Write everything, or what one owner has, as JSON Lines. The source is open; the file stays open.

    A handle does not know whose it is: with one, `owner` is the name that the file gives.
    """
    if owner is not None:
        parse_name(owner, field="owner")
    writer = _Writer(file)
    await writer.put([header_line(system_clock())])
    owners = 0
    async for name, store in _stores(source, owner):
        owners += await _export_store(name, await store.authoritative(), writer)
    return await writer.finish(owners)


async def export_store(owner: str, store: ConversationStore, file: BinaryIO) -> ExportReport:
    """The same for one owner's store, under this name."""
    whole = await store.authoritative()
    writer = _Writer(file)
    await writer.put([header_line(system_clock())])
    return await writer.finish(int(await _export_store(owner, whole, writer)))


async def export_one(
    store: ConversationStore, record: Conversation, file: BinaryIO, *, owner: str
) -> ExportReport:
    """The same for one conversation. Raises `ConversationNotFound` when it goes meanwhile."""
    whole = await store.authoritative()
    writer = _Writer(file)
    await writer.put([header_line(system_clock())])
    await _collect(owner, whole, record, writer)
    if await whole.get(record.id) is None:
        raise ConversationNotFound(record.id)
    return await writer.finish(1)


async def _export_store(owner: str, store: ConversationStore, writer: "_Writer") -> bool:
    """All of one owner's; whether there was anything."""
    before = writer.lines
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
    if isinstance(source, Handle):
        if owner is None:
            raise InvalidInput("to export from a handle, say whose it is: owner=…", field="owner")
        yield owner, source.store
    elif owner is not None:
        yield owner, source.of(owner)
    else:
        async for name in source.owners():
            if name != JOURNAL:
                yield name, source.of(name)


async def _export(owner: str, store: ConversationStore, record: Conversation, writer: "_Writer") -> None:
    """One conversation, as it was at one moment. One that goes meanwhile is left out.

    It is collected first, and read again where it changed meanwhile: words may have been taken out of it.
    One that is written to all the time is taken without the latest turns.
    """
    now: Conversation | None = record
    for attempt in count(1):
        if now is None:
            return
        then = now
        async with opened(open_scratch) as file:
            part = _Writer(file)
            is_whole = await _collect(owner, store, then, part)
            now = await store.get(record.id)
            if now == then or (now is not None and is_whole and attempt >= ATTEMPTS):
                await writer.take(part)
                return


async def _collect(owner: str, store: ConversationStore, record: Conversation, writer: "_Writer") -> bool:
    """What there is of a conversation as its record knows it; whether that is all that the record counts."""
    found = 0
    try:
        sessions = await store.sessions(record.id)
        await writer.put([conversation_line(owner, record, sessions)], conversations=1)
        async for entries in log_of(store, record.id):
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
    """Lines into the file, counted and hashed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = sha256()
        self._counts = Counter[str]()
        self.unreadable = 0

    @property
    def lines(self) -> int:
        """How many there are of any kind."""
        return self._counts.total()

    async def put(self, lines: Iterable[bytes], **counts: int) -> None:
        """Lines, and how many `conversations`, `entries` or `documents` they are."""
        text = b"".join(lines)
        self._counts.update(counts)
        self._hash.update(text)
        await asyncio.to_thread(self._write, text)

    async def take(self, part: "_Writer") -> None:
        """All that was put into another."""
        self._counts.update(part._counts)
        self.unreadable += part.unreadable
        await asyncio.to_thread(self._copy, part._file)

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
