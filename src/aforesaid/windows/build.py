"""Build a context from entries: group, filter, select and report.

Pure functions: the same entries and policy always give the same context.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from aforesaid.contracts import Entry, Position, unreadable_reason
from aforesaid.dialects import OPENING, cut_at_interruption, meaning_of, narrate, only_results
from aforesaid.errors import BudgetExceeded
from aforesaid.model.contexts import Context, Reason
from aforesaid.model.messages import Message, starts_turn
from aforesaid.windows.groups import Group, Grouping, Piece, each_alone, group_log
from aforesaid.windows.policies import Cost, WindowPolicy, passes_agent, passes_tags, shorten
from aforesaid.windows.report import Draft, WindowMessage, report_on
from aforesaid.windows.selection import Choice, SizedGroup, choose

_OPENING = Message(role="user", content=OPENING)

# Maximum number of system messages kept at the start of a conversation.
HEAD = 16


def build_window(
    entries: Sequence[Entry], policy: WindowPolicy, *, cost: Cost, counter: str | None = None
) -> Context:
    """Return the window of a whole log, with entries in reading order.

    `cost` returns the tokens of a message; `counter` is the name of the token counter. Raises
    `BudgetExceeded` if the policy's `oversize` is "error".
    """
    # Read from a store, a window never sees more than `reach` entries: the result must be the same here.
    within = entries[-policy.reach :] if policy.has_limit else entries
    head = leading_system(entries[:HEAD]) if policy.preserve_system and not policy.is_exact else ()
    draft = draft_window(within, policy, cost=cost, head=head)
    at_reach = len(within) < len(entries)
    return finish_window(draft, message_count=len(entries), counter=counter, at_reach=at_reach)


def leading_system(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the system messages at the start of a conversation, without unreadable ones."""
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
    """Select from the newest entries of a log and the system messages at its head.

    `partial`: older entries exist. Entries before the first question are then skipped, because their turn
    is incomplete.
    """
    if policy.told_to is not None:
        cost = _narrated_cost(cost, policy.told_to)
    if policy.is_exact:
        return _exact_draft(_cut_interrupted(entries), policy, cost)
    read = _cut_interrupted(_without(entries, head))
    grouping = group_log(read)
    skipped: frozenset[int] = frozenset()
    if partial:
        grouping, skipped = _from_first_turn(grouping)
        read = _entries_of(grouping, read)
    groups = grouping.groups
    filtered = _filter(groups, policy)
    body = _with_tokens([group for group in groups if group.index not in filtered], cost)
    heading = group_log(head).groups if head else ()
    fixed = _with_tokens([group for group in heading if _filter_one(group, policy) is None], cost)
    budget = None if policy.max_tokens is None else policy.max_tokens - policy.outside - _sum(fixed)
    origin = groups[0].index if groups else 0
    choice = choose(body, policy, budget=budget, origin=origin)
    opening = 0
    if _starts_with_assistant(choice):
        # Some providers require the user's message first; the request then has one more.
        opening = cost(_OPENING)
        if budget is not None:
            choice = choose(body, policy, budget=budget - opening, origin=origin)
            # With fewer messages the window may start with the user's after all.
            opening = opening if _starts_with_assistant(choice) else 0
    return Draft(
        policy=policy,
        cost=cost,
        head=fixed,
        body=body,
        grouping=grouping,
        choice=choice,
        filtered=filtered,
        entries=read,
        entries_read=len(read) + len(head),
        skipped=skipped,
        opening=opening,
    )


def _starts_with_assistant(choice: Choice) -> bool:
    first = next((item.group for item in choice.included if item.group.kind != "system"), None)
    return first is not None and first.kind == "assistant"


def finish_window(
    draft: Draft, *, message_count: int, counter: str | None = None, at_reach: bool = False
) -> Context:
    """Render the selected window: shorten or refuse what is too large, and report.

    `at_reach`: older entries exist beyond the policy's reach.
    """
    messages = _window_messages(draft)
    warnings = _check_reach(draft, at_reach=at_reach) + _check_fixed(draft) + _unreadable(draft)
    warnings += _answering_no_call(draft)
    messages, shortened, oversize = _fit_budget(draft, messages)
    report = report_on(
        draft,
        messages,
        message_count=message_count,
        counter=counter,
        shortened=shortened,
        warnings=warnings + oversize,
    )
    return Context(messages=tuple([item.message for item in messages]), report=report)


# Selection


def _exact_draft(entries: Sequence[Entry], policy: WindowPolicy, cost: Cost) -> Draft:
    """Select exactly the newest messages that pass the filters, without completing groups."""
    grouping = each_alone(entries)
    filtered = _filter_each(grouping, entries, policy)
    passing = [group for group in grouping.groups if group.index not in filtered]
    included = passing[-(policy.max_messages or 0) :]
    is_full = len(included) == policy.max_messages
    start = included[0].pieces[0].entry.position if is_full else None
    return Draft(
        policy=policy,
        cost=cost,
        head=(),
        body=(),
        grouping=grouping,
        choice=Choice(
            included=_with_tokens(included, cost),
            left_out={group.index: "messages" for group in passing[: -len(included)]},
            is_final=start is not None and _is_attributed(entries, start, policy),
            slides=len(included) < len(passing),
            drops_ephemeral=False,
        ),
        filtered=filtered,
        entries=entries,
        entries_read=len(entries),
        # With a filter, older entries can still change which of these pass.
        skipped=frozenset([entry.sequence for entry in entries if start and entry.position < start]),
    )


def _filter_each(grouping: Grouping, entries: Sequence[Entry], policy: WindowPolicy) -> dict[int, Reason]:
    """Return the reason for each message that does not pass. A tool result passes with its call."""
    if not policy.has_filter:
        return {}
    passing = {
        piece.entry.sequence
        for group in group_log(entries).groups
        if _filter_one(group, policy) is None
        for piece in group.pieces
    }
    reasons = ((group, _filter_one(group, policy)) for group in grouping.groups)
    return {
        group.index: reason for group, reason in reasons if reason is not None and group.number not in passing
    }


def _is_attributed(entries: Sequence[Entry], start: Position, policy: WindowPolicy) -> bool:
    """Return whether older entries cannot change which messages from `start` on pass the filters.

    They can complete the step that `start` is part of, and they can contain the call of a later result.
    """
    if not policy.has_filter:
        return True
    from_question = any(starts_turn(entry.message) for entry in entries if entry.position <= start)
    dropped = group_log(entries).dropped
    return from_question and not any(
        part.reason == "orphan" and part.entry.position >= start for part in dropped
    )


def _without(entries: Sequence[Entry], head: Sequence[Entry]) -> Sequence[Entry]:
    if not head:
        return entries
    heading = {entry.sequence for entry in head}
    return [entry for entry in entries if entry.sequence not in heading]


def _cut_interrupted(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Cut interrupted answers after what was heard."""
    if not any(entry.message.speech for entry in entries):
        return entries
    return [
        entry if entry.message.speech is None else replace(entry, message=cut_at_interruption(entry.message))
        for entry in entries
    ]


def _from_first_turn(grouping: Grouping) -> tuple[Grouping, frozenset[int]]:
    """Return the groups from the first question on, and the sequences of entries before it.

    Results of skipped calls may follow the question, or precede it in the same message.
    """
    first = next((at for at, group in enumerate(grouping.groups) if group.starts_turn), len(grouping.groups))
    groups = grouping.groups[first:]
    passed = {piece.entry.sequence for group in grouping.groups[:first] for piece in group.pieces}
    if not groups:
        return Grouping(groups=(), dropped=()), frozenset(passed)
    since = groups[0].pieces[0].entry.position
    dropped = [part for part in grouping.dropped if part.entry.position >= since]
    # One message can carry results of a skipped call next to the first question.
    passed |= {part.entry.sequence for part in dropped if part.entry.position == since}
    return Grouping(groups=groups, dropped=tuple(dropped)), frozenset(passed)


def _entries_of(grouping: Grouping, entries: Sequence[Entry]) -> Sequence[Entry]:
    if not grouping.groups:
        return ()
    since = grouping.groups[0].number
    return entries[next(at for at, entry in enumerate(entries) if entry.sequence == since) :]


def _filter(groups: Sequence[Group], policy: WindowPolicy) -> dict[int, Reason]:
    """Return the reason for each group that does not pass. The question of a tool loop in progress always
    passes.
    """
    if not policy.has_filter:
        return {}
    out = {group.index: reason for group in groups if (reason := _filter_one(group, policy)) is not None}
    passed = [group for group in groups if group.index not in out and group.kind != "system"]
    # Providers refuse tool calls without the question that they answer.
    if out and passed and passed[-1].has_calls:
        questions = [group for group in groups if group.starts_turn and group.index < passed[-1].index]
        if questions:
            out.pop(questions[-1].index, None)
    return out


def _filter_one(group: Group, policy: WindowPolicy) -> Reason | None:
    if not passes_agent(group, policy):
        return "agent"
    return None if passes_tags(group, policy) else "tag"


def _narrated_cost(cost: Cost, agent_name: str) -> Cost:
    """Return the cost of messages for an agent that receives others' messages as quoted text."""

    def narrated_cost(message: Message) -> int:
        narrated = narrate(message, agent_name)
        return 0 if narrated is None else cost(narrated)

    return narrated_cost


def _with_tokens(groups: Sequence[Group], cost: Cost) -> tuple[SizedGroup, ...]:
    return tuple([SizedGroup(group, _group_cost(group.pieces, cost)) for group in groups])


def _group_cost(pieces: tuple[Piece, ...], cost: Cost) -> int:
    if len(pieces) == 1 and pieces[0].part == "whole":
        return cost(pieces[0].message)
    return sum([_piece_cost(piece, cost) for piece in pieces])


def _piece_cost(piece: Piece, cost: Cost) -> int:
    """Return the tokens of a piece. A question next to results costs at least what it adds to them when
    rejoined.
    """
    if piece.part != "rest":
        return cost(piece.message)
    whole = piece.entry.message
    results = only_results(whole, [result.call_id for result in meaning_of(whole).results])
    return max(cost(piece.message), cost(whole) - (cost(results) if results else 0))


def _sum(items: Sequence[SizedGroup]) -> int:
    return sum(item.tokens for item in items)


# Rendering


def _window_messages(draft: Draft) -> list[WindowMessage]:
    messages: list[WindowMessage] = []
    before: Piece | None = None
    for item, may_change in _with_stability(draft):
        if len(item.group.pieces) == 1 and item.group.pieces[0].part == "whole":
            messages.append(_single_message(item, may_change=may_change))
            before = None
            continue
        for piece in item.group.pieces:
            changes = may_change or _is_provisional(piece, item.group)
            if piece.part == "rest" and before is not None and _belong_together(before, piece):
                # Both halves are in the window: send the original message, byte for byte.
                messages[-1] = _rejoined_message(
                    piece, draft.cost, may_change=changes or messages[-1].may_change
                )
            else:
                messages.append(_piece_message(piece, item.group, draft.cost, may_change=changes))
            before = piece
    return messages


def _with_stability(draft: Draft) -> Iterator[tuple[SizedGroup, bool]]:
    """Yield each group with whether it may go before the next cut."""
    yield from ((item, False) for item in draft.head)
    choice = draft.choice
    for item in choice.included:
        unsettled = choice.unsettled is not None and item.group.index >= choice.unsettled
        yield item, unsettled or (choice.drops_ephemeral and item.group.ephemeral)


def _single_message(item: SizedGroup, *, may_change: bool) -> WindowMessage:
    """Return the only message of a group, unchanged from the log, with the group's tokens."""
    group = item.group
    return WindowMessage(group.pieces[0].message, item.tokens, group.kind == "system", may_change)


def _is_provisional(piece: Piece, group: Group) -> bool:
    """Return whether a missing result may still arrive in the place of this one."""
    return bool(group.interrupted) and piece.message.role != "assistant"


def _piece_message(piece: Piece, group: Group, cost: Cost, *, may_change: bool) -> WindowMessage:
    return WindowMessage(piece.message, cost(piece.message), group.kind == "system", may_change)


def _rejoined_message(piece: Piece, cost: Cost, *, may_change: bool) -> WindowMessage:
    message = piece.entry.message
    return WindowMessage(message, cost(message), system=False, may_change=may_change)


def _belong_together(before: Piece, piece: Piece) -> bool:
    """Return whether both are halves of one message, which is then sent unchanged."""
    return before.part == "results" and before.entry.sequence == piece.entry.sequence


def _fit_budget(
    draft: Draft, messages: list[WindowMessage]
) -> tuple[list[WindowMessage], tuple[str, ...], list[str]]:
    """Shorten results to the budget. Return the messages, the shortened calls, and a warning if that is
    not enough.
    """
    budget = draft.policy.max_tokens
    needed = draft.outside + sum(item.tokens for item in messages)
    if budget is None or needed <= budget:
        return messages, (), []
    if draft.policy.oversize == "error":
        raise BudgetExceeded(
            f"the newest step needs {needed} tokens, but the budget is {budget}",
            needed=needed,
            budget=budget,
        )
    fitted = shorten([item.message for item in messages], cost=draft.cost, excess=needed - budget)
    result = [
        item
        if message is item.message
        else WindowMessage(message, draft.cost(message), item.system, may_change=True)
        for item, message in zip(messages, fitted.messages, strict=True)
    ]
    needed = draft.outside + sum(item.tokens for item in result)
    if needed <= budget:
        return result, fitted.call_ids, []
    return result, fitted.call_ids, [f"the window needs {needed} tokens, but the budget is {budget}"]


def _check_reach(draft: Draft, *, at_reach: bool) -> list[str]:
    if not at_reach or draft.choice.is_final:
        return []
    return [f"only the newest {draft.policy.reach} messages were read"]


def _unreadable(draft: Draft) -> list[str]:
    return [
        f"message {part.entry.sequence} cannot be read and was left out: {unreadable_reason(part.entry)}"
        for part in draft.grouping.dropped
        if part.reason == "unreadable"
    ]


def _answering_no_call(draft: Draft) -> list[str]:
    """Return warnings about tool messages without a call id, which no provider accepts."""
    return [
        f"message {part.entry.sequence} of role tool answers no call and was left out"
        for part in draft.grouping.dropped
        if part.reason == "orphan" and part.message.role == "tool" and not meaning_of(part.message).results
    ]


def _check_fixed(draft: Draft) -> list[str]:
    budget = draft.policy.max_tokens
    if budget is None or draft.fixed_tokens <= budget:
        return []
    needed = draft.fixed_tokens
    words = f"prompt, tools and system messages alone need {needed} tokens, but the budget is {budget}"
    if draft.policy.oversize == "error":
        raise BudgetExceeded(words, needed=needed, budget=budget)
    return [words]
