"""Measure windows, and choose where one starts so that its prefix stays the same for as long as possible.

A window contains everything after its start. From before the start it contains preserved groups (important
ones, system messages) within the look-back, and the question of the turn that the start is in. A later
start never makes a window larger, so a binary search finds the first start that fits.

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
from itertools import accumulate

from msgspec import Struct

from aforesaid.windows.groups import EPHEMERAL, IMPORTANT, Group, Kind


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


_MARKS = frozenset((IMPORTANT, EPHEMERAL))


class SizedGroup(Struct, frozen=True):
    """A group with its tokens."""

    group: Group
    tokens: int


class OrderedGroups:
    """Groups in order, with the starts of turns."""

    def __init__(self, groups: Sequence[SizedGroup], *, look_back: int) -> None:
        self.groups = tuple(groups)
        self._indexes = [item.group.index for item in groups]
        self._look_back = look_back
        kinds = [item.group.kind for item in groups]
        self.turn_starts = [at for at, kind in enumerate(kinds) if kind == "user"]
        self.system = [at for at, kind in enumerate(kinds) if kind == "system"]
        tagged = [at for at, item in enumerate(groups) if not item.group.tags.isdisjoint(_MARKS)]
        self.important = [at for at in tagged if groups[at].group.important]
        self.ephemeral = [at for at in tagged if groups[at].group.ephemeral]
        self.has_words = len(self.system) < len(kinds)
        """Whether any group is not a system message."""
        self.newest = _last_dialogue(kinds)
        """The last group that is not a system message."""

    @property
    def newest_turn(self) -> int:
        """The index of the newest turn's question, or 0 without questions."""
        return self.turn_starts[-1] if self.turn_starts else 0

    @property
    def in_loop(self) -> bool:
        """Whether a tool loop is in progress: the newest step has calls and no answer followed."""
        return bool(self.groups) and self.groups[self.newest].group.has_calls

    def question_of(self, start: int) -> int | None:
        """Return the question of the turn that `start` is in, or None if `start` begins a turn."""
        before = bisect_left(self.turn_starts, start) - 1
        if self.groups[start].group.starts_turn or before < 0:
            return None
        question = self.turn_starts[before]
        return question if self.groups[question].group.turn == self.groups[start].group.turn else None

    def loop_question_of(self, start: int) -> int | None:
        """Return the question of a tool loop in progress, or None."""
        return self.question_of(start) if self.in_loop and start > self.newest_turn else None

    def back(self, start: int) -> int:
        """Return the first group within the look-back of `start`."""
        return bisect_left(self._indexes, self._indexes[start] - self._look_back)

    def index(self, at: int) -> int:
        return self._indexes[at]

    def totals(self, weights: Sequence[int], *, preserved: Sequence[int]) -> "Totals":
        """Return the totals of windows for these sizes, with groups that are preserved across a cut."""
        return Totals(self, weights, preserved)


class Totals:
    """The size of a window from any start."""

    def __init__(self, ordered: OrderedGroups, weights: Sequence[int], preserved: Sequence[int]) -> None:
        preserved_sizes = [0] * len(weights)
        for at in preserved:
            preserved_sizes[at] = weights[at]
        self._ordered = ordered
        self._weights = weights
        self._preserved_sizes = preserved_sizes
        self._up_to = [0, *accumulate(weights)]
        self._preserved_up_to = [0, *accumulate(preserved_sizes)]

    def total(self, start: int, question: int | None) -> int:
        """Return the size of the window from `start`, including this question."""
        back = self._ordered.back(start)
        before = self._preserved_up_to[start] - self._preserved_up_to[back]
        if question is not None and not (question >= back and self._preserved_sizes[question]):
            # The look-back has counted a preserved question already.
            before += self._weights[question]
        return self._up_to[-1] - self._up_to[start] + before


def _last_dialogue(kinds: Sequence[Kind]) -> int:
    return next((at for at in reversed(range(len(kinds))) if kinds[at] != "system"), len(kinds) - 1)
