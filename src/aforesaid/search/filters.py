"""Which messages pass the filters of a search, as far as that must be known. Below: questions, catching up.

What a place says (role, time) costs nothing to look at, a record little. Tags of single messages stand in the
log only: when few results pass, the logs are read for them once, so that what has the tag is found wherever
it stands in a ranking.
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


class Admission:
    """One search's filters, over one store."""

    def __init__(self, store: ConversationStore, filters: Filters) -> None:
        self.filters = filters
        self._store = store
        self._tagged: dict[str, frozenset[int]] = {}
        """Of conversations without the tag: the messages that have it, where that is known."""

    async def conversations(self) -> frozenset[str]:
        """Every conversation that may hold something that passes."""
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
        """The messages of a conversation that have the tag themselves."""
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
        """Whether the message passes, as far as that is known without reading it."""
        tagged = self._tagged.get(one.conversation_id)
        return (tagged is None or one.position.sequence in tagged) and self.filters.by_place(
            one.role, one.position
        )

    def passes(self, record: Conversation, entry: Entry) -> bool:
        """Whether the message passes. What a system message says is no result."""
        role = entry.message.role
        return (
            role != "system"
            and self.filters.by_place(role, entry.position)
            and self.filters.by_record(record)
            and self.filters.by_tags(record, entry.message)
        )
