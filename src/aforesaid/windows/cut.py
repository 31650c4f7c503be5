"""Choose where a window starts, so that its prefix stays the same for as long as possible.

A minimal cut moves with every turn, and a provider's prompt cache never hits. A cut therefore goes down to
a low mark, and nothing is cut again until the window is full. The position of the last cut is not stored;
it is derived from the log. Among the starts that leave the window between the low mark and the limit (the
zone), the *roundest* is chosen.

A start is as round as the roundest number that it is the first start at or after: a start just after 1024
is rounder than one just after 1040. (Its own number alone does not suffice: if every question has an odd
number, all are equally round.) While the log grows, the zone moves; the choice stays until it leaves the
zone or a rounder start enters. A zone of m numbers contains a multiple of the largest power of two up to
m, so there are at most about twice as many cuts as with stored state, and usually fewer. Every process
finds the same start.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from msgspec import Struct


class Limit(Struct, frozen=True, kw_only=True):
    """A limit with the low mark for cuts."""

    maximum: int
    ratio: float = 1.0

    @property
    def low_mark(self) -> float:
        return self.maximum * self.ratio


class Cut(Struct, frozen=True, kw_only=True):
    """A chosen start, and the first start that fits."""

    start: int
    first_fitting: int


def roundness(before: int, number: int) -> int:
    """Return how round the roundest number in (`before`, `number`] is.

    The highest bit in which the two differ: a multiple of that power of two is between them.
    """
    return (before ^ number).bit_length()


def find_cut(
    starts: Sequence[int], *, total: Callable[[int], int], limit: Limit, rank: Callable[[int], int]
) -> Cut | None:
    """Return the start to use, or None when no start fits.

    `starts` are ordered, and `total` never increases along them. `rank` returns the roundness of a start.
    """
    first = bisect_left(starts, -limit.maximum, key=lambda start: -total(start))
    if first == len(starts):
        return None
    fitting = starts[first]
    if limit.ratio >= 1 or total(fitting) < limit.low_mark:
        return Cut(start=fitting, first_fitting=fitting)
    end = bisect_right(starts, -limit.low_mark, lo=first, key=lambda start: -total(start))
    chosen = max(starts[first:end], key=lambda start: (rank(start), start))
    return Cut(start=chosen, first_fitting=fitting)
