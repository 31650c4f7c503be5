"""Which groups a window holds: the policy applied to groups in a line. Below: lines, cut, policies.

Three steps, each only where its limit is exceeded, each moving the start of the window on: turns,
messages, tokens. Before normal messages go, ephemeral ones go, all at once (but not the newest, nor
the question of a tool loop under way); while anything else can go, important ones stay.

A token cut starts a window at a turn, because providers want a request to begin with a question.
Only where that would leave the window less than half full (one very long turn) does it start inside
a turn: with the turn's question in front, and the middle left out.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from aforesaid.model.contexts import Reason
from aforesaid.windows.cut import Cut, Limit, find_cut, roundness
from aforesaid.windows.lines import Line, Measured, Weighed
from aforesaid.windows.policies import WindowPolicy

_LEAST_FILL = 0.5
"""A cut at the start of a turn must leave this part of the budget in use, or it is made inside one."""


class Choice(Struct, frozen=True, kw_only=True):
    """What a window holds, what it does not, and whether older messages could change that."""

    kept: tuple[Weighed, ...]
    left_out: dict[int, Reason]
    """Why each group that is not kept is left out, by its place."""
    settled: bool
    """Whether anything older than what was given could not make a difference."""
    slides: bool
    """Whether the window moves on with every turn."""
    sheds: bool
    """Whether ephemeral groups are out, the newest excepted."""


def choose(groups: Sequence[Weighed], policy: WindowPolicy, *, room: int | None, origin: int) -> Choice:
    """Apply the policy. `room` is the budget for these groups; `origin` the place of the first one read."""
    choosing = _Choosing(groups, policy, room)
    if groups:
        choosing.limit_turns()
        choosing.limit_messages()
        choosing.limit_tokens()
    return choosing.choice(origin)


class _Choosing:
    """The start of the window as it moves on, and why."""

    def __init__(self, groups: Sequence[Weighed], policy: WindowPolicy, room: int | None) -> None:
        self.policy = policy
        self.room = room
        self._stand(groups)
        self.start = 0
        self.question: int | None = None
        self.lowest: int | None = None
        self.left_out: dict[int, Reason] = {}
        self.knows_enough = True
        self.slides = False
        self.sheds = False

    def _stand(self, groups: Sequence[Weighed]) -> None:
        """Put the groups in a line, and measure it when that is first needed."""
        self.line = Line(groups, look_back=self.policy.look_back)
        self._messages: Measured | None = None
        self._tokens: Measured | None = None

    # The three limits

    def limit_turns(self) -> None:
        most = self.policy.max_turns
        if most is None or self._within_count(self._turns(), most):
            return
        self._leave_out_fleeting_turns()
        if self._within_count(self._turns(), most):
            return
        starts = self._turn_starts()
        cut = find_cut(
            range(len(starts)),
            total=lambda nth: len(starts) - nth,
            limit=self._count_limit(most),
            rank=lambda nth: self._turn_rank(starts[nth]),
        )
        assert cut is not None  # the newest turn is one turn
        self._needs_turn_before(starts[cut.first_fitting], ratio=self.policy.count_retention_ratio)
        self._cut(Cut(start=starts[cut.start], first_fitting=starts[cut.first_fitting]), "turns")
        self.slides = self.policy.count_retention_ratio >= 1

    def limit_messages(self) -> None:
        most = self.policy.max_messages
        if most is None or self._within_count(self._messages_from(self.start), most):
            return
        self._leave_out_ephemeral()
        if self._within_count(self._messages_from(self.start), most):
            return
        starts = self._possible_starts()
        cut = find_cut(starts, total=self._messages_from, limit=self._count_limit(most), rank=self._rank)
        self._cut(cut or self._least(), "messages")
        self.question = self.line.loop_question_of(self.start)
        self.slides = self.policy.count_retention_ratio >= 1

    def limit_tokens(self) -> None:
        if self.room is None or self._tokens_now() <= self.room:
            return
        self._leave_out_ephemeral()
        if self._tokens_now() <= self.room:
            return
        cut = self._token_cut(self.room) or self._least()
        self._cut(cut, "tokens")
        self.slides = self.policy.retention_ratio >= 1

    def choice(self, origin: int) -> Choice:
        kept = self._kept() if self.line.groups else []
        places = {self.line.place(at) for at in kept}
        in_reach = self.lowest is not None and self.lowest - self.policy.look_back >= origin
        return Choice(
            kept=tuple(self.line.groups[at] for at in kept),
            left_out={place: why for place, why in self.left_out.items() if place not in places},
            settled=in_reach and self.knows_enough and self.line.has_words,
            slides=self.slides,
            sheds=self.sheds,
        )

    # Measuring

    def _rank(self, at: int) -> int:
        """How round a start is among all groups."""
        return roundness(self._number(at - 1) if at else 0, self._number(at))

    def _turn_rank(self, at: int) -> int:
        """How round a start is among the starts of turns."""
        before = bisect_left(self.line.turn_starts, at) - 1
        return roundness(self._number(self.line.turn_starts[before]) if before >= 0 else 0, self._number(at))

    def _needs_turn_before(self, at: int, *, ratio: float) -> None:
        """How round a turn's start is, where that matters, cannot be told without the turn before."""
        self.knows_enough &= ratio >= 1 or bisect_left(self.line.turn_starts, at) > 0

    def _number(self, at: int) -> int:
        return self.line.groups[at].group.number

    def _within_count(self, count: int, most: int) -> bool:
        # Older messages could bring about a cut in a block, further on than any other limit's.
        self.knows_enough &= count > most or self.policy.count_retention_ratio >= 1
        return count <= most

    def _count_limit(self, most: int) -> Limit:
        return Limit(most=most, ratio=self.policy.count_retention_ratio)

    def _turn_starts(self) -> list[int]:
        """Where turns start. What was said before the first question is a turn too."""
        starts = self.line.turn_starts
        first = starts[0] if starts else len(self.line.groups)
        spoken = any(item.group.kind != "system" for item in self.line.groups[:first])
        return [0, *starts] if spoken else starts

    def _turns(self) -> int:
        return len(self._turn_starts())

    def _messages_from(self, start: int) -> int:
        """How many messages a window from there on holds."""
        if self._messages is None:
            # Preserved system messages from before the window come on top of the count.
            counts = [len(item.group.pieces) for item in self.line.groups]
            self._messages = self.line.measured(counts, staying=self.line.important)
        return self._messages.total(start, self.line.loop_question_of(start))

    def _tokens_from(self, start: int) -> int:
        """What a window from there on costs."""
        return self._costs().total(start, self.line.question_of(start))

    def _tokens_now(self) -> int:
        """What the window costs as it was cut so far."""
        return self._costs().total(self.start, self.question)

    def _costs(self) -> Measured:
        if self._tokens is None:
            tokens = [item.tokens for item in self.line.groups]
            self._tokens = self.line.measured(tokens, staying=self._staying())
        return self._tokens

    def _staying(self) -> list[int]:
        """The groups that stay when others go."""
        line = self.line
        system = line.system if self.policy.preserve_system else []
        return sorted({*line.important, *system}) if system else line.important

    # Cutting

    def _token_cut(self, room: int) -> Cut | None:
        """At a turn if one starts in the zone, or at least half fills the window; else inside one."""
        limit = Limit(most=room, ratio=self.policy.retention_ratio)
        total = self._tokens_from
        anywhere = self._possible_starts()
        inside = find_cut(anywhere, total=total, limit=limit, rank=self._rank)
        if inside is None:
            return None
        turns = [start for start in self.line.turn_starts if start in anywhere]
        at_turn = find_cut(turns, total=total, limit=limit, rank=self._turn_rank)
        if at_turn is None or total(at_turn.start) < min(limit.low, room * _LEAST_FILL):
            return inside
        self._needs_turn_before(at_turn.first_fitting, ratio=limit.ratio)
        return Cut(start=at_turn.start, first_fitting=inside.first_fitting)

    def _possible_starts(self) -> range:
        """From where the window starts now to the newest group, which is always in."""
        return range(self.start, max(self.line.newest, self.start) + 1)

    def _least(self) -> Cut:
        """The newest group alone; `_kept` gives it what must not be lost, and sheds what may be."""
        newest = self._possible_starts()[-1]
        return Cut(start=newest, first_fitting=newest)

    def _cut(self, cut: Cut, reason: Reason) -> None:
        for at in range(self.start, cut.start):
            self.left_out.setdefault(self.line.place(at), reason)
        self.lowest = self.line.place(cut.first_fitting)
        self.start = cut.start
        if reason == "tokens":
            self.question = self.line.question_of(cut.start)

    # What stays

    def _kept(self) -> list[int]:
        """The groups from the start on, and from before it those that stay: the oldest go if they must."""
        line = self.line
        back = line.back(self.start)
        before = [at for at in self._staying() if back <= at < self.start]
        tail = range(self.start, len(line.groups))
        asked = [] if self.question is None else [self.question]
        if asked and not line.in_loop and not self._fits([*sorted({*before, *asked}), *tail]):
            asked = []
        fixed = {*asked, *(line.system if self.policy.preserve_system else ())}
        going = [at for at in before if at not in fixed]
        kept = [*sorted({*before, *asked}), *tail]
        while going and not self._fits(kept):
            kept.remove(going.pop(0))
        return kept

    def _fits(self, kept: Sequence[int]) -> bool:
        groups = self.line.groups
        if self.room is not None and sum([groups[at].tokens for at in kept]) > self.room:
            return False
        counted = [
            len(groups[at].group.pieces)
            for at in kept
            if at >= self.start or groups[at].group.kind != "system"
        ]
        return self.policy.max_messages is None or sum(counted) <= self.policy.max_messages

    # Ephemeral groups

    def _leave_out_ephemeral(self) -> None:
        line = self.line
        needed = {line.newest, *line.turn_starts[-1:]} if line.in_loop else {line.newest}
        fleeting = (at for at in line.ephemeral if at >= self.start and at not in needed)
        self._leave_out(list(fleeting))

    def _leave_out_fleeting_turns(self) -> None:
        """Turns in which everything is ephemeral, the newest excepted."""
        starts = self._turn_starts()
        gone: list[int] = []
        for start, end in pairwise(starts):
            spoken = [at for at in range(start, end) if self.line.groups[at].group.kind != "system"]
            if all(self.line.groups[at].group.ephemeral for at in spoken):
                gone += spoken
        self._leave_out(gone)

    def _leave_out(self, gone: Sequence[int]) -> None:
        self.sheds = True
        if not gone:
            return
        going = set(gone)
        for at in gone:
            self.left_out.setdefault(self.line.place(at), "ephemeral")
        remaining = [item for at, item in enumerate(self.line.groups) if at not in going]
        self._stand(remaining)
