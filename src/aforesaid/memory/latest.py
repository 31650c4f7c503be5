"""The record after an append with its latest messages, mostly without reading them again.

The revision of the record shows whether anything else has changed the conversation since its messages were
read: then they are read again. So messages in memory are never stale.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Appended, ConversationStore, Entry
from aforesaid.errors import ConversationNotFound, StoreError
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message, is_immutable
from aforesaid.telemetry import describe
from aforesaid.windows import messages_of, with_latest

log = logging.getLogger("aforesaid.manager")

# Conversations in memory. With the limits below, they take at most 50 MB, usually some.
MOST_CONVERSATIONS = 256
MOST_MESSAGES = 50
LONGEST_TEXT = 4_000


class _Known(NamedTuple):
    """A record, and its latest messages."""

    record: Conversation
    messages: tuple[Message, ...]


class LatestMessages:
    """The latest messages of recently written conversations of a memory."""

    def __init__(self) -> None:
        self._known: BoundedDict[tuple[str, str], _Known] = BoundedDict(MOST_CONVERSATIONS)

    async def record_after(
        self, store: ConversationStore, stored: Appended, limit: int, *, assumed: bool
    ) -> Conversation:
        """Return the record of an append with its latest messages; a limit of 0 means all.

        `assumed` is a record that is not in the store yet. The messages are stored, so a failing read is no
        error: a caller would store them twice. The record then has the appended messages only.
        """
        record = stored.conversation
        key = store.owner, record.id
        known = None if assumed else self._known.pop(key, None)
        messages = self._after(known, stored, limit)
        if messages is None:
            try:
                return self._kept(key, await with_latest(store, record, limit), limit, assumed=assumed)
            except (StoreError, ConversationNotFound) as error:
                log.warning("conversation %s: latest messages not read: %s", record.id, describe(error))
                return record.with_(messages=messages_of((*stored.known, *stored.new)))
        return self._kept(key, record.with_(messages=messages), limit, assumed=assumed)

    def _after(self, known: _Known | None, stored: Appended, limit: int) -> tuple[Message, ...] | None:
        """Return the latest messages without reading; None where only the store knows them."""
        appended = (*stored.known, *stored.new)
        if stored.conversation.message_count <= len(appended):
            return messages_of(appended)
        if known is None or not limit or not _follows(known.record, stored):
            return None
        return (*known.messages, *messages_of(stored.new))[-limit:]

    def _kept(self, key: tuple[str, str], record: Conversation, limit: int, *, assumed: bool) -> Conversation:
        complete = len(record.messages) == min(limit, record.message_count)
        if complete and not assumed and _is_small(record.messages):
            self._known[key] = _Known(record, record.messages)
        return record

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Drop the messages of the owner or the conversation. Implements `CopyHolder`."""
        keys = [key for key in self._known if key[0] == owner and conversation_id in (None, key[1])]
        for key in keys:
            self._known.pop(key, None)
        return {"cached_copies": len(keys)}


def _follows(record: Conversation, stored: Appended) -> bool:
    """Whether the append was the only change since this record, and its messages are the last of the log."""
    after, new = stored.conversation, stored.new
    if stored.known or (after.created_at, after.revision) != (record.created_at, record.revision + 1):
        return False
    if after.message_count != record.message_count + len(new):
        return False
    return all(_is_after(entry, record.last_message_at) for entry in new) and _is_ordered(new)


def _is_after(entry: Entry, last: datetime | None) -> bool:
    moment = entry.message.timestamp
    return moment is not None and (last is None or last <= moment)


def _is_ordered(entries: Sequence[Entry]) -> bool:
    return all(one.position < other.position for one, other in pairwise(entries))


def _is_small(messages: Sequence[Message]) -> bool:
    return len(messages) <= MOST_MESSAGES and all(
        is_immutable(one) and (not isinstance(one.content, str) or len(one.content) <= LONGEST_TEXT)
        for one in messages
    )
