"""Apply a search's filters to messages, as cheaply as possible.

Role and time are part of a position and cost nothing; a record costs little. Message tags exist only in the
log. When too few results pass, the logs are read once for tags, so that tagged messages are found at any
rank.
"""

import asyncio

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.conversations import Conversation, Query
from aforesaid.search.new_entries import all_entries
from aforesaid.search.queries import Filters
from aforesaid.search.ranking import Ranked

_AT_ONCE = 16


class MessageFilter:
    """The filters of one search over one store."""

    def __init__(self, store: ConversationStore, filters: Filters) -> None:
        self.filters = filters
        self._store = store
        self._tagged: dict[str, frozenset[int]] = {}
        """Conversation without the tag → sequences of its tagged messages, where known."""

    async def conversations(self) -> frozenset[str]:
        """Return every conversation that may contain a passing message."""
        query = Query(channel=self.filters.channel, date_from=self.filters.date_from)
        records = [record async for record in known_records(self._store, query)]
        passing = {record.id for record in records if self.filters.tag in (None, *record.tags)}
        others = [record.id for record in records if record.id not in passing]
        for at in range(0, len(others), _AT_ONCE):
            chunk = others[at : at + _AT_ONCE]
            found = await asyncio.gather(*(self._with_tag(conversation_id) for conversation_id in chunk))
            self._tagged.update(zip(chunk, found, strict=True))
        return frozenset(passing.union(key for key, tagged in self._tagged.items() if tagged))

    async def _with_tag(self, conversation_id: str) -> frozenset[int]:
        """Return the sequences of the messages in a conversation that carry the tag themselves."""
        try:
            return frozenset(
                [
                    entry.sequence
                    async for entry in all_entries(self._store, conversation_id)
                    if self.filters.tag in entry.message.tags
                ]
            )
        except ConversationNotFound:
            return frozenset()

    def may_pass(self, one: Ranked) -> bool:
        """Return False if the message cannot pass, judging without reading it."""
        tagged = self._tagged.get(one.conversation_id)
        return (tagged is None or one.position.sequence in tagged) and self.filters.matches_position(
            one.role, one.position
        )

    def passes(self, record: Conversation, entry: Entry) -> bool:
        """Return whether the message passes. System messages never do."""
        role = entry.message.role
        return (
            role != "system"
            and self.filters.matches_position(role, entry.position)
            and self.filters.matches_record(record)
            and self.filters.matches_tags(record, entry.message)
        )
