"""Apply a policy to groups: measure them, and decide which of them a window contains."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from aforesaid.model.contexts import Reason
from aforesaid.windows.groups import EPHEMERAL, IMPORTANT, Group, Kind
from aforesaid.windows.policies import WindowPolicy

# Measure windows, and choose where one starts so that its prefix stays the same for as long as possible.
#
# A window contains everything after its start. From before the start it contains preserved groups
# (important ones, system messages) within the look-back, and the question of the turn that the start is in.
# A later start never makes a window larger, so a binary search finds the first start that fits.
#
# A minimal cut moves with every turn, and a provider's prompt cache never hits. A cut therefore goes down
# to a low mark, and nothing is cut again until the window is full. The position of the last cut is not
# stored; it is derived from the log. Among the starts that leave the window between the low mark and the
# limit (the zone), the *roundest* is chosen.
#
# A start is as round as the roundest number that it is the first start at or after: a start just after 1024
# is rounder than one just after 1040. (Its own number alone does not suffice: if every question has an odd
# number, all are equally round.) While the log grows, the zone moves; the choice stays until it leaves the
# zone or a rounder start enters. A zone of m numbers contains a multiple of the largest power of two up to
# m, so there are at most about twice as many cuts as with stored state, and usually fewer. Every process
# finds the same start.


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
        marked = [
            at
            for at, item in enumerate(groups)
            if item.group.summarizes or not item.group.tags.isdisjoint(_MARKS)
        ]
        self.important = [at for at in marked if groups[at].group.important]
        self.ephemeral = [at for at in marked if groups[at].group.ephemeral]
        # Whether any group is not a system message.
        self.has_words = len(self.system) < len(kinds)
        # The last group that is not a system message.
        self.newest = _last_dialogue(kinds)

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


# Apply a policy to groups: decide which groups a window contains.
#
# Three steps move the start of the window forward: turns, messages, tokens. Each applies only if its limit
# is exceeded. Ephemeral groups are removed before other groups, all at once, except the newest and the
# question of a tool loop in progress. Important groups are removed last.
#
# A token cut starts a window at a turn, because providers require a request to begin with a question. If
# that leaves the window less than half full (one very long turn), the window starts inside a turn, with the
# turn's question first and the middle left out.


# A cut at a turn must leave this share of the budget in use; otherwise the cut is inside a turn.
_MIN_FILL = 0.5


class Choice(Struct, frozen=True, kw_only=True):
    """The groups of a window, the others with reasons, and whether older messages could change the result."""

    included: tuple[SizedGroup, ...]
    left_out: dict[int, Reason]
    """The reason for each group that is left out, by index."""
    is_final: bool
    """Whether older entries cannot change the result."""
    slides: bool
    """Whether the window moves with every turn."""
    drops_ephemeral: bool
    """Whether ephemeral groups are left out, except the newest."""
    unsettled: int | None = None
    """The index of the first group that may come or go without a cut: the question of the turn that the
    window starts in, which is included while its tool loop is in progress.
    """


def choose(groups: Sequence[SizedGroup], policy: WindowPolicy, *, budget: int | None, origin: int) -> Choice:
    """Apply the policy. `budget` is the token budget of these groups; `origin` is the index of the first
    group that was read.
    """
    selection = _Selection(groups, policy, budget)
    if groups:
        selection.limit_turns()
        selection.limit_messages()
        selection.limit_tokens()
    return selection.choice(origin)


class _Selection:
    """The start of the window while limits are applied."""

    def __init__(self, groups: Sequence[SizedGroup], policy: WindowPolicy, budget: int | None) -> None:
        self.policy = policy
        self.budget = budget
        self._set_groups(groups)
        self.start = 0
        self.question: int | None = None
        self.first_fitting_index: int | None = None
        self.left_out: dict[int, Reason] = {}
        self.read_enough = True
        self.slides = False
        self.drops_ephemeral = False

    def _set_groups(self, groups: Sequence[SizedGroup]) -> None:
        """Set the groups. Totals are computed when first needed."""
        self.ordered = OrderedGroups(groups, look_back=self.policy.look_back)
        self._messages: Totals | None = None
        self._tokens: Totals | None = None

    # The three limits

    def limit_turns(self) -> None:
        maximum = self.policy.max_turns
        if maximum is None or self._within_count(self._turns(), maximum):
            return
        self._leave_out_ephemeral_turns()
        if self._within_count(self._turns(), maximum):
            return
        starts = self._turn_starts()
        cut = find_cut(
            range(len(starts)),
            total=lambda nth: len(starts) - nth,
            limit=self._count_limit(maximum),
            rank=lambda nth: self._turn_rank(starts[nth]),
        )
        assert cut is not None  # the newest turn is one turn
        self._needs_turn_before(starts[cut.first_fitting], ratio=self.policy.count_retention_ratio)
        self._cut(Cut(start=starts[cut.start], first_fitting=starts[cut.first_fitting]), "turns")
        self.slides = self.policy.count_retention_ratio >= 1

    def limit_messages(self) -> None:
        maximum = self.policy.max_messages
        if maximum is None or self._within_count(self._messages_from(self.start), maximum):
            return
        self._leave_out_ephemeral()
        if self._within_count(self._messages_from(self.start), maximum):
            return
        starts = self._possible_starts()
        cut = find_cut(starts, total=self._messages_from, limit=self._count_limit(maximum), rank=self._rank)
        self._cut(cut or self._minimum_cut(), "messages")
        self.question = self.ordered.loop_question_of(self.start)
        self.slides = self.policy.count_retention_ratio >= 1

    def limit_tokens(self) -> None:
        if self.budget is None or self._tokens_now() <= self.budget:
            return
        self._leave_out_ephemeral()
        if self._tokens_now() <= self.budget:
            return
        cut = self._token_cut(self.budget) or self._minimum_cut()
        self._cut(cut, "tokens")
        # A later cut by count may leave out so much that this one is undone.
        counted = self.policy.max_messages is not None or self.policy.max_turns is not None
        self.slides = self.policy.retention_ratio >= 1 or (counted and self.policy.count_retention_ratio < 1)

    def choice(self, origin: int) -> Choice:
        included = self._included_groups() if self.ordered.groups else []
        indexes = {self.ordered.index(at) for at in included}
        in_reach = (
            self.first_fitting_index is not None
            and self.first_fitting_index - self.policy.look_back >= origin
        )
        return Choice(
            included=tuple(self.ordered.groups[at] for at in included),
            left_out={index: why for index, why in self.left_out.items() if index not in indexes},
            is_final=in_reach and self.read_enough and self.ordered.has_words,
            slides=self.slides,
            drops_ephemeral=self.drops_ephemeral,
            unsettled=self._unsettled(indexes) if self.ordered.groups else None,
        )

    def _unsettled(self, included: set[int]) -> int | None:
        if not self.start or self.start <= self.ordered.newest_turn:
            return None
        question = self.ordered.question_of(self.start)
        if question is None:
            return None
        # A cut by tokens includes the question always, unless it does not fit.
        always = self.left_out.get(self.ordered.index(self.start - 1)) == "tokens"
        return None if always and self.ordered.index(question) in included else self.ordered.index(question)

    # Measuring

    def _rank(self, at: int) -> int:
        """Return the roundness of a start among all groups."""
        return roundness(self._number(at - 1) if at else 0, self._number(at))

    def _turn_rank(self, at: int) -> int:
        """Return the roundness of a start among the starts of turns."""
        before = bisect_left(self.ordered.turn_starts, at) - 1
        return roundness(
            self._number(self.ordered.turn_starts[before]) if before >= 0 else 0, self._number(at)
        )

    def _needs_turn_before(self, at: int, *, ratio: float) -> None:
        """Record that the roundness of a turn's start is unknown without the turn before it."""
        self.read_enough &= ratio >= 1 or bisect_left(self.ordered.turn_starts, at) > 0

    def _number(self, at: int) -> int:
        return self.ordered.groups[at].group.number

    def _within_count(self, count: int, maximum: int) -> bool:
        # With a ratio below 1, older messages could cause a cut beyond that of any other limit.
        self.read_enough &= count > maximum or self.policy.count_retention_ratio >= 1
        return count <= maximum

    def _count_limit(self, maximum: int) -> Limit:
        return Limit(maximum=maximum, ratio=self.policy.count_retention_ratio)

    def _turn_starts(self) -> list[int]:
        """Return the starts of turns. Messages before the first question form a turn."""
        starts = self.ordered.turn_starts
        first = starts[0] if starts else len(self.ordered.groups)
        dialogue = any(item.group.kind != "system" for item in self.ordered.groups[:first])
        return [0, *starts] if dialogue else starts

    def _turns(self) -> int:
        return len(self._turn_starts())

    def _messages_from(self, start: int) -> int:
        """Return the number of messages in a window from `start`."""
        if self._messages is None:
            # Preserved system messages from before the window do not count.
            counts = [len(item.group.pieces) for item in self.ordered.groups]
            self._messages = self.ordered.totals(counts, preserved=self.ordered.important)
        return self._messages.total(start, self.ordered.loop_question_of(start))

    def _tokens_from(self, start: int) -> int:
        """Return the tokens of a window from `start`."""
        return self._costs().total(start, self.ordered.question_of(start))

    def _tokens_now(self) -> int:
        """Return the tokens of the window with the current start."""
        return self._costs().total(self.start, self.question)

    def _costs(self) -> Totals:
        if self._tokens is None:
            tokens = [item.tokens for item in self.ordered.groups]
            self._tokens = self.ordered.totals(tokens, preserved=self._preserved())
        return self._tokens

    def _preserved(self) -> list[int]:
        """Return the groups that are preserved across a cut."""
        ordered = self.ordered
        system = ordered.system if self.policy.preserve_system else []
        return sorted({*ordered.important, *system}) if system else ordered.important

    # Cutting

    def _token_cut(self, budget: int) -> Cut | None:
        """Cut at a turn if one starts in the zone or leaves the window half full; otherwise inside a turn."""
        limit = Limit(maximum=budget, ratio=self.policy.retention_ratio)
        total = self._tokens_from
        anywhere = self._possible_starts()
        inside = find_cut(anywhere, total=total, limit=limit, rank=self._rank)
        if inside is None:
            return None
        turns = [start for start in self.ordered.turn_starts if start in anywhere]
        at_turn = find_cut(turns, total=total, limit=limit, rank=self._turn_rank)
        if at_turn is None or total(at_turn.start) < min(limit.low_mark, budget * _MIN_FILL):
            return inside
        self._needs_turn_before(at_turn.first_fitting, ratio=limit.ratio)
        # The reader must read as far back as the earliest start that fits, whichever start is chosen.
        return Cut(start=at_turn.start, first_fitting=inside.first_fitting)

    def _possible_starts(self) -> range:
        """Return the range from the current start to the newest group, which is always included."""
        return range(self.start, max(self.ordered.newest, self.start) + 1)

    def _minimum_cut(self) -> Cut:
        """Cut before the newest group. `_included_groups` adds what must be preserved."""
        newest = self._possible_starts()[-1]
        return Cut(start=newest, first_fitting=newest)

    def _cut(self, cut: Cut, reason: Reason) -> None:
        for at in range(self.start, cut.start):
            self.left_out.setdefault(self.ordered.index(at), reason)
        self.first_fitting_index = self.ordered.index(cut.first_fitting)
        self.start = cut.start
        if reason == "tokens":
            self.question = self.ordered.question_of(cut.start)

    # What stays

    def _included_groups(self) -> list[int]:
        """Return the groups from the start on and the preserved ones before it; the oldest go first if
        they do not fit.
        """
        ordered = self.ordered
        back = ordered.back(self.start)
        before = [at for at in self._preserved() if back <= at < self.start]
        tail = range(self.start, len(ordered.groups))
        questions = [] if self.question is None else [self.question]
        # The question of a cut turn helps the model and is dropped if it does not fit. A tool loop in
        # progress needs it.
        if questions and not ordered.in_loop and not self._fits([*sorted({*before, *questions}), *tail]):
            questions = []
        fixed = {*questions, *(ordered.system if self.policy.preserve_system else ())}
        going = [at for at in before if at not in fixed]
        included = [*sorted({*before, *questions}), *tail]
        while going and not self._fits(included):
            # Important messages give way last, the oldest of them first.
            included.remove(going.pop(0))
        return included

    def _fits(self, included: Sequence[int]) -> bool:
        groups = self.ordered.groups
        if self.budget is not None and sum([groups[at].tokens for at in included]) > self.budget:
            return False
        counted = [
            len(groups[at].group.pieces)
            for at in included
            if at >= self.start or groups[at].group.kind != "system"
        ]
        return self.policy.max_messages is None or sum(counted) <= self.policy.max_messages

    # Ephemeral groups

    def _leave_out_ephemeral(self) -> None:
        ordered = self.ordered
        # A tool loop in progress needs its question, ephemeral or not.
        needed = {ordered.newest, *ordered.turn_starts[-1:]} if ordered.in_loop else {ordered.newest}
        ephemeral = (at for at in ordered.ephemeral if at >= self.start and at not in needed)
        self._leave_out(list(ephemeral))

    def _leave_out_ephemeral_turns(self) -> None:
        """Leave out turns with only ephemeral groups, except the newest."""
        starts = self._turn_starts()
        dropped: list[int] = []
        for start, end in pairwise(starts):
            dialogue = [at for at in range(start, end) if self.ordered.groups[at].group.kind != "system"]
            if all(self.ordered.groups[at].group.ephemeral for at in dialogue):
                dropped += dialogue
        self._leave_out(dropped)

    def _leave_out(self, dropped: Sequence[int]) -> None:
        self.drops_ephemeral = True
        if not dropped:
            return
        going = set(dropped)
        for at in dropped:
            self.left_out.setdefault(self.ordered.index(at), "ephemeral")
        remaining = [item for at, item in enumerate(self.ordered.groups) if at not in going]
        self._set_groups(remaining)
