"""List all records or all documents of an owner, page by page.

Pages of records start with the most recently active record. A conversation that becomes active during the
listing moves to the front, before the cursor. Therefore the front is read again until a page adds nothing
new.
"""

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Document
from aforesaid.errors import StoreUnavailable
from aforesaid.model.conversations import Conversation, Page, Query

PAGE = 500
DOCUMENTS_PAGE = 100


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


async def all_documents(
    store: ConversationStore,
    kind: str,
    *,
    conversation_id: str | None = None,
    after: str | None = None,
    limit: int = DOCUMENTS_PAGE,
) -> AsyncIterator[Document]:
    """Yield every document of a kind, in the order of keys, beginning after the key `after`."""
    async for page in document_pages(store, kind, conversation_id=conversation_id, after=after, limit=limit):
        for document in page:
            yield document


async def document_pages(
    store: ConversationStore,
    kind: str,
    *,
    conversation_id: str | None = None,
    after: str | None = None,
    limit: int = DOCUMENTS_PAGE,
) -> AsyncIterator[list[Document]]:
    """Yield the same documents in pages of at most `limit`. No page is empty."""
    while page := await store.documents(kind, conversation_id=conversation_id, after=after, limit=limit):
        yield page
        # A layer that leaves out unreadable documents fills its pages, so a short page is the last one.
        if len(page) < limit:
            return
        after = page[-1].key


def check_complete(page: Page) -> Page:
    """Raise `StoreUnavailable` for a page from the last known state."""
    if page.degraded:
        raise StoreUnavailable(
            "the store is unavailable, and the last known list of conversations may be incomplete"
        )
    return page
