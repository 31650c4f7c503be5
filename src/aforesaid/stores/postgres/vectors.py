"""Compare one owner's vectors on the server, with pgvector.

Vectors are stored as documents, as in every store. Before a query, new documents are unpacked into rows, and
the server compares all of them: see `vectors.sql`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from math import isfinite
from struct import unpack
from typing import TYPE_CHECKING, Any

import msgspec

from aforesaid.contracts import Position, VectorMatch
from aforesaid.errors import InvalidInput, shown
from aforesaid.search.vectors import KIND_PREFIX, Block
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import execute_for

if TYPE_CHECKING:
    from aforesaid.stores.postgres.backend import PostgresBackend

BATCH = 50
_decoder = msgspec.msgpack.Decoder(Block)


class VectorSearch:
    """Vector search in one owner's messages."""

    def __init__(self, backend: "PostgresBackend", name: str, owner: str) -> None:
        self._backend = backend
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
        found = await self._backend.run(
            "nearest", owned | parameters | {"around": None if around is None else _text(around)}
        )
        return [_nearby(row) for row in found]

    async def _unpack_some(self, kind: str) -> int:
        """Unpack the vectors of some documents into rows; return the number of documents."""
        named = {"owner": self._owner, "kind": kind}
        async with self._backend.connection() as connection, connection.transaction():
            packed = ("packed_vectors", named | {"limit": BATCH})
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
