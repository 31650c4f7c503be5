"""Go through all records of an owner, page by page.

A listing begins with what was active last. A conversation in which somebody speaks meanwhile moves to its
front, behind the reader's back: so the front is looked at again, until one page shows all that has moved, or
nothing new is found there.
"""

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore
from aforesaid.errors import StoreUnavailable
from aforesaid.model.conversations import Conversation, Page, Query

PAGE = 500


async def all_records(store: ConversationStore, query: Query | None = None) -> AsyncIterator[Conversation]:
    """Every record that the query asks for, once: most recently active first, but for those that moved.

    Raises `StoreUnavailable` rather than leave out records that are not known while the store is away.
    """
    async for page in _pages(store, query):
        for record in check_complete(page).conversations:
            yield record


async def known_records(store: ConversationStore, query: Query | None = None) -> AsyncIterator[Conversation]:
    """The same; while the store is away, the records that are known. For searches, which say so."""
    async for page in _pages(store, query):
        for record in page.conversations:
            yield record


async def _pages(store: ConversationStore, query: Query | None) -> AsyncIterator[Page]:
    """Pages of records, each record once."""
    describe: set[str] = set()
    told_before = 0
    after: str | None = None
    front: datetime | None = None
    since: datetime | None = None
    while True:
        page = await store.find(replace(query or Query(), limit=PAGE, after=after))
        fresh = tuple(record for record in page.conversations if record.id not in describe)
        describe |= {record.id for record in fresh}
        yield replace(page, conversations=fresh)
        at_front = after is None
        if at_front and page.conversations:
            front = page.conversations[0].last_activity
        if page.next is not None and (since is None or page.conversations[-1].last_activity >= since):
            after = page.next
        elif at_front or len(describe) == told_before:
            return
        else:
            after, since, told_before = None, front, len(describe)


async def every_record(store: ConversationStore) -> AsyncIterator[Conversation]:
    """Every record of the owner, from the authoritative view: for operations that need all of them."""
    async for record in all_records(await store.authoritative()):
        yield record


def check_complete(page: Page) -> Page:
    """Refuse a page that comes from the last known state."""
    if page.degraded:
        raise StoreUnavailable("the store is away, and the list of conversations that is known may lack some")
    return page
