"""Vectors in one matrix, compared with numpy.

Similarity is the cosine relative to the centroid of all vectors, because the common part of an owner's
messages does not distinguish them. Every vector is compared, exactly, in one pass: a hundred thousand vectors
of 512 numbers take about 8 ms, limited by memory bandwidth.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

_SMALL = 5_000
# Share of new vectors at which the centroid of a large matrix is recomputed.
_RECENTER_SHARE = 0.02
_META = 6
_FLAGS = 5
# Rows per group in the search for the best rows.
_GROUP_ROWS = 64


class Compared(Struct, frozen=True):
    """The similarity of every row to one vector."""

    best: list[tuple[int, float]]
    """The nearest rows with their similarities, unordered."""
    lowest: float
    highest: float
    rows: int
    similarities: Callable[[Sequence[int]], Sequence[float]]
    """Return the similarities of some rows."""
    cosines: Callable[[Sequence[int]], Sequence[float]]
    """Return the plain cosines of some rows, not relative to the centroid."""
    likeness: Callable[[Sequence[int], Sequence[int]], Sequence[float]]
    """Return the similarities of some rows to the mean of the first ones."""
    flags: Callable[[Sequence[int]], Sequence[int]]
    """Return the flags of some rows."""


class VectorMatrix:
    """Rows of float32, each with six integers that identify it."""

    def __init__(self, dimension: int) -> None:
        import numpy

        self._np = numpy
        self._dimension = dimension
        self._rows = numpy.zeros((0, dimension), numpy.float32)
        self._meta = numpy.zeros((0, _META), numpy.int64)
        self._removed = numpy.zeros(0, bool)
        self.count = 0
        self.removed = 0
        self._centroid: Any = None
        self._centroid_rows = 0
        self._lengths: Any = None

    @property
    def alive(self) -> int:
        return self.count - self.removed

    def append(self, halves: bytes, chosen: Sequence[int], meta: Sequence[Sequence[int]]) -> range:
        """Add the chosen rows of a float16 block, in ascending order; return their row numbers."""
        np = self._np
        block = np.frombuffer(halves, np.float16).reshape(-1, self._dimension)
        start, end = self.count, self.count + len(chosen)
        if end > len(self._rows):
            # Geometric growth: amortized constant time per row.
            self.reserve(max(256, end, len(self._rows) * 3 // 2))
        self._rows[start:end] = block if len(chosen) == len(block) else block[list(chosen)]
        self._meta[start:end] = meta
        self.count = end
        return range(start, end)

    def reserve(self, size: int) -> None:
        """Allocate space for this many rows in total: one allocation is cheaper than gradual growth."""
        np = self._np
        if size <= len(self._rows):
            return
        for name in ("_rows", "_meta", "_removed"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: self.count] = old[: self.count]
            setattr(self, name, new)

    def remove(self, rows: Sequence[int]) -> None:
        # Zero rows do not move the centroid; the flag keeps them out of results.
        self._rows[list(rows)] = 0
        self._removed[list(rows)] = True
        self.removed += len(rows)

    def meta(self, row: int) -> list[int]:
        return [int(value) for value in self._meta[row]]

    # Comparing

    def compare(self, vector: Any, *, nearest: int) -> Compared:
        """Compare every row with the vector. The matrix must not be empty."""
        np = self._np
        self._update_centroid()
        direction = vector - self._centroid
        direction /= float(np.linalg.norm(direction)) or 1.0
        cosines = self._cosines(direction)
        counted = cosines[~self._removed[: self.count]] if self.removed else cosines
        return Compared(
            [(int(row), float(cosines[row])) for row in self._top(cosines, nearest)],
            float(np.min(counted)),
            float(np.max(counted)),
            self.count,
            lambda rows: cosines[list(rows)].tolist() if rows else [],
            lambda rows: (self._rows[list(rows)] @ vector).tolist() if rows else [],
            self._likeness,
            lambda rows: self._meta[list(rows), _FLAGS].tolist() if rows else [],
        )

    def _likeness(self, best: Sequence[int], rows: Sequence[int]) -> Sequence[float]:
        np = self._np
        if not rows:
            return []
        first, others = (self._centered(chosen) for chosen in (best, rows))
        centre = first.mean(axis=0)
        return list((others @ (centre / (float(np.linalg.norm(centre)) or 1.0))).tolist())

    def _centered(self, rows: Sequence[int]) -> Any:
        """Return these rows relative to the centroid, each of unit length."""
        return (self._rows[list(rows)] - self._centroid) / self._lengths[list(rows), None]

    def _cosines(self, direction: Any) -> Any:
        """Return the cosine of every row with a direction from the centroid."""
        # `vecdot` works row by row on one thread. A matrix product takes twice as long, and its threads
        # wait for processors on a busy machine.
        products = self._np.vecdot(self._rows[: self.count], direction)
        return (products - float(direction @ self._centroid)) / self._lengths

    def _top(self, similarities: Any, count_wanted: int) -> Any:
        """Return the rows with the highest similarities, without removed ones."""
        np = self._np
        if self.removed:
            similarities = np.where(self._removed[: self.count], -np.inf, similarities)
        if count_wanted >= self.count:
            best = np.arange(self.count)
        else:
            likely = np.flatnonzero(similarities >= self._threshold(similarities, count_wanted))
            place = len(likely) - count_wanted
            best = likely[np.argpartition(similarities[likely], place)[place:]]
        return best[~self._removed[best]]

    def _threshold(self, similarities: Any, count_wanted: int) -> float:
        """Return a similarity that at least this many rows reach, and few more.

        Each of N disjoint groups has a best row. So at least K rows reach the K-th highest of these group
        maxima. Selecting the best among all rows would take ten times as long.
        """
        np, groups = self._np, self.count // _GROUP_ROWS
        if groups < count_wanted:
            return -float("inf")
        best_of_groups = similarities[: groups * _GROUP_ROWS].reshape(_GROUP_ROWS, groups).max(axis=0)
        return float(np.partition(best_of_groups, groups - count_wanted)[groups - count_wanted])

    # The centroid, and the distances to it

    def _update_centroid(self) -> None:
        np, moved = self._np, abs(self.alive - self._centroid_rows)
        if self._centroid is None or (
            moved and (self.alive < _SMALL or moved > self.alive * _RECENTER_SHARE)
        ):
            total = self._rows[: self.count].sum(axis=0, dtype=np.float64)
            self._centroid = (total / self.alive).astype(np.float32)
            self._centroid_rows = self.alive
            self._lengths = None
        self._measure_new_rows()

    def _measure_new_rows(self) -> None:
        measured = 0 if self._lengths is None else len(self._lengths)
        if measured < self.count:
            new = self._distances(self._rows[measured : self.count])
            self._lengths = self._np.concatenate((self._lengths, new)) if measured else new

    def _distances(self, rows: Any) -> Any:
        """Return each vector's length relative to the centroid."""
        np = self._np
        squares = 1 - 2 * (rows @ self._centroid) + float(self._centroid @ self._centroid)
        return np.sqrt(np.maximum(squares, 1e-6))

    # Groups

    def compare_groups(self, groups: Sequence[Sequence[int]], one: int) -> list[float]:
        """Return the similarity of each group's centroid to that of one group."""
        np = self._np
        self._update_centroid()
        centroids = np.stack([self._rows[list(rows)].mean(axis=0) for rows in groups]) - self._centroid
        centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-6)
        return [float(cosine) for cosine in centroids @ centroids[one]]
