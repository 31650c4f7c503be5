"""Groups in a line, measured: what a window costs from any place on. Below: grouping. Above: `choosing`.

What a window holds from a start on is all that follows, and a little of what came before: the
groups that stay when others go (important ones, preserved system messages) within the look-back,
and the question of the turn that the start stands in. Moving a start on never makes that more, so
the first start that fits can be found by halving.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from aforesaid.windows.groups import EPHEMERAL, IMPORTANT, Group, Kind

_MARKS = frozenset((IMPORTANT, EPHEMERAL))


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
        kinds = [item.group.kind for item in groups]
        self.turn_starts = [at for at, kind in enumerate(kinds) if kind == "user"]
        self.system = [at for at, kind in enumerate(kinds) if kind == "system"]
        tagged = [at for at, item in enumerate(groups) if not item.group.tags.isdisjoint(_MARKS)]
        self.important = [at for at in tagged if groups[at].group.important]
        self.ephemeral = [at for at in tagged if groups[at].group.ephemeral]
        self.has_words = len(self.system) < len(kinds)
        """Whether there is anything but system messages."""
        self.newest = _last_spoken(kinds)
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

    def measured(self, weights: Sequence[int], *, staying: Sequence[int]) -> "Measured":
        """What windows measure when each group weighs so much, and these stay when others go."""
        return Measured(self, weights, staying)


class Measured:
    """What a window measures, from any start on."""

    def __init__(self, line: Line, weights: Sequence[int], staying: Sequence[int]) -> None:
        kept = [0] * len(weights)
        for at in staying:
            kept[at] = weights[at]
        self._line = line
        self._weights = weights
        self._kept = kept
        self._up_to = [0, *accumulate(weights)]
        self._kept_up_to = [0, *accumulate(kept)]

    def total(self, start: int, question: int | None) -> int:
        """The window from there on, with this question of the turn that it starts in."""
        back = self._line.back(start)
        before = self._kept_up_to[start] - self._kept_up_to[back]
        if question is not None and not (question >= back and self._kept[question]):
            before += self._weights[question]
        return self._up_to[-1] - self._up_to[start] + before


def _last_spoken(kinds: Sequence[Kind]) -> int:
    return next((at for at in reversed(range(len(kinds))) if kinds[at] != "system"), len(kinds) - 1)
