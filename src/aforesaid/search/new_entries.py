"""Read only the new entries of a conversation.

A record's revision tells whether anything changed. If message count and entry revisions show that only turns
were added, only those are read. After any other change (a replaced message, an import into the middle) the
whole conversation is read again.
"""

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec import Struct

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.model.conversations import Conversation

_PAGE = 500


class ReadState(Struct, frozen=True, kw_only=True):
    """How far a conversation has been read."""

    created_at: datetime
    """Distinguishes a conversation from a later one with the same id."""
    revision: int
    messages: int
    """The record's message count at that time."""
    last: int
    """The largest sequence."""

    def is_current_for(self, record: Conversation) -> bool:
        """Return whether nothing has changed since."""
        return self.revision == record.revision and self.created_at == record.created_at


class NewEntries(Struct, frozen=True, kw_only=True):
    """The result of one read."""

    entries: list[Entry]
    whole: bool
    """Whether `entries` is the whole log, so that earlier reads are void."""
    state: ReadState


async def read_new_entries(
    store: ConversationStore, record: Conversation, state: ReadState | None
) -> NewEntries:
    """Return the entries added since `state`, or all entries. May raise `ConversationNotFound`."""
    if state is not None and state.created_at == record.created_at:
        added = await _added(store, record, state)
        if added is not None:
            return _new_entries(record, added, whole=False, last=state.last)
    entries = [entry async for entry in all_entries(store, record.id)]
    return _new_entries(record, entries, whole=True, last=0)


async def all_entries(store: ConversationStore, conversation_id: str) -> AsyncIterator[Entry]:
    """Yield the whole log, oldest first."""
    offset = 0
    while entries := await store.page(conversation_id, limit=_PAGE, offset=offset):
        for entry in entries:
            yield entry
        offset += len(entries)
        if len(entries) < _PAGE:
            return


async def _added(store: ConversationStore, record: Conversation, state: ReadState) -> list[Entry] | None:
    """Return the new entries at the end of the log, or None if there are other changes."""
    wanted = record.message_count - state.messages
    if wanted < 0:
        return None
    # Read one entry more: if it is new too, the log was rewritten or a turn is being written.
    latest = await store.tail(record.id, limit=wanted + 1)
    added = [entry for entry in latest if entry.sequence > state.last]
    turns = {entry.revision for entry in added}
    return added if len(added) == wanted and len(turns) == record.revision - state.revision else None


def _new_entries(record: Conversation, entries: list[Entry], *, whole: bool, last: int) -> NewEntries:
    state = ReadState(
        created_at=record.created_at,
        revision=record.revision,
        messages=record.message_count,
        last=max((entry.sequence for entry in entries), default=last),
    )
    return NewEntries(entries=entries, whole=whole, state=state)
