"""One owner's search: index terms, messages that contain them, and vectors compared with pgvector."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import nlargest
from itertools import accumulate
from math import isfinite, log
from struct import unpack
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from psycopg.rows import tuple_row

from aforesaid.contracts import Match, Matches, Position, VectorMatch
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.clock import to_micros
from aforesaid.model.messages import Message
from aforesaid.search.analysis import LONGEST_TERM
from aforesaid.search.bm25 import LENGTH, SATURATION, Scorer
from aforesaid.search.vectors import KIND_PREFIX, Block
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import SQL, Connection, execute_for
from aforesaid.stores.postgres.database import Database
from aforesaid.stores.postgres.terms import Indexed, index_values, indexed, term_prefix

# The choice of terms that select candidates. Pure functions.


# A term in more messages than this does not select candidates if a rarer term does.
COMMON = 10_000
# The largest factor of a term's weight in a score of `aforesaid.matching_messages`.
MAX_FACTOR = SATURATION + 1
# The server's score counts a term at most four times, which matters in long messages. So many more matches
# are read, and the best of them are chosen by their exact scores.
SPARE = 100


def at_moment(message: Message, now: datetime) -> Message:
    """Return the message with the current time if it has none: the day is one of its terms."""
    return message if message.timestamp is not None else message.with_(timestamp=now)


def storable(term: str) -> bool:
    """Return whether a message can have this term. Some other terms cannot even be sent."""
    return len(term) <= LONGEST_TERM and term.split() == [term] and term.isprintable()


def rarity(frequencies: Sequence[int], messages: int) -> list[float]:
    """Return the BM25 weight of each term."""
    return [log(1 + max(messages - n + 0.5, 0.5) / (n + 0.5)) for n in frequencies]


class Plan(NamedTuple):
    """Terms by ascending frequency, with frequencies and weights."""

    terms: list[str]
    frequencies: list[int]
    weights: list[float]

    def first_try(self, limit: int) -> int:
        """Return how many of the rarest terms may select enough candidates."""
        for number, sure in enumerate(accumulate(self.frequencies, max), 1):
            if sure >= limit:
                return number
        return len(self.terms)

    def needed(self, worst: float) -> int:
        """Return how many of the rarest terms must select candidates, to miss no message better than `worst`.

        A message without any of them scores less than the sum of the other weights.
        """
        rest = 0.0
        for number in range(len(self.terms), 0, -1):
            rest += self.weights[number - 1] * MAX_FACTOR
            if rest > worst and not self._too_common(number):
                return number
        return 1

    def _too_common(self, number: int) -> bool:
        return number > 1 and self.frequencies[number - 1] > COMMON


def plan(terms: Sequence[str], frequencies: Sequence[int], messages: int) -> Plan:
    """Return the occurring terms, rarest first."""
    occurring = sorted(
        (n, term, weight)
        for term, n, weight in zip(terms, frequencies, rarity(frequencies, messages), strict=True)
        if n
    )
    return Plan(
        [term for _, term, _ in occurring], [n for n, _, _ in occurring], [weight for *_, weight in occurring]
    )


# One owner's search index: find messages by terms, with the numbers for scoring.
#
# The index is written together with the messages. Messages written by plain SQL are indexed at the next
# search, because the rules of `search.analysis` are in Python.


BATCH = 500
# Characters of a turn above which it is analysed on a thread: a few milliseconds.
LARGE_TURN = 50_000


class SearchIndex:
    """The search index of one owner."""

    def __init__(self, database: Database, name: str, owner: str) -> None:
        self._database = database
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
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(SQL["use_one_snapshot"])
            (known,) = await _fetch(connection, "term_frequencies", parameters)
            messages, total, frequencies, expired, waiting = known
            if waiting and not ignore_waiting:
                return None
            parameters |= {"expired": expired, "average": max(total / max(messages, 1), 1.0)}
            parameters |= {"saturation": SATURATION, "length": LENGTH}
            term_plan = plan(wanted, frequencies, messages)
            found = await self._found(connection, parameters, term_plan, limit)
        numbers = Matches(found=(), frequencies=tuple(frequencies), messages=messages, terms=total)
        best = nlargest(limit, found, key=Scorer(numbers, len(wanted)))
        return replace(numbers, found=tuple(best))

    async def _found(
        self, connection: Connection, parameters: dict[str, Any], term_plan: Plan, limit: int
    ) -> list[Match]:
        """Return the best matches, and some more. Few terms select candidates; common terms do so only if
        their messages may win."""
        number, needed = 0, term_plan.first_try(limit) if limit else 0
        found: list[rows.Row] = []
        while number < needed:
            number = needed
            values = {"any": term_plan.terms[:number], "terms": term_plan.terms, "weights": term_plan.weights}
            values["limit"] = limit + SPARE
            found = await _fetch(connection, "matching_messages", parameters | values)
            needed = term_plan.needed(found[limit - 1][5] if len(found) >= limit else 0.0)
        place = {term: number for number, term in enumerate(term_plan.terms)}
        places = [place.get(term) for term in parameters["terms"]]
        return [_match(row, places) for row in found]

    async def _catch_up(self) -> None:
        """Index the waiting messages."""
        parameters = {"owner": self._owner, "limit": BATCH}
        while waiting := await self._database.run_for(self._name, ("unindexed_conversations", parameters)):
            for (conversation_id,) in waiting:
                await self._catch_up_with(conversation_id)

    async def _catch_up_with(self, conversation_id: str) -> None:
        named = {"owner": self._owner, "id": conversation_id, "limit": BATCH}
        async with self._database.connection() as connection, connection.transaction():
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


# Compare one owner's vectors on the server, with pgvector.
#
# Vectors are stored as documents, as in every store. Before a query, new documents are unpacked into rows,
# and the server compares all of them: see `vectors.sql`.


VECTOR_BATCH = 50
_decoder = msgspec.msgpack.Decoder(Block)


class VectorSearch:
    """Vector search in one owner's messages."""

    def __init__(self, database: Database, name: str, owner: str) -> None:
        self._database = database
        self._name = name
        self._owner = owner

    async def nearest(
        self, model: str, vector: Sequence[float], around: Sequence[float] | None, owned: dict[str, Any]
    ) -> list[VectorMatch]:
        """See `contracts.VectorSearchable`."""
        check_vector(vector, field="vector", dimension=len(vector))
        if around is not None:
            check_vector(around, field="around", dimension=len(vector))
        kind = f"{KIND_PREFIX}{model}"
        while await self._unpack_some(kind):
            pass
        parameters = {"name": self._name, "kind": kind, "dimension": len(vector), "vector": _text(vector)}
        found = await self._database.run(
            "nearest", owned | parameters | {"around": None if around is None else _text(around)}
        )
        return [_nearby(row) for row in found]

    async def _unpack_some(self, kind: str) -> int:
        """Unpack the vectors of some documents into rows; return the number of documents."""
        named = {"owner": self._owner, "kind": kind}
        async with self._database.connection() as connection, connection.transaction():
            packed = ("packed_vectors", named | {"limit": VECTOR_BATCH})
            found = await execute_for(connection, self._name, packed)
            # A batch contains thousands of vectors: too much work for the event loop.
            steps = await asyncio.to_thread(_steps, named, found) if found else []
            if steps:
                await execute_for(connection, self._name, *steps)
        return len(found)


def _steps(named: dict[str, Any], documents: Iterable[rows.Row]) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("unpack_vectors", named | {"id": conversation_id, "key": key} | _block_values(data))
        for conversation_id, key, data in documents
    ]


def _block_values(data: bytes) -> dict[str, Any]:
    """Return a block for `unpack_vectors`; an unreadable one without vectors."""
    try:
        block = _decoder.decode(data)
        vectors = _vectors(block)
    except (msgspec.MsgspecError, ValueError):
        # Marked as unpacked all the same: otherwise every search would try it again.
        return {"dimension": 0, "micros": [], "sequences": [], "vectors": []}
    # A repeated sequence counts once: the rows have it in their key.
    micros = dict(zip(block.sequences, block.micros, strict=True))
    return {
        "dimension": block.dimension,
        "micros": list(micros.values()),
        "sequences": list(micros),
        "vectors": [vectors[sequence] for sequence in micros],
    }


def _vectors(block: Block) -> dict[int, str]:
    """Return the vectors of a block by sequence."""
    size, number = block.dimension, len(block.sequences)
    if size < 1 or len(block.micros) != number or len(block.matrix) != 2 * size * number:
        raise ValueError("inconsistent block")
    # Half-precision numbers, as `search.vectors` packs them.
    numbers = unpack(f"<{size * number}e", block.matrix)
    if not all(map(isfinite, numbers)):
        raise ValueError("vector with infinite or undefined numbers")
    return {
        sequence: _text(numbers[size * place : size * (place + 1)])
        for place, sequence in enumerate(block.sequences)
    }


def check_vector(vector: Sequence[float], *, field: str, dimension: int) -> None:
    """Raise `InvalidInput` unless this is a vector of this length."""
    if len(vector) != dimension or not dimension or not all(map(isfinite, vector)):
        raise InvalidInput(f"{field} must be {dimension or 1} numbers; got {shown(vector)}", field=field)


def _text(vector: Sequence[float]) -> str:
    return f"[{','.join([repr(float(number)) for number in vector])}]"


def _nearby(row: rows.Row) -> VectorMatch:
    conversation_id, micros, sequence, similarity = row
    return VectorMatch(
        conversation_id=conversation_id, position=Position(micros, sequence), similarity=similarity
    )
