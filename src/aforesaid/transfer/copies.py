"""Copy a whole backend into another, owner by owner."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import islice

from aforesaid.contracts import JOURNAL, Backend, ConversationStore, Document, Entry
from aforesaid.contracts.listing import check_complete
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation, Query
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

PAGE = 100
AT_ONCE = 8
"""Conversations copied concurrently: stores commit concurrent writes together."""


async def copy(source: Backend, target: Backend, *, progress: Progress | None = None) -> CopyReport:
    """Copy everything from the source to the target, verified by digest. Both must be open.

    Run it again after an interruption or after changes in the source: it copies what is missing or
    changed. Conversations changed in the target are not overwritten; after all others are copied,
    `Conflict` names them. Conversations that become active in the source during the copy may be missed:
    stop writing to it and run the copy a last time.
    """
    report = ReportBuilder(progress)
    async for owner in _owners(source):
        report.add_owner()
        source_store, target_store = (
            await source.of(owner).authoritative(),
            await target.of(owner).authoritative(),
        )
        report.add_documents(owner, await store_owned(partial(documents_of, source_store), target_store))
        async for records in pages_of(source_store):
            rest = iter(records)
            while some := list(islice(rest, AT_ONCE)):
                for outcome in await _copy_all(some, source_store, target_store):
                    report.add(outcome)
    return report.finish()


async def count(source: Backend) -> int:
    """Return the number of conversations to copy."""
    found = 0
    async for owner in _owners(source):
        async for records in pages_of(await source.of(owner).authoritative()):
            found += len(records)
    return found


async def _owners(source: Backend) -> AsyncIterator[str]:
    """Yield every owner except the journal, which records work of one memory only."""
    async for owner in source.owners():
        if owner != JOURNAL:
            yield owner


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
