"""What is new in a conversation since it was last read. Below: contracts.

A record's revision says whether anything changed. Where its message count and the revisions of the last
entries say that there were only turns, those are read; else (a rewrite, a message replaced, an import into
the middle) the whole conversation is read again.
"""

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec import Struct

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.model.conversations import Conversation

_PAGE = 500


class Seen(Struct, frozen=True, kw_only=True):
    """How far a conversation has been read."""

    created_at: datetime
    """One that expired, and began anew under its id, is another."""
    revision: int
    messages: int
    """How many its record counted then."""
    last: int
    """The largest sequence."""

    def is_all_of(self, record: Conversation) -> bool:
        """Whether nothing has changed since."""
        return self.revision == record.revision and self.created_at == record.created_at


class News(Struct, frozen=True, kw_only=True):
    """What was read now."""

    entries: list[Entry]
    whole: bool
    """Whether these are all entries, so that what was read before is void."""
    seen: Seen


async def news_of(store: ConversationStore, record: Conversation, seen: Seen | None) -> News:
    """The entries that were added since, or all of them. Raises `ConversationNotFound` for what is gone."""
    if seen is not None and seen.created_at == record.created_at:
        added = await _added(store, record, seen)
        if added is not None:
            return _news(record, added, whole=False, last=seen.last)
    entries = [entry async for entry in all_entries(store, record.id)]
    return _news(record, entries, whole=True, last=0)


async def all_entries(store: ConversationStore, conversation_id: str) -> AsyncIterator[Entry]:
    """The whole log, oldest first."""
    offset = 0
    while entries := await store.page(conversation_id, limit=_PAGE, offset=offset):
        for entry in entries:
            yield entry
        offset += len(entries)
        if len(entries) < _PAGE:
            return


async def _added(store: ConversationStore, record: Conversation, seen: Seen) -> list[Entry] | None:
    """What stands at the end of the log and is new; None when that is not all that is new."""
    wanted = record.message_count - seen.messages
    if wanted < 0:
        return None
    # One more: if that is new as well, the log was rewritten, or somebody speaks right now.
    latest = await store.tail(record.id, limit=wanted + 1)
    added = [entry for entry in latest if entry.sequence > seen.last]
    turns = {entry.revision for entry in added}
    return added if len(added) == wanted and len(turns) == record.revision - seen.revision else None


def _news(record: Conversation, entries: list[Entry], *, whole: bool, last: int) -> News:
    seen = Seen(
        created_at=record.created_at,
        revision=record.revision,
        messages=record.message_count,
        last=max((entry.sequence for entry in entries), default=last),
    )
    return News(entries=entries, whole=whole, seen=seen)
