"""A report over roll-ups: the numbers of a period, by day, channel, client or agent; also as CSV."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

import msgspec
from msgspec import Struct

from aforesaid.analytics import By
from aforesaid.analytics.measures import (
    DISTRIBUTIONS,
    SHARES,
    TOOL_TIME,
    Cell,
    Distribution,
    distribution,
    total,
)
from aforesaid.model.mappings import ReadableAsDict

# The counts that a report always has, in the order of its columns.
COUNTS = (
    "opened",
    "active",
    "closed",
    "reopened",
    "assigned",
    "reassigned",
    "merged",
    "messages_in",
    "messages_out_assistant",
    "messages_out_person",
    "messages_tool",
    "messages_system",
    "turns",
    "answers",
    "tool_calls",
    "tool_errors",
    "requests",
    "searches",
    "notes_made",
    "notes_used",
)


class Numbers(Struct, frozen=True, kw_only=True):
    """The numbers of one group, or of the whole period."""

    value: str | None = None
    """The day, channel, client id or agent; None for conversations without one, and for the whole period."""
    counts: dict[str, int] = {}
    shares: dict[str, float] = {}
    """Shares from 0 to 1. A share of nothing is left out."""
    distributions: dict[str, Distribution] = {}
    """Percentiles and buckets. A distribution without values is left out."""
    tools: dict[str, dict[str, int]] = {}
    """Calls and errors by tool."""
    tool_times: dict[str, Distribution] = {}
    """The time from a call to its result, by tool."""


class Analytics(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """The numbers of a period. They contain no words."""

    first_day: date
    last_day: date
    """Days in UTC; both are part of the period."""
    by: By | None = None
    total: Numbers
    groups: tuple[Numbers, ...] = ()
    counted_at: datetime
    """The numbers contain everything that was stored before this time."""

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]

    def to_csv(self) -> str:
        """Return a line per group; without groups one line. The first line has the names of the columns."""
        rows: list[Iterable[object]] = [[self.by or "period", *_columns()]]
        for numbers in self.groups if self.by is not None else (self.total,):
            name = f"{self.first_day}/{self.last_day}" if self.by is None else numbers.value or ""
            rows.append([name, *_cells(numbers)])
        return csv_text(rows)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return the rows as CSV. A spreadsheet runs no value as a formula."""
    import csv  # few programs write one
    import io

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([[_safe(one) if isinstance(one, str) else one for one in row] for row in rows])
    return text.getvalue()


def _columns() -> list[str]:
    percentiles = [f"{name}_{part}" for name in DISTRIBUTIONS for part in ("count", "p50", "p90", "p95")]
    return [*COUNTS, *(f"{name}_share" for name in SHARES), *percentiles]


def _cells(numbers: Numbers) -> Iterable[object]:
    for name in COUNTS:
        yield numbers.counts.get(name, 0)
    for name in SHARES:
        yield numbers.shares.get(name, "")
    for name in DISTRIBUTIONS:
        found = numbers.distributions.get(name)
        yield from (0, "", "", "") if found is None else (found.count, found.p50, found.p90, found.p95)


def _safe(value: str) -> str:
    """Return a value that a spreadsheet does not run as a formula."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def numbers_of(value: str | None, cell: Cell) -> Numbers:
    """Return what a report says about a cell."""
    counts = {name: cell.counts.get(name, 0) for name in COUNTS}
    tools: dict[str, dict[str, int]] = defaultdict(lambda: {"calls": 0, "errors": 0})
    for name, number in cell.counts.items():
        kind, slash, tool = name.partition("/")
        if slash:
            tools[tool][kind.removeprefix("tool_")] = number
    shares = {
        name: round(cell.counts.get(part, 0) / cell.counts[whole], 4)
        for name, (part, whole) in SHARES.items()
        if cell.counts.get(whole)
    }
    distributions = {
        name: distribution(unit, cell.histograms[name])
        for name, unit in DISTRIBUTIONS.items()
        if cell.histograms.get(name)
    }
    return Numbers(
        value=value,
        counts=counts,
        shares=shares,
        distributions=distributions,
        tools={tool: tools[tool] for tool in sorted(tools)},
        tool_times={
            name.removeprefix(TOOL_TIME): distribution("ms", histogram)
            for name, histogram in sorted(cell.histograms.items())
            if name.startswith(TOOL_TIME)
        },
    )


def report(
    days: tuple[date, date], by: By | None, cells: Mapping[str | None, Cell], *, counted_at: datetime
) -> Analytics:
    """Return the report over cells by group, the most active group first, days in their order."""
    ordered = sorted(cells, key=lambda value: value or "")
    if by not in (None, "day"):
        ordered.sort(key=lambda value: -cells[value].counts.get("opened", 0))
    return Analytics(
        first_day=days[0],
        last_day=days[1],
        by=by,
        total=numbers_of(None, total(cells.values())),
        groups=() if by is None else tuple(numbers_of(value, cells[value]) for value in ordered),
        counted_at=counted_at,
    )
