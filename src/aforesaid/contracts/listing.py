"""List all records of an owner, page by page.

Pages start with the most recently active record. A conversation that becomes active during the listing moves
to the front, before the cursor. Therefore the front is read again until a page adds nothing new.
"""

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore
from aforesaid.errors import StoreUnavailable
from aforesaid.model.conversations import Conversation, Page, Query

PAGE = 500


async def all_records(store: ConversationStore, query: Query | None = None) -> AsyncIterator[Conversation]:
    """Yield every record that matches the query once, most recently active first except for those that moved.

    Raise `StoreUnavailable` instead of an incomplete listing from the last known state.
    """
    async for page in _pages(store, query):
        for record in check_complete(page).conversations:
            yield record


async def known_records(store: ConversationStore, query: Query | None = None) -> AsyncIterator[Conversation]:
    """Yield the same records; while the store is unavailable, those of the last known state. For searches."""
    async for page in _pages(store, query):
        for record in page.conversations:
            yield record


async def _pages(store: ConversationStore, query: Query | None) -> AsyncIterator[Page]:
    """Yield pages of records, each record once."""
    listed: set[str] = set()
    listed_before = 0
    after: str | None = None
    front: datetime | None = None
    since: datetime | None = None
    while True:
        page = await store.find(replace(query or Query(), limit=PAGE, after=after))
        fresh = tuple(record for record in page.conversations if record.id not in listed)
        listed |= {record.id for record in fresh}
        yield replace(page, conversations=fresh)
        at_front = after is None
        if at_front and page.conversations:
            front = page.conversations[0].last_activity
        if page.next is not None and (since is None or page.conversations[-1].last_activity >= since):
            after = page.next
        elif at_front or len(listed) == listed_before:
            return
        else:
            # Start again at the front; records older than `front` have been listed.
            after, since, listed_before = None, front, len(listed)


async def every_record(store: ConversationStore) -> AsyncIterator[Conversation]:
    """Yield every record of the owner from the authoritative view."""
    async for record in all_records(await store.authoritative()):
        yield record


def check_complete(page: Page) -> Page:
    """Raise `StoreUnavailable` for a page from the last known state."""
    if page.degraded:
        raise StoreUnavailable(
            "the store is unavailable, and the last known list of conversations may be incomplete"
        )
    return page
