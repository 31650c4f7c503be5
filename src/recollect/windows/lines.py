"""Groups in a line, measured: what a window costs from any place on. Below: grouping. Above: `choosing`.

What a window holds from a start on is all that follows, and a little of what came before: the
groups that stay when others go (important ones, preserved system messages) within the look-back,
and the question of the turn that the start stands in. Moving a start on never makes that more, so
the first start that fits can be found by halving.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec import Struct

from recollect.windows.grouping import Group

Measure = Callable[["Weighed"], int]


class Weighed(Struct, frozen=True):
    """A group, and what its messages cost in tokens."""

    group: Group
    tokens: int


class Line:
    """Groups in order, and where the turns start among them."""

    def __init__(self, groups: Sequence[Weighed], *, look_back: int) -> None:
        self.groups = tuple(groups)
        self._places = [item.group.place for item in groups]
        self._look_back = look_back
        self.turn_starts = [at for at, item in enumerate(groups) if item.group.starts_turn]
        spoken = [at for at, item in enumerate(groups) if item.group.kind != "system"]
        self.has_words = bool(spoken)
        """Whether there is anything but system messages."""
        self.newest = spoken[-1] if spoken else len(groups) - 1
        """The last group that is not a system message."""

    @property
    def newest_turn(self) -> int:
        """Where the newest turn starts: its question, or the front when nobody asked anything."""
        return self.turn_starts[-1] if self.turn_starts else 0

    @property
    def in_loop(self) -> bool:
        """Whether a tool loop is under way: the newest step called tools, and no answer followed."""
        return bool(self.groups) and self.groups[self.newest].group.has_calls

    def question_of(self, start: int) -> int | None:
        """The question of the turn that `start` stands in; None where it starts a turn itself."""
        before = bisect_left(self.turn_starts, start) - 1
        if self.groups[start].group.starts_turn or before < 0:
            return None
        asked = self.turn_starts[before]
        return asked if self.groups[asked].group.turn == self.groups[start].group.turn else None

    def loop_question_of(self, start: int) -> int | None:
        """The same for a tool loop under way; None when it is at rest."""
        return self.question_of(start) if self.in_loop and start > self.newest_turn else None

    def back(self, start: int) -> int:
        """The first group within the look-back of `start`."""
        return bisect_left(self._places, self._places[start] - self._look_back)

    def place(self, at: int) -> int:
        return self._places[at]

    def total(
        self, measure: Measure, *, stays: Callable[[Group], bool], question: Callable[[int], int | None]
    ) -> Callable[[int], int]:
        """A function from a start to what the window from there on measures."""
        weights = [measure(item) for item in self.groups]
        kept = [weight if stays(item.group) else 0 for weight, item in zip(weights, self.groups, strict=True)]
        up_to = [0, *accumulate(weights)]
        kept_up_to = [0, *accumulate(kept)]

        def total(start: int) -> int:
            back = self.back(start)
            asked = question(start)
            counted = asked is None or (asked >= back and stays(self.groups[asked].group))
            extra = 0 if counted or asked is None else weights[asked]
            return up_to[-1] - up_to[start] + kept_up_to[start] - kept_up_to[back] + extra

        return total
