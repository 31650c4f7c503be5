"""Vectors in one matrix, compared with numpy.

Similarity is the cosine relative to the centroid of all vectors, because the common part of an owner's
messages does not distinguish them. Up to 20,000 vectors are all compared. Of more, those with the most signs
in common with the question are compared (see `signs`): of a hundred thousand vectors of 512 numbers, all take
about 6 ms of processor time, limited by memory bandwidth, and these take 2 ms.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from aforesaid.search.signs import Signs

_SMALL = 5_000
# Rows up to which every one is compared.
ALL_COMPARED = 20_000
# Of more rows, how many of the nearest and of the farthest by signs are compared: at least so many, and this
# share of them.
_NEAR = 4_000
_NEAR_SHARE = 0.02
_FAR = 500
# Before signs are relied on: rows for which they are tried, the nearest rows that they should find, and the
# least share of these.
_TRIED = 8
_TRIED_NEAREST = 100
_LEAST_FOUND = 0.97
# Share of the rows above which comparing all is faster than picking some.
_PICKED_SHARE = 0.2
# Share of new vectors at which the centroid of a large matrix is recomputed.
_RECENTER_SHARE = 0.02
_META = 6
_FLAGS = 5


class Direction(NamedTuple):
    """A question, relative to the centroid."""

    unit: Any
    offset: float
    """Its product with the centroid."""


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
        self._signs: Signs | None = None
        self._signs_tried_with = 0

    @property
    def alive(self) -> int:
        return self.count - self.removed

    @property
    def compares_all(self) -> bool:
        """Whether every row was compared with the last vector."""
        return self._signs is None

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
        """Compare the rows with the vector. The matrix must not be empty."""
        np = self._np
        self._update_centroid()
        unit = vector - self._centroid
        unit /= float(np.linalg.norm(unit)) or 1.0
        direction = Direction(unit, float(unit @ self._centroid))
        rows, cosines = self._examined(direction, nearest)
        best = np.argpartition(cosines, -nearest)[-nearest:] if len(rows) > nearest else slice(None)
        return Compared(
            list(zip(rows[best].tolist(), cosines[best].tolist(), strict=True)),
            float(cosines.min()),
            float(cosines.max()),
            self.count,
            self._picking(direction, rows, cosines),
            lambda rows: (self._rows[list(rows)] @ vector).tolist() if rows else [],
            self._likeness,
            lambda rows: self._meta[list(rows), _FLAGS].tolist() if rows else [],
        )

    def _examined(self, direction: Direction, nearest: int) -> tuple[Any, Any]:
        """Return the rows among which are the nearest and the farthest, without removed ones, and their
        cosines.
        """
        np = self._np
        if self._signs is None:
            rows = np.flatnonzero(~self._removed[: self.count])
            cosines = self._cosines(direction)
            return rows, cosines[rows] if self.removed else cosines
        rows = self._likely(self._signs, direction, max(nearest, self._near))
        return rows, self._cosines(direction, rows)

    def _likely(self, signs: Signs, direction: Direction, near: int) -> Any:
        """Return at least so many rows with the most signs in common with the direction, and some with the
        fewest.
        """
        np = self._np
        differences = signs.differences(direction.unit)
        if self.removed:
            differences[self._removed[: self.count]] = self._dimension + 1
        # How many rows differ in at most so many signs.
        totals = np.cumsum(np.bincount(differences, minlength=self._dimension + 1)[: self._dimension + 1])
        most = np.searchsorted(totals, min(near, self.alive))
        least = np.searchsorted(totals, max(self.alive - _FAR, 1))
        chosen = differences <= most
        chosen |= (differences >= least) & (differences <= self._dimension)
        return np.flatnonzero(chosen)

    def _picking(
        self, direction: Direction, examined: Any, known: Any
    ) -> Callable[[Sequence[int]], Sequence[float]]:
        """Return a function that returns the cosines of some rows."""
        if len(examined) == self.count:
            return lambda rows: known[list(rows)].tolist() if rows else []

        def picked(rows: Sequence[int]) -> Sequence[float]:
            if len(rows) > self.count * _PICKED_SHARE:
                return list(self._cosines(direction)[list(rows)].tolist())
            return list(self._cosines(direction, list(rows)).tolist()) if rows else []

        return picked

    def _likeness(self, best: Sequence[int], rows: Sequence[int]) -> Sequence[float]:
        np = self._np
        if not rows:
            return []
        first = (self._rows[list(best)] - self._centroid) / self._lengths[list(best), None]
        centre = first.mean(axis=0)
        centre /= float(np.linalg.norm(centre)) or 1.0
        return list(self._cosines(Direction(centre, float(centre @ self._centroid)), list(rows)).tolist())

    def _cosines(self, direction: Direction, rows: Any = None) -> Any:
        """Return the cosine of some rows, or of all, with a direction from the centroid."""
        # `vecdot` works row by row on one thread. A matrix product takes twice as long, and its threads
        # wait for processors on a busy machine.
        if rows is None:
            products = self._np.vecdot(self._rows[: self.count], direction.unit)
            return (products - direction.offset) / self._lengths[: self.count]
        products = self._np.vecdot(self._rows[rows], direction.unit)
        return (products - direction.offset) / self._lengths[rows]

    # The centroid, and the distances to it

    def _update_centroid(self) -> None:
        np, moved = self._np, abs(self.alive - self._centroid_rows)
        lengths = self._lengths
        if self._centroid is None or (
            moved and (self.alive < _SMALL or moved > self.alive * _RECENTER_SHARE)
        ):
            total = self._rows[: self.count].sum(axis=0, dtype=np.float64)
            self._centroid = (total / self.alive).astype(np.float32)
            self._centroid_rows = self.alive
            lengths = None
        measured = 0 if lengths is None else len(lengths)
        if measured < self.count:
            new = self._distances(self._rows[measured : self.count])
            lengths = np.concatenate((lengths, new)) if measured else new
        self._lengths = lengths
        self._take_new_signs()

    def _take_new_signs(self) -> None:
        # The centre of the signs may lag behind the centroid: they only preselect.
        if self.count > max(ALL_COMPARED, 2 * self._signs_tried_with):
            self._signs_tried_with = self.count
            signs = Signs(self._centroid, self._rows[: self.count])
            # They do not if the encoder's numbers differ much in size.
            self._signs = signs if self._find_the_nearest(signs) else None
        elif self._signs is not None and self._signs.count < self.count:
            self._signs.add(self._rows[self._signs.count : self.count])

    def _find_the_nearest(self, signs: Signs) -> bool:
        """Return whether those with the most signs in common with some rows include the nearest."""
        np, found = self._np, 0
        tried = np.flatnonzero(~self._removed[: self.count])[:: max(1, self.alive // _TRIED)][:_TRIED]
        for row in tried:
            unit = (self._rows[row] - self._centroid) / self._lengths[row]
            direction = Direction(unit, float(unit @ self._centroid))
            cosines = self._cosines(direction)
            nearest = np.argpartition(cosines, -_TRIED_NEAREST)[-_TRIED_NEAREST:]
            found += len(np.intersect1d(nearest, self._likely(signs, direction, self._near)))
        return bool(found >= _LEAST_FOUND * len(tried) * _TRIED_NEAREST)

    @property
    def _near(self) -> int:
        return max(_NEAR, int(self.count * _NEAR_SHARE))

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
