"""A whole backend into another: owner by owner, conversation by conversation. Below: `bringing`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import islice

from aforesaid.contracts import JOURNAL, Backend, ConversationStore, Document, Entry
from aforesaid.contracts.listing import check_complete
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation, Query
from aforesaid.transfer.conversations import Brought, CopyReport, Given, Progress, Tally, bring, log_of
from aforesaid.transfer.documents import bring_owned, documents_of

PAGE = 100
AT_ONCE = 8
"""Conversations under way at the same time: stores that write once for many callers like company."""


async def copy(source: Backend, target: Backend, *, progress: Progress | None = None) -> CopyReport:
    """Bring everything that is in the source into the target, proven by digest. Both are open.

    Run again after an interruption, or after the source went on, it brings what is missing or has
    changed. What was written to in the target is left as it is there; when all others are done, these are
    told by `Conflict`. Conversations that become active in the source meanwhile may be
    missed: stop writing to it, and run the copy a last time.
    """
    tally = Tally(progress)
    async for owner in _owners(source):
        tally.owner()
        giver, taker = await source.of(owner).authoritative(), await target.of(owner).authoritative()
        tally.add_documents(owner, await bring_owned(partial(documents_of, giver), taker))
        async for records in pages_of(giver):
            rest = iter(records)
            while some := list(islice(rest, AT_ONCE)):
                for brought in await _bring_all(some, giver, taker):
                    tally.add(brought)
    return tally.done()


async def count(source: Backend) -> int:
    """How many conversations there are to copy."""
    found = 0
    async for owner in _owners(source):
        async for records in pages_of(await source.of(owner).authoritative()):
            found += len(records)
    return found


async def _owners(source: Backend) -> AsyncIterator[str]:
    """Everybody but the journal: what one memory has yet to do is not another's to do."""
    async for owner in source.owners():
        if owner != JOURNAL:
            yield owner


async def pages_of(store: ConversationStore) -> AsyncIterator[Sequence[Conversation]]:
    """All of an owner's records, a page at a time."""
    after = None
    while True:
        page = check_complete(await store.find(Query(limit=PAGE, after=after)))
        if page.conversations:
            yield page.conversations
        after = page.next
        if after is None:
            return


async def _bring_all(
    records: Sequence[Conversation], giver: ConversationStore, taker: ConversationStore
) -> list[Brought]:
    """Bring these side by side. All are waited for, also when one of them fails."""
    results = await asyncio.gather(
        *(_bring(record, giver, taker) for record in records), return_exceptions=True
    )
    done: list[Brought] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


async def _bring(record: Conversation, giver: ConversationStore, taker: ConversationStore) -> Brought:
    try:
        sessions = await giver.sessions(record.id)
    except ConversationNotFound:
        return Brought(record.id, "changed_meanwhile")
    return await bring(Stored(giver, record, sessions), taker)


class Stored(Given):
    """A conversation in a store, as it was when its record was read: what was said since is left out."""

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
