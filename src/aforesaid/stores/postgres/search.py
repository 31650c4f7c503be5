"""One owner's search index: find messages by terms, with the numbers for scoring.

The index is written together with the messages. Messages written by plain SQL are indexed at the next search,
because the rules of `search.analysis` are in Python.
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
    plan,
    storable,
    term_prefix,
)

if TYPE_CHECKING:
    from aforesaid.stores.postgres.backend import PostgresBackend

BATCH = 500
LARGE_TURN = 50_000
"""Characters of a turn above which it is analysed on a thread: a few milliseconds."""


class SearchIndex:
    """The search index of one owner."""

    def __init__(self, backend: "PostgresBackend", name: str, owner: str) -> None:
        self._backend = backend
        self._name = name
        self._owner = owner
        self._prefix = term_prefix(owner)

    async def of(self, messages: Sequence[Message], bodies: Sequence[str], now: datetime) -> list[Indexed]:
        """Analyse these messages; those without a timestamp get the current time."""
        if sum(map(len, bodies)) > LARGE_TURN:
            return await asyncio.to_thread(self._of, messages, now)
        return self._of(messages, now)

    def _of(self, messages: Sequence[Message], now: datetime) -> list[Indexed]:
        return [indexed(self._prefix, at_moment(message, now)) for message in messages]

    async def matches(self, terms: Sequence[str], limit: int, now: datetime) -> Matches:
        """See `contracts.Searchable`."""
        wanted = [term for term in dict.fromkeys(terms) if storable(term)]
        known = await self._matches(wanted, limit, now)
        if known is None:
            await self._catch_up()
            known = await self._matches(wanted, limit, now, ignore_waiting=True)
            assert known is not None
        return _for_query(terms, wanted, known)

    async def _matches(
        self, wanted: list[str], limit: int, now: datetime, *, ignore_waiting: bool = False
    ) -> Matches | None:
        """Return the matches in one snapshot; None if messages wait to be indexed."""
        parameters = {"name": self._name, "owner": self._owner, "now": now, "terms": wanted}
        async with self._backend.connection() as connection, connection.transaction():
            await connection.execute(SQL["use_one_snapshot"])
            (known,) = await _fetch(connection, "term_frequencies", parameters)
            messages, total, frequencies, expired, waiting = known
            if waiting and not ignore_waiting:
                return None
            parameters |= {"expired": expired, "average": max(total / max(messages, 1), 1.0)}
            parameters |= {"saturation": SATURATION, "length": LENGTH}
            term_plan = plan(wanted, frequencies, messages)
            found = await self._found(connection, parameters, term_plan, limit)
        return Matches(found=found, frequencies=tuple(frequencies), messages=messages, terms=total)

    async def _found(
        self, connection: Connection, parameters: dict[str, Any], term_plan: Plan, limit: int
    ) -> tuple[Match, ...]:
        """Return the best matches. Few terms select candidates; common terms do so only if their messages
        may win."""
        number, needed = 0, term_plan.first_try(limit) if limit else 0
        found: list[rows.Row] = []
        while number < needed:
            number = needed
            values = {"any": term_plan.terms[:number], "terms": term_plan.terms, "weights": term_plan.weights}
            found = await _fetch(connection, "matching_messages", parameters | values | {"limit": limit})
            needed = term_plan.needed(found[-1][5] if len(found) == limit else 0.0)
        place = {term: number for number, term in enumerate(term_plan.terms)}
        places = [place.get(term) for term in parameters["terms"]]
        return tuple(_match(row, places) for row in found)

    async def _catch_up(self) -> None:
        """Index the waiting messages."""
        parameters = {"owner": self._owner, "limit": BATCH}
        while waiting := await self._backend.run_for(self._name, ("unindexed_conversations", parameters)):
            for (conversation_id,) in waiting:
                await self._catch_up_with(conversation_id)

    async def _catch_up_with(self, conversation_id: str) -> None:
        named = {"owner": self._owner, "id": conversation_id, "limit": BATCH}
        async with self._backend.connection() as connection, connection.transaction():
            # Lock the record before its messages, as turns do, to avoid deadlocks.
            await execute_for(connection, self._name, ("lock_conversation", named))
            while found := await execute_for(connection, self._name, ("unindexed_messages", named)):
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


def _for_query(terms: Sequence[str], wanted: list[str], known: Matches) -> Matches:
    """Map the matches of the distinct storable terms to all terms of the query, in their order."""
    if list(terms) == wanted:
        return known
    place = {term: number for number, term in enumerate(wanted)}
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
