"""Report how a window was selected."""

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct

from aforesaid.contracts import Entry, unreadable_reason
from aforesaid.model.contexts import Context, LeftOut, Reason, Report, TokenUse
from aforesaid.model.messages import Message
from aforesaid.windows.groups import Grouping, tags_of
from aforesaid.windows.policies import Cost, WindowPolicy
from aforesaid.windows.selection import Choice, SizedGroup

# Percentage of the budget above which a report warns.
NEARLY_FULL = 90.0

_LIMITS: frozenset[Reason] = frozenset(("turns", "messages", "tokens"))

_log = logging.getLogger("aforesaid.windows")


class Draft(Struct, frozen=True, kw_only=True):
    """A window that is selected but not rendered."""

    policy: WindowPolicy
    cost: Cost
    head: tuple[SizedGroup, ...]
    body: tuple[SizedGroup, ...]
    grouping: Grouping
    choice: Choice
    filtered: dict[int, Reason]
    entries: Sequence[Entry]
    """The entries that were read, except the head."""
    entries_read: int
    """Number of entries that were read, including the head."""
    skipped: frozenset[int] = frozenset()
    """Sequences of entries, or halves of them, that were read but not judged."""
    opening: int = 0
    """Tokens of the message that some dialects insert before an assistant's first one."""

    @property
    def outside(self) -> int:
        """Tokens of the request that are not in the log."""
        return self.policy.outside + self.opening

    @property
    def fixed_tokens(self) -> int:
        """Tokens of prompt, tools and preserved system messages, which no cut removes."""
        system = [item.tokens for item in self.choice.included if item.group.kind == "system"]
        preserved = sum(system) if self.policy.preserve_system else 0
        return self.policy.outside + sum(item.tokens for item in self.head) + preserved


class WindowMessage(Struct, frozen=True):
    """A message of the window, its tokens, and whether it may still change."""

    message: Message
    tokens: int
    system: bool
    may_change: bool


def report_on(
    draft: Draft,
    messages: Sequence[WindowMessage],
    *,
    message_count: int,
    counter: str | None,
    shortened: tuple[str, ...],
    warnings: Sequence[str],
) -> Report:
    """Return the report of a rendered window, and log it."""
    tokens = _token_use(draft, messages)
    left_out = _left_out(draft)
    report = Report(
        message_count=message_count,
        left_out=left_out,
        not_read=max(0, message_count - draft.entries_read),
        before_window=_before_window(draft, left_out, message_count),
        look_back=draft.policy.look_back if draft.choice.left_out or draft.choice.is_final else 0,
        tokens=tokens,
        max_tokens=draft.policy.max_tokens,
        counter=counter,
        stable_prefix=_stable_prefix(draft, messages),
        interrupted=tuple(call for item in draft.choice.included for call in item.group.interrupted),
        shortened=shortened,
        nothing_to_send=_nothing_to_send(draft, messages),
        warnings=(*warnings, *_nearly_full(draft.policy, tokens)),
    )
    _log_line(draft, report, warnings)
    return report


def stats_of(context: Context | None) -> dict[str, Any]:
    """Return a window's numbers; None means a conversation that does not exist.

    `message_count` is the window's; `context.report.message_count` is the conversation's.
    """
    window = context or Context()
    counts = Counter(tag for message in window.messages for tag in tags_of(message))
    return {
        "exists": context is not None,
        "message_count": len(window),
        "current_tokens": window.report.tokens.total,
        "max_tokens": window.report.max_tokens,
        "utilization": window.report.utilization,
        "tag_distribution": dict(sorted(counts.items())),
    }


def _left_out(draft: Draft) -> tuple[LeftOut, ...]:
    reasons = draft.filtered | draft.choice.left_out
    if not reasons and not draft.grouping.dropped:
        return ()
    parts = [
        (piece.entry, piece.message, reasons[group.index])
        for group in draft.grouping.groups
        if group.index in reasons
        for piece in group.pieces
        if not piece.synthetic
    ]
    parts += [(part.entry, part.message, part.reason) for part in draft.grouping.dropped]
    parts.sort(key=lambda part: (part[0].message.timestamp, part[0].sequence))
    return tuple([_left_out_entry(draft.cost, *part) for part in parts])


def _left_out_entry(cost: Cost, entry: Entry, message: Message, reason: Reason) -> LeftOut:
    return LeftOut(
        sequence=entry.sequence,
        reason=reason,
        role=message.role,
        message_id=message.message_id,
        tokens=0 if unreadable_reason(entry) is not None else cost(message),
    )


def _before_window(draft: Draft, left_out: Sequence[LeftOut], message_count: int) -> int:
    """Return the number of messages up to the newest one that a limit left out or that was skipped."""
    out = draft.skipped.union([one.sequence for one in left_out if one.reason in _LIMITS])
    if not out and message_count <= draft.entries_read:
        return 0
    inside = takewhile(lambda entry: entry.sequence not in out, reversed(draft.entries))
    return message_count - sum(1 for _ in inside)


def _token_use(draft: Draft, messages: Sequence[WindowMessage]) -> TokenUse:
    system = sum([item.tokens for item in messages if item.system])
    return TokenUse(
        prompt=draft.policy.prompt_tokens,
        tools=draft.policy.tools_tokens,
        system=system,
        history=sum([item.tokens for item in messages]) - system + draft.opening,
    )


def _nothing_to_send(draft: Draft, messages: Sequence[WindowMessage]) -> str | None:
    if not all(item.system for item in messages):
        return None
    filtered = set(draft.filtered.values())
    if not filtered:
        return "the conversation has no message that a model could answer"
    by_tags = [f"the tags {', '.join(draft.policy.tags)}"] if "tag" in filtered else []
    by_agent = [f"the agent {draft.policy.agent_name}"] if "agent" in filtered else []
    return f"no message passes the filter by {' and '.join(by_tags + by_agent)}"


def _stable_prefix(draft: Draft, messages: Sequence[WindowMessage]) -> int:
    if draft.choice.slides:
        return len(draft.head)
    return next((at for at, item in enumerate(messages) if item.may_change), len(messages))


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
        len(draft.choice.included),
        len(report.left_out),
        report.not_read,
        report.tokens.total,
        report.max_tokens,
        ",".join(f"{reason}:{count}" for reason, count in sorted(reasons.items())) or "none",
        "; ".join(warnings) or "none",
    )
