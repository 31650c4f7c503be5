"""The owner's index of conversations, sorted by activity.

The index is in another cluster slot than the conversations, so both cannot change in one step. The index is
always written first. So it may list a missing conversation (the writer crashed, or the server expired the
record) or have a score that is too high, but it never lacks a conversation. Readers treat the records as
authoritative: they remove entries without a record and correct scores.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import NamedTuple

from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, Page, Query, cursor_of, is_expired, parse_cursor
from aforesaid.stores.redis import values
from aforesaid.stores.redis.owner_connection import OwnerConnection, owners_key

BATCH = 100
_EXACT = 2.0**53

log = logging.getLogger("aforesaid.stores.redis")


class IndexEntry(NamedTuple):
    """An index entry as it was read."""

    conversation_id: str
    score_text: str

    @property
    def score(self) -> float:
        return float(self.score_text)

    def precedes_later(self, record: Conversation) -> bool:
        """Return whether the record sorts before everything after this entry."""
        score = values.score(to_micros(record.last_activity))
        # Beyond 2**53 different times share a score, so equal scores say nothing about the order.
        if score == self.score and abs(score) < _EXACT:
            return record.id >= self.conversation_id
        return score > self.score


class ConversationIndex:
    """One owner's index: a sorted set of conversation ids, scored by their last activity."""

    def __init__(self, connection: OwnerConnection) -> None:
        self._connection = connection
        self._keys = connection.keys
        self._owner = connection.owner

    # Writing

    async def add(self, conversation_id: str, activity: datetime) -> None:
        """Add the conversation to the index, and its owner to the set of owners."""
        await self._connection.connections.many(
            [
                ("ZADD", owners_key(self._keys.prefix), 0, self._owner),
                ("ZADD", self._keys.index, "GT", values.score_text(to_micros(activity)), conversation_id),
            ]
        )

    # Owners

    async def register_owner(self) -> None:
        """Add the owner to the set of owners."""
        await self._connection.call("ZADD", owners_key(self._keys.prefix), 0, self._owner)

    async def raise_score(self, conversation_id: str, activity: datetime) -> str | None:
        """Raise the conversation's score to at least this activity, before or after a write. Return the
        resulting score, None if it is not listed."""
        score = values.score_text(to_micros(activity))
        listed_score = await self._connection.run_for_owner(
            "raise_score", [self._keys.index], score, conversation_id
        )
        return listed_score.decode() if listed_score else None

    async def follow(self, record: Conversation) -> None:
        """Correct the index after a turn.

        The score may be too low: a reader may have corrected it between `raise_score` and the turn.
        """
        listed_score = await self.raise_score(record.id, record.last_activity)
        if listed_score is None:
            await self.add(record.id, record.last_activity)
        else:
            await self.correct_score(record, listed_score)

    async def correct(self, conversation_id: str) -> None:
        """Correct the score after a write that was announced by `raise_score` and then refused."""
        for _, found in await self.stored([conversation_id]):
            if found is not None:
                await self.follow(found.record)

    async def correct_score(self, record: Conversation, listed_score: str) -> None:
        """Correct a wrong score, unless it was changed since it was read.

        The score may belong to a turn that is being stored right now. So read the record again after the
        correction; the writer, for the same reason, calls `raise_score` again after storing.
        """
        activity = to_micros(record.last_activity)
        if float(listed_score) == values.score(activity):
            return
        right = values.score_text(activity)
        await self._connection.run_for_owner(
            "correct_score", [self._keys.index], record.id, listed_score, right
        )
        for _, found in await self.stored([record.id]):
            if found is not None:
                await self.raise_score(record.id, found.record.last_activity)

    async def remove(self, conversation_id: str, *, bound: str = "", names: Sequence[bytes] = ()) -> int:
        """Remove the conversation and its sessions, and the owner after the last conversation. Return the
        number of sessions.

        Another caller may be creating a conversation with this id, listed but not yet written. So read the
        record again after the removal; the creator, for the same reason, adds it again after writing.
        """
        keys = [self._keys.index, self._keys.sessions, self._keys.changed]
        left, sessions = await self._connection.run_for_owner(
            "remove_from_index", keys, conversation_id, bound, *names
        )
        if not left:
            await self.unregister_if_empty()
        for _, found in await self.stored([conversation_id]):
            if found is not None:
                await self.add(conversation_id, found.record.last_activity)
        return int(sessions)

    async def unregister_if_empty(self) -> None:
        """Remove the owner's name if no data is left; check twice, as `remove` does."""
        if await self._lists_anything():
            return
        await self._connection.call("ZREM", owners_key(self._keys.prefix), self._owner)
        if await self._lists_anything():
            await self.register_owner()

    async def _lists_anything(self) -> bool:
        keys = (self._keys.index, self._keys.documents)
        return any(await self._connection.connections.many([("ZCARD", key) for key in keys]))

    # Reading

    async def stored(self, conversation_ids: Sequence[str]) -> list[tuple[str, values.Stored | None]]:
        """Read the records of these conversations; None for a missing one. Log and skip a damaged record."""
        commands = [("HMGET", self._keys.of(one).record, *values.FIELDS) for one in conversation_ids]
        connections = self._connection.connections
        found = []
        for one, reply in zip(conversation_ids, await connections.many(commands), strict=True):
            try:
                found.append((one, values.stored(one, reply)))
            except StoreDamaged:
                # The error's text would quote stored data.
                log.error("%s: the record of conversation %s is damaged", connections.name, one)  # noqa: TRY400
        return found

    async def batches(
        self, ceiling: str = "+inf"
    ) -> AsyncGenerator[tuple[list[Conversation], IndexEntry], None]:
        """Yield batches of records by descending activity, each with its last index entry."""
        ties: set[str] = set()
        while True:
            wanted = BATCH + len(ties)
            flat = await self._connection.run_for_owner(
                "list_conversations", [self._keys.index], ceiling, wanted
            )
            listed = [
                IndexEntry(one.decode(), score.decode())
                for one, score in zip(flat[::2], flat[1::2], strict=True)
            ]
            fresh = [one for one in listed if one.conversation_id not in ties]
            if not fresh:
                return
            yield await self._records(fresh), fresh[-1]
            if len(listed) < wanted:
                return
            # If many entries share a score, the next batch starts at the same score and skips the entries
            # already read.
            ceiling = fresh[-1].score_text
            ties = {one.conversation_id for one in listed if one.score_text == ceiling}

    async def _records(self, listed: Sequence[IndexEntry]) -> list[Conversation]:
        """Read the records of these entries and correct the index."""
        scores = dict(listed)
        records = []
        for one, stored in await self.stored(list(scores)):
            if stored is None:  # expired by the server, or its writer crashed
                await self.remove(one)
                continue
            records.append(stored.record)
            await self.correct_score(stored.record, scores[one])
        return records

    async def has_conversations(self) -> bool:
        """Return whether there is any conversation, expired or not."""
        async with aclosing(self.batches()) as batches:
            async for records, _ in batches:
                if records:
                    return True
        return False

    async def page(self, query: Query, *, now: datetime) -> Page:
        """Return one page of a listing. Reads at most one batch more than needed."""
        after = parse_cursor(query.after) if query.after is not None else None
        found: list[Conversation] = []
        async with aclosing(self.batches(_ceiling(query, after))) as batches:
            async for records, last in batches:
                fitting = [record for record in records if _belongs(record, query, after, now)]
                # Deduplicate by id: a conversation with a corrected or changed score may appear again.
                by_id = {record.id: record for record in (*found, *fitting)}
                found = sorted(by_id.values(), key=_activity, reverse=True)[: query.limit + 1]
                if _is_complete(found, query, last):
                    break
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    async def every_id(self) -> AsyncIterator[list[str]]:
        """Yield the ids of all listed conversations, unordered and possibly repeated."""
        async for pairs in scan(self._connection, "ZSCAN", self._keys.index):
            yield [conversation_id.decode() for conversation_id, _ in pairs]


async def scan(connection: OwnerConnection, how: str, key: str) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Yield all pairs of a hash or a sorted set, by a complete scan."""
    cursor = b"0"
    while True:
        cursor, flat = await connection.run_for_owner("scan_key", [key], how, cursor, BATCH)
        yield list(zip(flat[::2], flat[1::2], strict=True))
        if cursor == b"0":
            return


def _ceiling(query: Query, after: tuple[int, str] | None) -> str:
    """Return the highest score that can belong to the page."""
    tops = [after[0]] if after else []
    if query.date_to is not None:
        tops.append(to_micros(query.date_to))
    return values.score_text(min(tops)) if tops else "+inf"


def _is_complete(found: Sequence[Conversation], query: Query, last: IndexEntry) -> bool:
    """Return whether nothing after this index entry can belong to the page."""
    if len(found) > query.limit and last.precedes_later(found[-1]):
        return True
    return query.date_from is not None and last.score < values.score(to_micros(query.date_from))


def _belongs(record: Conversation, query: Query, after: tuple[int, str] | None, now: datetime) -> bool:
    return (
        not is_expired(record, now=now)
        and query.matches(record)
        and (after is None or _activity(record) < after)
    )


def _activity(record: Conversation) -> tuple[int, str]:
    return to_micros(record.last_activity), record.id
