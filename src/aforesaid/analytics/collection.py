"""Keep roll-ups up to date: count what changed since the last time, or everything again."""

from datetime import timedelta

from aforesaid.analytics.counting import count, start
from aforesaid.analytics.events import events_of
from aforesaid.analytics.records import (
    CHANGED,
    KEY,
    PROGRESS,
    UNTIL,
    Event,
    Progress,
    Row,
    decode,
    digest_of,
    encode,
)
from aforesaid.analytics.rollups import RowBatch, days_with, rebuild
from aforesaid.analytics.usage_rows import remove_other_rows, usage_days, usage_digest
from aforesaid.contracts import ConversationStore, Document, Entry
from aforesaid.contracts.entries import Position
from aforesaid.contracts.listing import all_documents, all_records
from aforesaid.errors import ConversationNotFound, DocumentConflict
from aforesaid.layers.branched import stored_itself
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, Query

PAGE = 500
# Rows that are written together, so that a day's documents are written once for many conversations.
BATCH = 1_000
# How far before the last time a count starts, for messages that were on their way then.
MARGIN = timedelta(minutes=10)


class Collection:
    """Counts one owner's conversations, each with the messages that it stores itself.

    So a message that branches share is counted once.
    """

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._batch = RowBatch()
        self._counted: dict[str, tuple[Progress, Document | None]] = {}

    async def catch_up(self) -> int:
        """Count conversations that changed since the last time; return how many."""
        store = self._store
        now = to_micros(store.now())
        found = await store.get_document(UNTIL, KEY)
        since = None if found is None else from_micros(int(found.data)) - MARGIN
        marks = {mark.key: mark async for mark in all_documents(store, CHANGED)}
        number, listed = 0, set[str]()
        async for record in all_records(store, Query(date_from=since)):
            listed.add(record.id)
            number += await self._count(record, anew=False, marked=record.id in marks)
        for conversation_id in marks.keys() - listed:
            older = await store.get(conversation_id)
            if older is not None:
                number += await self._count(older, anew=False, marked=True)
        await self._write()
        for mark in marks.values():
            # An event that was recorded meanwhile has written the mark again, and it stays.
            await _delete_unchanged(store, mark)
        if number:  # an owner without conversations gets no documents
            await store.put_document(UNTIL, KEY, str(now).encode())
        return number

    async def recompute(self, *, keep_removed: bool) -> int:
        """Count every conversation again, and write all roll-ups again; return how many conversations."""
        store, number = self._store, 0
        now = to_micros(store.now())
        # Numbers of requests and searches are not in the logs.
        kept = {usage_digest(store.owner, None)}
        async for record in all_records(store):
            kept.add(usage_digest(store.owner, record.id))
        if not keep_removed:
            await remove_other_rows(store, kept)
        async for record in all_records(store):
            number += await self._count(record, anew=True, marked=True)
        await self._write()
        await rebuild(store)
        if number:
            await store.put_document(UNTIL, KEY, str(now).encode())
        return number

    async def _count(self, record: Conversation, *, anew: bool, marked: bool) -> int:
        """Count the conversation; return 0 where nothing has changed."""
        document = await self._progress(record.id)
        progress = None if document is None else decode(document.data, Progress)
        if progress is not None and progress.revision == record.revision and not marked:
            return 0
        old_days = [] if progress is None else progress.days
        try:
            progress, rows = await self._count_log(record, None if anew else progress)
        except ConversationNotFound:
            return 0
        digest = _digest(self._store, record.id)
        for day in set(old_days) - set(progress.days):
            self._batch.set(day, digest, None)
        for day, row in rows.items():
            self._batch.set(day, digest, row)
            self._batch.relabel(day, usage_digest(self._store.owner, record.id), row.labels)
        self._counted[record.id] = progress, document
        if len(self._batch) >= BATCH:
            await self._write()
        return 1

    async def _progress(self, conversation_id: str) -> Document | None:
        return await self._store.get_document(PROGRESS, KEY, conversation_id=conversation_id)

    async def _count_log(
        self, record: Conversation, progress: Progress | None
    ) -> tuple[Progress, dict[str, Row]]:
        events = await events_of(self._store, record.id)
        if progress is not None and progress.events <= len(events):
            new = await self._entries_after(record.id, Position(progress.micros, progress.sequence))
            # A message with an earlier time, or a rewritten history: what was counted does not hold any more.
            if progress.messages + len(new) == record.message_count:
                counted = count(record, progress, new, events[progress.events :])
                return counted.progress, counted.rows
        return await self._count_all(record, events)

    async def _count_all(self, record: Conversation, events: list[Event]) -> tuple[Progress, dict[str, Row]]:
        progress, rows, offset = start(record), dict[str, Row](), 0
        while True:
            page = await self._store.page(record.id, limit=PAGE, offset=offset)
            offset += len(page)
            is_last = len(page) < PAGE
            until = None if is_last else page[-1].position.micros
            due = [event for event in events[progress.events :] if until is None or event.at < until]
            counted = count(record, progress, page, due)
            rows.update(counted.rows)
            if is_last:
                return counted.progress, rows

    async def _entries_after(self, conversation_id: str, place: Position) -> list[Entry]:
        found: list[Entry] = []
        before: Position | None = None
        while page := await self._store.tail(conversation_id, limit=PAGE, before=before):
            later = [entry for entry in page if entry.position > place]
            found = later + found
            if len(later) < len(page):
                break
            before = page[0].position
        return found

    async def _write(self) -> None:
        """Write the counted rows, then how far each conversation is counted."""
        while self._counted:
            counted, self._counted = self._counted, {}
            await self._batch.write(self._store)
            for conversation_id, (progress, document) in counted.items():
                await self._write_progress(conversation_id, progress, document)
        await self._batch.write(self._store)

    async def _write_progress(
        self, conversation_id: str, progress: Progress, document: Document | None
    ) -> None:
        try:
            await self._store.put_document(
                PROGRESS,
                KEY,
                encode(progress),
                conversation_id=conversation_id,
                expected_version=0 if document is None else document.version,
            )
        except ConversationNotFound:
            # Removed meanwhile, perhaps by an erasure that has removed its rows already.
            for day in progress.days:
                self._batch.set(day, _digest(self._store, conversation_id), None)
        except DocumentConflict:
            # Another process has counted it, and one of us has written older rows over newer ones.
            record = await self._store.get(conversation_id)
            if record is not None:
                await self._count(record, anew=True, marked=True)


async def collect(store: ConversationStore) -> int:
    """Bring the owner's roll-ups up to date; return how many conversations changed."""
    return await Collection(stored_itself(await store.authoritative())).catch_up()


async def recompute(store: ConversationStore, *, keep_removed: bool) -> int:
    """Count the owner's conversations again; return how many."""
    return await Collection(stored_itself(await store.authoritative())).recompute(keep_removed=keep_removed)


async def forget(store: ConversationStore, conversation_id: str, *, recount: bool = False) -> None:
    """Remove what the conversation contributes. Erasures call this before they delete it.

    With `recount`, the next count starts at its first message: its history is about to be rewritten.
    """
    digest = _digest(store, conversation_id)
    batch = RowBatch()
    record = None if recount else await store.get(conversation_id)
    if record is not None:
        for day in await usage_days(store, record):
            batch.set(day, usage_digest(store.owner, conversation_id), None)
    try:
        found = await store.get_document(PROGRESS, KEY, conversation_id=conversation_id)
    except ConversationNotFound:
        found = None
    if found is not None:
        days = decode(found.data, Progress).days
    else:
        # A conversation that was deleted before has left its numbers.
        days = [] if recount else await days_with(store, digest)
    for day in days:
        batch.set(day, digest, None)
    await batch.write(store)
    if not recount:
        await store.delete_document(CHANGED, conversation_id)
    elif found is not None:
        await store.delete_document(PROGRESS, KEY, conversation_id=conversation_id)
        await store.put_document(CHANGED, conversation_id, b"")


def _digest(store: ConversationStore, conversation_id: str) -> str:
    return digest_of(store.owner, conversation_id)


async def _delete_unchanged(store: ConversationStore, mark: Document) -> None:
    try:
        await store.delete_document(CHANGED, mark.key, expected_version=mark.version)
    except DocumentConflict:
        return
