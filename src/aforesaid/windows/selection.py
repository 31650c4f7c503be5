"""Apply a policy to groups: decide which groups a window contains.

Three steps move the start of the window forward: turns, messages, tokens. Each applies only if its limit
is exceeded. Ephemeral groups are removed before other groups, all at once, except the newest and the
question of a tool loop in progress. Important groups are removed last.

A token cut starts a window at a turn, because providers require a request to begin with a question. If
that leaves the window less than half full (one very long turn), the window starts inside a turn, with the
turn's question first and the middle left out.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from aforesaid.model.contexts import Reason
from aforesaid.windows.cut import Cut, Limit, OrderedGroups, SizedGroup, Totals, find_cut, roundness
from aforesaid.windows.policies import WindowPolicy

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
        self.slides = self.policy.retention_ratio >= 1

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
        )

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
