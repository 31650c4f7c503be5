"""Vectors in one matrix, compared with a question: numpy and nothing else. Below: nothing. Above: `vectors`.

Similarity is the cosine around the middle of all vectors: what all of somebody's messages have in common says
nothing about one of them. Every vector is compared, exactly. In a history of tens of thousands of messages a
first pass compares them along the directions in which they differ most, and the exact pass takes those that
come out near, and whatever else is asked for: memory is what costs time there, not arithmetic.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

LARGE = 50_000
"""Vectors from which on there is a first pass."""
DIRECTIONS = 96
"""How many directions the first pass looks along."""
CLOSER = 2_000
"""How many vectors it leaves for the exact one."""

_SMALL = 5_000
_MOVES_AT = 0.02
"""The share of new vectors at which the middle is worked out anew, in a history that is not small."""
_SAMPLE = 4_096
_META = 5


class Compared(Struct, frozen=True):
    """How near everything is to one vector."""

    best: list[tuple[int, float]]
    """Rows and their similarities: the nearest, in no order."""
    lowest: float
    highest: float
    rows: int
    similarities: Callable[[Sequence[int]], Sequence[float]]
    """Of some rows."""


class VectorMatrix:
    """Rows of float32, each with five integers that say what it belongs to."""

    def __init__(self, dimension: int) -> None:
        import numpy

        self._np = numpy
        self._dimension = dimension
        self._rows = numpy.zeros((0, dimension), numpy.float32)
        self._meta = numpy.zeros((0, _META), numpy.int64)
        self._gone = numpy.zeros(0, bool)
        self.count = 0
        self.gone = 0
        self._middle: Any = None
        self._middle_of = 0
        self._lengths: Any = None
        self._directions: Any = None
        self._coarse: Any = None

    @property
    def alive(self) -> int:
        return self.count - self.gone

    def append(self, halves: bytes, chosen: Sequence[int], meta: Sequence[Sequence[int]]) -> range:
        """Add the chosen rows of a block of float16; returns which rows they are now."""
        np = self._np
        block = np.frombuffer(halves, np.float16).reshape(-1, self._dimension)
        start, end = self.count, self.count + len(chosen)
        self._grow(end)
        self._rows[start:end] = block[list(chosen)]
        self._meta[start:end] = meta
        self.count = end
        return range(start, end)

    def _grow(self, needed: int) -> None:
        np = self._np
        if needed <= len(self._rows):
            return
        size = max(256, needed, len(self._rows) * 3 // 2)
        for name in ("_rows", "_meta", "_gone"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: self.count] = old[: self.count]
            setattr(self, name, new)

    def remove(self, rows: Sequence[int]) -> None:
        self._rows[list(rows)] = 0
        self._gone[list(rows)] = True
        self.gone += len(rows)

    def meta(self, row: int) -> list[int]:
        return [int(value) for value in self._meta[row]]

    # Comparing

    def compare(self, vector: Any, *, nearest: int) -> Compared:
        """Every row with the vector. There must be one."""
        self._find_middle()
        asked = vector - self._middle
        asked /= float(self._np.linalg.norm(asked)) or 1.0
        compare = self._compare_all if self.count < LARGE else self._compare_twice
        return compare(asked, nearest)

    def _compare_all(self, asked: Any, nearest: int) -> Compared:
        np = self._np
        cosines = self._cosines(asked)(slice(0, self.count))
        counted = cosines[~self._gone[: self.count]] if self.gone else cosines
        best = self._top(cosines, nearest)
        return Compared(
            [(int(row), float(cosines[row])) for row in best],
            float(np.min(counted)),
            float(np.max(counted)),
            self.count,
            lambda rows: cosines[list(rows)].tolist() if rows else [],
        )

    def _compare_twice(self, asked: Any, nearest: int) -> Compared:
        self._look_along()
        rough = self._np.vecdot(self._coarse[: self.count], asked @ self._directions)
        closer = self._top(rough, CLOSER)
        exact = self._cosines(asked)
        cosines = exact(closer)
        best = self._np.argsort(-cosines)[:nearest]
        return Compared(
            [(int(closer[at]), float(cosines[at])) for at in best],
            float(rough.min()),
            float(cosines.max()),
            self.count,
            lambda rows: exact(list(rows)).tolist() if rows else [],
        )

    def _cosines(self, asked: Any) -> Callable[[Any], Any]:
        """The cosines of rows with a vector that was seen from the middle as it is now."""
        # Row by row, on one thread: a product of the whole would wait for others on a busy machine.
        dot, held, lengths = self._np.vecdot, self._rows, self._lengths
        offset = float(asked @ self._middle)
        return lambda rows: (dot(held[rows], asked) - offset) / lengths[rows]

    def _top(self, similarities: Any, most: int) -> Any:
        """The rows of the highest, without those that are gone."""
        np = self._np
        if self.gone:
            similarities = np.where(self._gone[: self.count], -np.inf, similarities)
        if most >= self.count:
            best = np.arange(self.count)
        else:
            best = np.argpartition(similarities, self.count - most)[self.count - most :]
        return best[~self._gone[best]]

    # The middle, and the directions in which vectors differ

    def _find_middle(self) -> None:
        np, moved = self._np, abs(self.alive - self._middle_of)
        if self._middle is None or (moved and (self.alive < _SMALL or moved > self.alive * _MOVES_AT)):
            total = self._rows[: self.count].sum(axis=0, dtype=np.float64)
            self._middle = (total / self.alive).astype(np.float32)
            self._middle_of = self.alive
            self._lengths = self._coarse = None
        self._lengths = self._extended(self._lengths, self._measured)

    def _extended(self, known: Any, work_out: Callable[[Any], Any]) -> Any:
        """What is known of the rows, with what is new worked out."""
        start = 0 if known is None else len(known)
        if start == self.count:
            return known
        new = work_out(self._rows[start : self.count])
        return new if known is None else self._np.concatenate((known, new))

    def _measured(self, rows: Any) -> Any:
        """How long each vector is, seen from the middle."""
        np = self._np
        squares = 1 - 2 * (rows @ self._middle) + float(self._middle @ self._middle)
        return np.sqrt(np.maximum(squares, 1e-6))

    def _look_along(self) -> None:
        np = self._np
        if self._coarse is None:
            step = max(1, self.count // _SAMPLE)
            sample = self._rows[: self.count : step] - self._middle
            _, directions = np.linalg.eigh(sample.T @ sample)
            self._directions = np.ascontiguousarray(directions[:, -DIRECTIONS:])
        self._coarse = self._extended(self._coarse, self._flattened)

    def _flattened(self, rows: Any) -> Any:
        """The rows along the directions, each of length 1 before."""
        shift = self._middle @ self._directions
        return (rows @ self._directions - shift) / self._measured(rows)[:, None]

    # Groups

    def compare_groups(self, groups: Sequence[Sequence[int]], one: int) -> list[float]:
        """How near the middle of each group of rows is to that of one of them."""
        np = self._np
        self._find_middle()
        middles = np.stack([self._rows[list(rows)].mean(axis=0) for rows in groups]) - self._middle
        middles /= np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-6)
        return [float(cosine) for cosine in middles @ middles[one]]
