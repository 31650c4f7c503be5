"""From entries to a context: group, filter, choose, and report. Below: the rest of this room.

Pure: the same entries and policy give the same context, in any process, today and in a year. Above:
`reading`, which fetches the entries, and whoever has them at hand already.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.dialects import cut_at_interruption, meaning_of, narrate, only_results
from aforesaid.errors import BudgetExceeded
from aforesaid.model.contexts import Context, LeftOut, Reason, Report, TokenUse
from aforesaid.model.messages import Message
from aforesaid.windows.groups import Group, Grouping, Piece, group_log
from aforesaid.windows.lines import Weighed
from aforesaid.windows.policies import WindowPolicy, passes_agent, passes_tags
from aforesaid.windows.selection import Choice, choose
from aforesaid.windows.truncation import Cost, shorten

HEAD = 16
"""How many system messages at the very front of a conversation are kept, at most."""

NEARLY_FULL = 90.0
"""Percent of the budget above which a report warns."""

_LIMITS: frozenset[Reason] = frozenset(("turns", "messages", "tokens"))

_log = logging.getLogger("aforesaid.windows")


class Draft(Struct, frozen=True, kw_only=True):
    """A window, chosen but not yet written down."""

    policy: WindowPolicy
    cost: Cost
    head: tuple[Weighed, ...]
    body: tuple[Weighed, ...]
    grouping: Grouping
    choice: Choice
    filtered: dict[int, Reason]
    entries: Sequence[Entry]
    """What was looked at, besides the head."""
    looked_at: int
    """How many entries were looked at, those of the head included."""
    passed_over: frozenset[int] = frozenset()
    """The numbers of the entries, or of halves of them, that were read but not known well enough to judge."""

    @property
    def fixed_tokens(self) -> int:
        """Prompt, tools and preserved system messages: what no cut can remove."""
        system = [item.tokens for item in self.choice.kept if item.group.kind == "system"]
        preserved = sum(system) if self.policy.preserve_system else 0
        return self.policy.outside + _sum(self.head) + preserved


class _Shown(Struct, frozen=True):
    """A message of the window, its cost, and whether it may yet change."""

    message: Message
    tokens: int
    system: bool
    passing: bool


def build_window(
    entries: Sequence[Entry], policy: WindowPolicy, *, cost: Cost, counter: str | None = None
) -> Context:
    """The window over a whole log, its entries in reading order.

    `cost` gives the tokens of a message, `counter` the name of what counts them. Raises
    `BudgetExceeded` where the policy asks for it.
    """
    within = entries[-policy.reach :] if policy.has_limit else entries
    head = leading_system(entries[:HEAD]) if policy.preserve_system else ()
    draft = draft_window(within, policy, cost=cost, head=head)
    at_reach = len(within) < len(entries)
    return finish_window(draft, message_count=len(entries), counter=counter, at_reach=at_reach)


def leading_system(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The system messages that a conversation opens with. What cannot be read among them is passed over."""
    leading = takewhile(lambda entry: entry.message.role == "system", entries)
    return tuple([entry for entry in leading if unreadable_reason(entry) is None])


def draft_window(
    entries: Sequence[Entry],
    policy: WindowPolicy,
    *,
    cost: Cost,
    head: Sequence[Entry] = (),
    partial: bool = False,
) -> Draft:
    """Choose from these entries, the newest of a log, and from the system messages at its head.

    `partial`: there are older entries, so what stands before the first question here is not known
    well enough to be judged, and is passed over.
    """
    if policy.told_to is not None:
        cost = _cost_as_told(cost, policy.told_to)
    read = _as_heard(_without(entries, head))
    grouping = group_log(read)
    passed_over: frozenset[int] = frozenset()
    if partial:
        grouping, passed_over = _from_first_turn(grouping)
        read = _entries_of(grouping, read)
    groups = grouping.groups
    filtered = _filter(groups, policy)
    body = _weighed([group for group in groups if group.place not in filtered], cost)
    heading = group_log(head).groups if head else ()
    fixed = _weighed([group for group in heading if _filter_one(group, policy) is None], cost)
    room = None if policy.max_tokens is None else policy.max_tokens - policy.outside - _sum(fixed)
    choice = choose(body, policy, room=room, origin=groups[0].place if groups else 0)
    return Draft(
        policy=policy,
        cost=cost,
        head=fixed,
        body=body,
        grouping=grouping,
        choice=choice,
        filtered=filtered,
        entries=read,
        looked_at=len(read) + len(head),
        passed_over=passed_over,
    )


def finish_window(
    draft: Draft, *, message_count: int, counter: str | None = None, at_reach: bool = False
) -> Context:
    """Write the chosen window down: shorten or refuse what is too large, and report.

    `at_reach`: there are older entries, which the policy forbids to look at.
    """
    shown = _shown(draft)
    notes = _check_reach(draft, at_reach=at_reach) + _check_fixed(draft) + _unreadable(draft)
    shown, shortened, oversize = _made_to_fit(draft, shown)
    notes += oversize
    tokens = _token_use(draft.policy, shown)
    left_out = _left_out(draft)
    report = Report(
        message_count=message_count,
        left_out=left_out,
        not_read=max(0, message_count - draft.looked_at),
        before_window=_before_window(draft, left_out, message_count),
        look_back=draft.policy.look_back if draft.choice.left_out or draft.choice.settled else 0,
        tokens=tokens,
        max_tokens=draft.policy.max_tokens,
        counter=counter,
        stable_prefix=_stable_prefix(draft, shown),
        interrupted=tuple(call for item in draft.choice.kept for call in item.group.interrupted),
        shortened=shortened,
        nothing_to_send=_nothing_to_send(draft, shown),
        warnings=(*notes, *_nearly_full(draft.policy, tokens)),
    )
    _log_line(draft, report, notes)
    return Context(messages=tuple([item.message for item in shown]), report=report)


# Choosing


def _without(entries: Sequence[Entry], head: Sequence[Entry]) -> Sequence[Entry]:
    if not head:
        return entries
    heading = {entry.sequence for entry in head}
    return [entry for entry in entries if entry.sequence not in heading]


def _as_heard(entries: Sequence[Entry]) -> Sequence[Entry]:
    """What was heard of answers that were cut off, in the place of what was generated."""
    if not any(entry.message.speech for entry in entries):
        return entries
    return [
        entry if entry.message.speech is None else replace(entry, message=cut_at_interruption(entry.message))
        for entry in entries
    ]


def _from_first_turn(grouping: Grouping) -> tuple[Grouping, frozenset[int]]:
    """The groups from the first question on, and the numbers of the entries of those before it.

    Results among these may stand behind the question, or in front of it in the same message.
    """
    first = next((at for at, group in enumerate(grouping.groups) if group.starts_turn), len(grouping.groups))
    groups = grouping.groups[first:]
    passed = {piece.entry.sequence for group in grouping.groups[:first] for piece in group.pieces}
    if not groups:
        return Grouping(groups=(), dropped=()), frozenset(passed)
    since = groups[0].pieces[0].entry.position
    dropped = [part for part in grouping.dropped if part.entry.position >= since]
    passed |= {part.entry.sequence for part in dropped if part.entry.position == since}
    return Grouping(groups=groups, dropped=tuple(dropped)), frozenset(passed)


def _entries_of(grouping: Grouping, entries: Sequence[Entry]) -> Sequence[Entry]:
    if not grouping.groups:
        return ()
    since = grouping.groups[0].number
    return entries[next(at for at, entry in enumerate(entries) if entry.sequence == since) :]


def _filter(groups: Sequence[Group], policy: WindowPolicy) -> dict[int, Reason]:
    """Why each group that does not pass is out. The question of a tool loop under way always passes."""
    if policy.agent_name is None and not policy.tags:
        return {}
    out = {group.place: reason for group in groups if (reason := _filter_one(group, policy)) is not None}
    passed = [group for group in groups if group.place not in out and group.kind != "system"]
    if out and passed and passed[-1].has_calls:
        asked = [group for group in groups if group.starts_turn and group.place < passed[-1].place]
        if asked:
            out.pop(asked[-1].place, None)
    return out


def _filter_one(group: Group, policy: WindowPolicy) -> Reason | None:
    if not passes_agent(group, policy):
        return "agent"
    return None if passes_tags(group, policy) else "tag"


def _cost_as_told(cost: Cost, agent_name: str) -> Cost:
    """What messages cost an agent that is told what others said."""

    def cost_as_told(message: Message) -> int:
        describe = narrate(message, agent_name)
        return 0 if describe is None else cost(describe)

    return cost_as_told


def _weighed(groups: Sequence[Group], cost: Cost) -> tuple[Weighed, ...]:
    return tuple([Weighed(group, _group_cost(group.pieces, cost)) for group in groups])


def _group_cost(pieces: tuple[Piece, ...], cost: Cost) -> int:
    if len(pieces) == 1 and pieces[0].part == "whole":
        return cost(pieces[0].message)
    return sum([_piece_cost(piece, cost) for piece in pieces])


def _piece_cost(piece: Piece, cost: Cost) -> int:
    """What a piece adds. A question beside results costs at least what it adds to them when rejoined."""
    if piece.part != "rest":
        return cost(piece.message)
    whole = piece.entry.message
    results = only_results(whole, [result.call_id for result in meaning_of(whole).results])
    return max(cost(piece.message), cost(whole) - (cost(results) if results else 0))


def _sum(items: Sequence[Weighed]) -> int:
    return sum(item.tokens for item in items)


# Writing down


def _shown(draft: Draft) -> list[_Shown]:
    items = [*draft.head, *draft.choice.kept]
    shown: list[_Shown] = []
    before: Piece | None = None
    for item in items:
        if len(item.group.pieces) == 1 and item.group.pieces[0].part == "whole":
            shown.append(_shown_alone(item, sheds=draft.choice.sheds))
            before = None
            continue
        for piece in item.group.pieces:
            passing = _may_change(piece, item.group, sheds=draft.choice.sheds)
            if piece.part == "rest" and before is not None and _belong_together(before, piece):
                shown[-1] = _shown_whole(piece, draft.cost, passing=passing or shown[-1].passing)
            else:
                shown.append(_shown_piece(piece, item.group, draft.cost, passing=passing))
            before = piece
    return shown


def _shown_alone(item: Weighed, *, sheds: bool) -> _Shown:
    """The only message of a group, as it stands in the log: its cost is the group's."""
    group = item.group
    return _Shown(group.pieces[0].message, item.tokens, group.kind == "system", sheds and group.ephemeral)


def _may_change(piece: Piece, group: Group, *, sheds: bool) -> bool:
    """Whether it may change before the next cut: ephemeral messages go, results that are missing may come."""
    return (sheds and group.ephemeral) or (bool(group.interrupted) and piece.message.role != "assistant")


def _shown_piece(piece: Piece, group: Group, cost: Cost, *, passing: bool) -> _Shown:
    return _Shown(piece.message, cost(piece.message), group.kind == "system", passing)


def _shown_whole(piece: Piece, cost: Cost, *, passing: bool) -> _Shown:
    message = piece.entry.message
    return _Shown(message, cost(message), system=False, passing=passing)


def _belong_together(before: Piece, piece: Piece) -> bool:
    """Whether both are halves of one message, of which this is the rest: it goes out as it came in."""
    return before.part == "results" and before.entry.sequence == piece.entry.sequence


def _made_to_fit(draft: Draft, shown: list[_Shown]) -> tuple[list[_Shown], tuple[str, ...], list[str]]:
    """The window within its budget, if shortening can do it; the calls shortened; a warning if not."""
    budget = draft.policy.max_tokens
    needed = draft.policy.outside + sum(item.tokens for item in shown)
    if budget is None or needed <= budget:
        return shown, (), []
    if draft.policy.oversize == "error":
        raise BudgetExceeded(
            f"the newest step alone needs {needed} tokens, and the budget is {budget}",
            needed=needed,
            budget=budget,
        )
    fitted = shorten([item.message for item in shown], cost=draft.cost, excess=needed - budget)
    result = [
        item if message is item.message else _Shown(message, draft.cost(message), item.system, passing=True)
        for item, message in zip(shown, fitted.messages, strict=True)
    ]
    needed = draft.policy.outside + sum(item.tokens for item in result)
    if needed <= budget:
        return result, fitted.call_ids, []
    return result, fitted.call_ids, [f"the window needs {needed} tokens, and the budget is {budget}"]


def _check_reach(draft: Draft, *, at_reach: bool) -> list[str]:
    if not at_reach or draft.choice.settled:
        return []
    return [f"only the newest {draft.policy.reach} messages were looked at"]


def _unreadable(draft: Draft) -> list[str]:
    return [
        f"message {part.entry.sequence} cannot be read and was left out: {unreadable_reason(part.entry)}"
        for part in draft.grouping.dropped
        if part.reason == "unreadable"
    ]


def _check_fixed(draft: Draft) -> list[str]:
    budget = draft.policy.max_tokens
    if budget is None or draft.fixed_tokens <= budget:
        return []
    needed = draft.fixed_tokens
    words = f"prompt, tools and system messages alone need {needed} tokens, and the budget is {budget}"
    if draft.policy.oversize == "error":
        raise BudgetExceeded(words, needed=needed, budget=budget)
    return [words]


# Reporting


def _left_out(draft: Draft) -> tuple[LeftOut, ...]:
    reasons = draft.filtered | draft.choice.left_out
    if not reasons and not draft.grouping.dropped:
        return ()
    parts = [
        (piece.entry, piece.message, reasons[group.place])
        for group in draft.grouping.groups
        if group.place in reasons
        for piece in group.pieces
        if not piece.made
    ]
    parts += [(part.entry, part.message, part.reason) for part in draft.grouping.dropped]
    parts.sort(key=lambda part: (part[0].message.timestamp, part[0].sequence))
    return tuple([_line(draft.cost, *part) for part in parts])


def _line(cost: Cost, entry: Entry, message: Message, reason: Reason) -> LeftOut:
    return LeftOut(
        sequence=entry.sequence,
        reason=reason,
        role=message.role,
        message_id=message.message_id,
        tokens=0 if unreadable_reason(entry) is not None else cost(message),
    )


def _before_window(draft: Draft, left_out: Sequence[LeftOut], message_count: int) -> int:
    """How many messages there are up to the newest that a limit left out, or that was passed over."""
    out = draft.passed_over.union([one.sequence for one in left_out if one.reason in _LIMITS])
    if not out and message_count <= draft.looked_at:
        return 0
    inside = takewhile(lambda entry: entry.sequence not in out, reversed(draft.entries))
    return message_count - sum(1 for _ in inside)


def _token_use(policy: WindowPolicy, shown: Sequence[_Shown]) -> TokenUse:
    system = sum([item.tokens for item in shown if item.system])
    return TokenUse(
        prompt=policy.prompt_tokens,
        tools=policy.tools_tokens,
        system=system,
        history=sum([item.tokens for item in shown]) - system,
    )


def _nothing_to_send(draft: Draft, shown: Sequence[_Shown]) -> str | None:
    if not all(item.system for item in shown):
        return None
    filtered = set(draft.filtered.values())
    if not filtered:
        return "nobody has said anything that a model could answer"
    by_tags = [f"the tags {', '.join(draft.policy.tags)}"] if "tag" in filtered else []
    by_agent = [f"the agent {draft.policy.agent_name}"] if "agent" in filtered else []
    return f"nothing that was said passes the filter by {' and '.join(by_tags + by_agent)}"


def _stable_prefix(draft: Draft, shown: Sequence[_Shown]) -> int:
    if draft.choice.slides:
        return len(draft.head)
    return next((at for at, item in enumerate(shown) if item.passing), len(shown))


def _nearly_full(policy: WindowPolicy, tokens: TokenUse) -> list[str]:
    if policy.max_tokens is None:
        return []
    share = 100.0 * tokens.total / policy.max_tokens
    return [f"{share:.0f} % of the token budget is in use"] if share > NEARLY_FULL else []


def _log_line(draft: Draft, report: Report, warnings: Sequence[str]) -> None:
    level = logging.WARNING if warnings else logging.INFO if report.left_out else logging.DEBUG
    if not _log.isEnabledFor(level):
        return
    reasons = Counter(item.reason for item in report.left_out)
    _log.log(
        level,
        "window: kept=%d left_out=%d not_read=%d tokens=%d/%s reasons=%s warnings=%s",
        len(draft.choice.kept),
        len(report.left_out),
        report.not_read,
        report.tokens.total,
        report.max_tokens,
        ",".join(f"{reason}:{count}" for reason, count in sorted(reasons.items())) or "none",
        "; ".join(warnings) or "none",
    )
