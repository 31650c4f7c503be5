"""Where a window starts, so that its front stays the same for as long as possible. Below: nothing.

A cut that only just makes room moves with every turn, and a provider's prompt cache never hits. So
a cut goes down to a low mark, and then nothing is cut until the window is full again. Who remembers
where the last cut was? Nobody: it is derived from the log. Among the places where the window would
be between the low mark and the limit (the zone), the *roundest* is taken. A start is as round as
the roundest number that it is the first start at or after: one that comes just after 1024 is rounder
than one just after 1040. (Its own number alone will not do: where every question has an odd number
none would be rounder than another.) While the log grows the zone moves on over the numbers; the
choice stays until it leaves the zone or a rounder one comes in. A zone of m numbers holds a multiple
of the largest power of two up to m, so cuts are at most about twice as many as with a memory, and
mostly fewer. Any process, at any time, finds the same place.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from msgspec import Struct


class Limit(Struct, frozen=True, kw_only=True):
    """A limit, and the low mark that a cut goes down to."""

    most: int
    ratio: float = 1.0

    @property
    def low(self) -> float:
        return self.most * self.ratio


class Cut(Struct, frozen=True, kw_only=True):
    """A place to start, and the first one that had a chance: nothing before that could be chosen."""

    start: int
    first_fitting: int


def roundness(before: int, number: int) -> int:
    """How round the roundest number is that is past `before` and not past `number`.

    The highest bit in which the two differ: a multiple of that power of two lies between them.
    """
    return (before ^ number).bit_length()


def find_cut(
    starts: Sequence[int], *, total: Callable[[int], int], limit: Limit, rank: Callable[[int], int]
) -> Cut | None:
    """The start to take, or None when the window is too large from each of them.

    `starts` are in order, and `total` of a later one is never larger. `rank` tells how round each is.
    """
    first = bisect_left(starts, -limit.most, key=lambda start: -total(start))
    if first == len(starts):
        return None
    fitting = starts[first]
    if limit.ratio >= 1 or total(fitting) < limit.low:
        return Cut(start=fitting, first_fitting=fitting)
    end = bisect_right(starts, -limit.low, lo=first, key=lambda start: -total(start))
    chosen = max(starts[first:end], key=lambda start: (rank(start), start))
    return Cut(start=chosen, first_fitting=fitting)
