"""One owner's index: the messages that hold some terms, and the numbers that a score is made of.

The index is written with the messages. Those that plain SQL wrote wait for their terms until somebody
searches: the rules of `search.analysis` are in Python. Below: `terms`, and the functions of `schema.sql`.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

from aforesaid.contracts import Match, Matches, Position
from aforesaid.model.clock import to_micros
from aforesaid.model.messages import Message
from aforesaid.search.ranking import LENGTH, SATURATION
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import SQL, Connection, execute_for
from aforesaid.stores.postgres.terms import (
    Indexed,
    Plan,
    at_moment,
    index_values,
    indexed,
    mark_of,
    plan,
    storable,
)

if TYPE_CHECKING:
    from aforesaid.stores.postgres.backend import PostgresBackend

BATCH = 500
LARGE_TURN = 50_000
"""Characters of a turn beyond which its terms are worked out beside the event loop: a few milliseconds."""


class Index:
    """What one owner's messages are found by."""

    def __init__(self, backend: "PostgresBackend", name: str, owner: str) -> None:
        self._backend = backend
        self._name = name
        self._owner = owner
        self._mark = mark_of(owner)

    async def of(self, messages: Sequence[Message], bodies: Sequence[str], now: datetime) -> list[Indexed]:
        """What these messages are found by, said now where they do not say when."""
        if sum(map(len, bodies)) > LARGE_TURN:
            return await asyncio.to_thread(self._of, messages, now)
        return self._of(messages, now)

    def _of(self, messages: Sequence[Message], now: datetime) -> list[Indexed]:
        return [indexed(self._mark, at_moment(message, now)) for message in messages]

    async def matches(self, terms: Sequence[str], limit: int, now: datetime) -> Matches:
        """See `contracts.Searchable`."""
        sought = [term for term in dict.fromkeys(terms) if storable(term)]
        known = await self._matches(sought, limit, now)
        if known is None:
            await self._catch_up()
            known = await self._matches(sought, limit, now, whatever_waits=True)
            assert known is not None
        return _as_asked(terms, sought, known)

    async def _matches(
        self, sought: list[str], limit: int, now: datetime, *, whatever_waits: bool = False
    ) -> Matches | None:
        """The matches, all as they are at one moment; None when messages wait for their terms."""
        mine = {"name": self._name, "owner": self._owner, "now": now, "terms": sought}
        async with self._backend.connection() as connection, connection.transaction():
            await connection.execute(SQL["one_moment"])
            (known,) = await _fetch(connection, "frequencies", mine)
            messages, total, frequencies, expired, waiting = known
            if waiting and not whatever_waits:
                return None
            mine |= {"expired": expired, "average": max(total / max(messages, 1), 1.0)}
            mine |= {"saturation": SATURATION, "length": LENGTH}
            asked = plan(sought, frequencies, messages)
            found = await self._found(connection, mine, asked, limit)
        return Matches(found=found, frequencies=tuple(frequencies), messages=messages, terms=total)

    async def _found(
        self, connection: Connection, mine: dict[str, Any], asked: Plan, limit: int
    ) -> tuple[Match, ...]:
        """The best matches. Candidates come from few terms: from common ones only where they may win."""
        number, needed = 0, asked.first_try(limit) if limit else 0
        found: list[rows.Row] = []
        while number < needed:
            number = needed
            values = {"any": asked.terms[:number], "terms": asked.terms, "weights": asked.weights}
            found = await _fetch(connection, "found", mine | values | {"limit": limit})
            needed = asked.needed(found[-1][5] if len(found) == limit else 0.0)
        place = {term: number for number, term in enumerate(asked.terms)}
        places = [place.get(term) for term in mine["terms"]]
        return tuple(_match(row, places) for row in found)

    async def _catch_up(self) -> None:
        """Work out the terms of messages that have none yet."""
        mine = {"owner": self._owner, "limit": BATCH}
        while waiting := await self._backend.run_for(self._name, ("waiting_conversations", mine)):
            for (conversation_id,) in waiting:
                await self._catch_up_with(conversation_id)

    async def _catch_up_with(self, conversation_id: str) -> None:
        named = {"owner": self._owner, "id": conversation_id, "limit": BATCH}
        async with self._backend.connection() as connection, connection.transaction():
            # First the record and then its messages, as turns do it: so that nobody waits in a circle.
            await execute_for(connection, self._name, ("lock_conversation", named))
            while found := await execute_for(connection, self._name, ("waiting_messages", named)):
                messages = [entry.message for entry in rows.entries(conversation_id, found)]
                values = {"times": [row[0] for row in found], "sequences": [row[1] for row in found]}
                values |= index_values(await self.of(messages, [row[4] for row in found], found[0][0]))
                await execute_for(connection, self._name, ("index_messages", named | values))


async def _fetch(connection: Connection, name: str, values: dict[str, Any]) -> list[rows.Row]:
    cursor = connection.cursor(binary=True, row_factory=tuple_row)
    await cursor.execute(SQL[name], values)
    return await cursor.fetchall()


def _match(row: rows.Row, places: Sequence[int | None]) -> Match:
    conversation_id, at, sequence, role, length, _, counts = row
    return Match(
        conversation_id=conversation_id,
        position=Position(to_micros(at), sequence),
        role=role,
        counts=tuple(0 if place is None else counts[place] for place in places),
        length=length,
    )


def _as_asked(terms: Sequence[str], sought: list[str], known: Matches) -> Matches:
    """Matches of the terms that were looked for, as matches of all that were asked for, in their order."""
    if list(terms) == sought:
        return known
    place = {term: number for number, term in enumerate(sought)}
    places = [place.get(term) for term in terms]

    def spread(numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(0 if place is None else numbers[place] for place in places)

    found = tuple(
        Match(
            conversation_id=match.conversation_id,
            position=match.position,
            role=match.role,
            counts=spread(match.counts),
            length=match.length,
        )
        for match in known.found
    )
    return Matches(
        found=found, frequencies=spread(known.frequencies), messages=known.messages, terms=known.terms
    )
