"""The owner's index: which conversations there are, the most recently active first. Above: `store`.

The index lives in another slot than the conversations, so it can be a step ahead of them. It is
always written first. So it may list what is not there (a writer died before the record was written,
or the server let it expire), and may hold a conversation for more active than it is; it never
misses one. Reading puts right what it meets: it takes records as the truth, drops entries that have none, and
corrects scores.
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
from aforesaid.stores.redis.connections import Connections
from aforesaid.stores.redis.keys import OwnerKeys, owners_key
from aforesaid.stores.redis.scripts import ABOUT_OWNERS

BATCH = 100
_EXACT = 2.0**53

log = logging.getLogger("aforesaid.stores.redis")


class Listed(NamedTuple):
    """An entry of the index, as it was read."""

    conversation_id: str
    score_text: str

    @property
    def score(self) -> float:
        return float(self.score_text)

    def precedes_the_rest(self, record: Conversation) -> bool:
        """Whether the record stands before everything that the index lists after this entry."""
        score = values.score(to_micros(record.last_activity))
        if score == self.score and abs(score) < _EXACT:
            return record.id >= self.conversation_id
        return score > self.score


class Index:
    """One owner's index."""

    def __init__(self, connections: Connections, keys: OwnerKeys, owner: str) -> None:
        self._connections = connections
        self._keys = keys
        self._owner = owner

    async def add(self, conversation_id: str, activity: datetime) -> None:
        """List the conversation, and its owner among the owners."""
        await self._connections.many(
            [
                ("ZADD", owners_key(self._keys.prefix), 0, self._owner),
                ("ZADD", self._keys.index, "GT", values.score_text(to_micros(activity)), conversation_id),
            ]
        )

    async def enlist(self) -> None:
        """List the owner among the owners."""
        await self._connections.call("ZADD", owners_key(self._keys.prefix), 0, self._owner)

    async def touch(self, conversation_id: str, activity: datetime) -> str | None:
        """The conversation is at least this active, or is about to be. Returns what the index says then, if
        it lists it."""
        score = values.score_text(to_micros(activity))
        said = await self._connections.run(ABOUT_OWNERS["touch"], [self._keys.index], score, conversation_id)
        return said.decode() if said else None

    async def follow(self, record: Conversation) -> None:
        """After a turn: make what the index says true, where it is not.

        It may say less than was announced: a reader met the announcement before the turn, and took it back.
        """
        said = await self.touch(record.id, record.last_activity)
        if said is None:
            await self.add(record.id, record.last_activity)
        else:
            await self.settle(record, said)

    async def correct(self, conversation_id: str) -> None:
        """After a write that was announced and then refused: take the announcement back."""
        for _, found in await self.stored([conversation_id]):
            if found is not None:
                await self.follow(found.record)

    async def settle(self, record: Conversation, said: str) -> None:
        """Correct a score that is not the record's, unless somebody touched it since it was read.

        It may be the announcement of a turn that is stored at this moment. So look once more, after
        correcting: its writer, for the same reason, announces it again after storing.
        """
        activity = to_micros(record.last_activity)
        if float(said) == values.score(activity):
            return
        right = values.score_text(activity)
        await self._connections.run(ABOUT_OWNERS["settle"], [self._keys.index], record.id, said, right)
        for _, found in await self.stored([record.id]):
            if found is not None:
                await self.touch(record.id, found.record.last_activity)

    async def remove(self, conversation_id: str, *, bound: str = "", names: Sequence[bytes] = ()) -> int:
        """Take the conversation off the list, with its sessions; and the owner, when it was the last.

        Returns how many sessions went.

        Somebody may be making a conversation of this id at this moment, listed and not yet written.
        So look once more, after removing: its maker, for the same reason, lists it again after writing.
        """
        left, sessions = await self._connections.run(
            ABOUT_OWNERS["unlist"], [self._keys.index, self._keys.sessions], conversation_id, bound, *names
        )
        if not left:
            await self.leave_if_empty()
        for _, found in await self.stored([conversation_id]):
            if found is not None:
                await self.add(conversation_id, found.record.last_activity)
        return int(sessions)

    async def leave_if_empty(self) -> None:
        """Forget the owner's name when there is nothing left; looking twice, as `remove` does."""
        if await self._lists_anything():
            return
        await self._connections.call("ZREM", owners_key(self._keys.prefix), self._owner)
        if await self._lists_anything():
            await self.enlist()

    async def _lists_anything(self) -> bool:
        keys = (self._keys.index, self._keys.documents)
        return any(await self._connections.many([("ZCARD", key) for key in keys]))

    async def stored(self, conversation_ids: Sequence[str]) -> list[tuple[str, values.Stored | None]]:
        """The records of these conversations; None where there is none.

        A record that cannot be read is set aside, and said so in the log: the others can.
        """
        commands = [("HMGET", self._keys.of(one).record, *values.FIELDS) for one in conversation_ids]
        found = []
        for one, reply in zip(conversation_ids, await self._connections.many(commands), strict=True):
            try:
                found.append((one, values.stored(one, reply)))
            except StoreDamaged:
                # Its words would quote what is stored.
                log.error("%s: conversation %s cannot be read", self._connections.name, one)  # noqa: TRY400
        return found

    async def batches(self, ceiling: str = "+inf") -> AsyncGenerator[tuple[list[Conversation], Listed], None]:
        """Records from the most active on, and after each batch the entry up to which it has come."""
        ties: set[str] = set()
        while True:
            wanted = BATCH + len(ties)
            flat = await self._connections.run(ABOUT_OWNERS["listed"], [self._keys.index], ceiling, wanted)
            listed = [
                Listed(one.decode(), score.decode()) for one, score in zip(flat[::2], flat[1::2], strict=True)
            ]
            fresh = [one for one in listed if one.conversation_id not in ties]
            if not fresh:
                return
            yield await self._records(fresh), fresh[-1]
            if len(listed) < wanted:
                return
            # Where many share a score the next batch begins at the same one, and skips those it has seen.
            ceiling = fresh[-1].score_text
            ties = {one.conversation_id for one in listed if one.score_text == ceiling}

    async def _records(self, listed: Sequence[Listed]) -> list[Conversation]:
        """The records of these entries. What the index had wrong is put right."""
        said = dict(listed)
        records = []
        for one, stored in await self.stored(list(said)):
            if stored is None:
                await self.remove(one)
                continue
            records.append(stored.record)
            await self.settle(stored.record, said[one])
        return records

    async def has_conversations(self) -> bool:
        """Whether there is a conversation at all, expired or not."""
        async with aclosing(self.batches()) as batches:
            async for records, _ in batches:
                if records:
                    return True
        return False

    async def page(self, query: Query, *, now: datetime) -> Page:
        """One page of a listing, by the same rules as the model: at most a batch more is read than needed."""
        after = parse_cursor(query.after) if query.after is not None else None
        found: list[Conversation] = []
        async with aclosing(self.batches(_ceiling(query, after))) as batches:
            async for records, last in batches:
                fitting = [record for record in records if _belongs(record, query, after, now)]
                # By id: one whose score was corrected, or that moved, may be met once more further down.
                known = {record.id: record for record in (*found, *fitting)}
                found = sorted(known.values(), key=_activity, reverse=True)[: query.limit + 1]
                if _is_complete(found, query, last):
                    break
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    async def every_id(self) -> AsyncIterator[list[str]]:
        """Every conversation that is listed throughout: in no order, some perhaps more than once."""
        async for pairs in scanned(self._connections, "ZSCAN", self._keys.index):
            yield [conversation_id.decode() for conversation_id, _ in pairs]


async def scanned(connections: Connections, how: str, key: str) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """All pairs of a hash or a sorted set, by a whole walk of its cursor."""
    cursor = b"0"
    while True:
        cursor, flat = await connections.run(ABOUT_OWNERS["scan"], [key], how, cursor, BATCH)
        yield list(zip(flat[::2], flat[1::2], strict=True))
        if cursor == b"0":
            return


def _ceiling(query: Query, after: tuple[int, str] | None) -> str:
    """Where in the index a listing begins: nothing above it can belong to the page."""
    tops = [after[0]] if after else []
    if query.date_to is not None:
        tops.append(to_micros(query.date_to))
    return values.score_text(min(tops)) if tops else "+inf"


def _is_complete(found: Sequence[Conversation], query: Query, last: Listed) -> bool:
    """Whether nothing that the index lists after this entry can belong to the page."""
    if len(found) > query.limit and last.precedes_the_rest(found[-1]):
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
