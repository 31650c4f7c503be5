"""Vectors in one matrix, compared with a question: numpy and nothing else. Below: nothing. Above: `vectors`.

Similarity is the cosine around the middle of all vectors: what all of somebody's messages have in common says
nothing about one of them. Every vector is compared, exactly, in one pass: a hundred thousand of 512 numbers
take about 8 ms, which is as fast as memory is read.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

_SMALL = 5_000
_MOVES_AT = 0.02
"""The share of new vectors at which the middle is worked out anew, in a history that is not small."""
_META = 5
_GROUP = 64
"""Rows of which one is taken for all when the best are looked for."""


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

    @property
    def alive(self) -> int:
        return self.count - self.gone

    def append(self, halves: bytes, chosen: Sequence[int], meta: Sequence[Sequence[int]]) -> range:
        """Add the chosen rows of a block of float16, in rising order; returns which rows they are now."""
        np = self._np
        block = np.frombuffer(halves, np.float16).reshape(-1, self._dimension)
        start, end = self.count, self.count + len(chosen)
        if end > len(self._rows):
            self.reserve(max(256, end, len(self._rows) * 3 // 2))
        self._rows[start:end] = block if len(chosen) == len(block) else block[list(chosen)]
        self._meta[start:end] = meta
        self.count = end
        return range(start, end)

    def reserve(self, size: int) -> None:
        """Make room for so many rows in all: cheaper at once than bit by bit."""
        np = self._np
        if size <= len(self._rows):
            return
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
        np = self._np
        self._find_middle()
        asked = vector - self._middle
        asked /= float(np.linalg.norm(asked)) or 1.0
        cosines = self._cosines(asked)
        counted = cosines[~self._gone[: self.count]] if self.gone else cosines
        return Compared(
            [(int(row), float(cosines[row])) for row in self._top(cosines, nearest)],
            float(np.min(counted)),
            float(np.max(counted)),
            self.count,
            lambda rows: cosines[list(rows)].tolist() if rows else [],
        )

    def _cosines(self, asked: Any) -> Any:
        """The cosine of every row with a vector that was seen from the middle."""
        # Row by row, on one thread: a product of the whole takes twice as long, and on a busy machine its
        # threads wait for others.
        products = self._np.vecdot(self._rows[: self.count], asked)
        return (products - float(asked @ self._middle)) / self._lengths

    def _top(self, similarities: Any, most: int) -> Any:
        """The rows of the highest, without those that are gone."""
        np = self._np
        if self.gone:
            similarities = np.where(self._gone[: self.count], -np.inf, similarities)
        if most >= self.count:
            best = np.arange(self.count)
        else:
            likely = np.flatnonzero(similarities >= self._reached(similarities, most))
            place = len(likely) - most
            best = likely[np.argpartition(similarities[likely], place)[place:]]
        return best[~self._gone[best]]

    def _reached(self, similarities: Any, most: int) -> float:
        """Something that so many reach, and few more: to look for the best among all takes ten times as long.

        Of groups that have nothing in common each has a best one, so as many reach what the best of so many
        groups do.
        """
        np, groups = self._np, self.count // _GROUP
        if groups < most:
            return -float("inf")
        best_of_groups = similarities[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        return float(np.partition(best_of_groups, groups - most)[groups - most])

    # The middle, and how far from it vectors are

    def _find_middle(self) -> None:
        np, moved = self._np, abs(self.alive - self._middle_of)
        if self._middle is None or (moved and (self.alive < _SMALL or moved > self.alive * _MOVES_AT)):
            total = self._rows[: self.count].sum(axis=0, dtype=np.float64)
            self._middle = (total / self.alive).astype(np.float32)
            self._middle_of = self.alive
            self._lengths = None
        self._measure_new()

    def _measure_new(self) -> None:
        known = 0 if self._lengths is None else len(self._lengths)
        if known < self.count:
            new = self._measured(self._rows[known : self.count])
            self._lengths = self._np.concatenate((self._lengths, new)) if known else new

    def _measured(self, rows: Any) -> Any:
        """How long each vector is, seen from the middle."""
        np = self._np
        squares = 1 - 2 * (rows @ self._middle) + float(self._middle @ self._middle)
        return np.sqrt(np.maximum(squares, 1e-6))

    # Groups

    def compare_groups(self, groups: Sequence[Sequence[int]], one: int) -> list[float]:
        """How near the middle of each group of rows is to that of one of them."""
        np = self._np
        self._find_middle()
        middles = np.stack([self._rows[list(rows)].mean(axis=0) for rows in groups]) - self._middle
        middles /= np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-6)
        return [float(cosine) for cosine in middles @ middles[one]]
