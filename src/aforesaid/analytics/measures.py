"""Counts and histograms that can be added up, and the numbers that a report derives from them.

A histogram has fixed buckets on a logarithmic scale, so histograms of different days, channels and agents add
up exactly. Percentiles come from the buckets. There are no averages: one conversation that waited a weekend
would move an average of a thousand.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

# The upper edges that reports show for times, in milliseconds. They are edges of the stored buckets too, so
# these counts are exact.
TIME_EDGES: Final = (1_000, 10_000, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 8 * HOUR, DAY, 7 * DAY)
COUNT_EDGES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000)
PERCENT_EDGES: Final = (10, 20, 30, 40, 50, 60, 70, 80, 90)

# Every stored bucket is at most a quarter of an octave wide (19 %), up to about a year in milliseconds.
_SHOWN_EDGES: Final = TIME_EDGES + COUNT_EDGES + PERCENT_EDGES
_EDGES: Final = tuple(
    sorted({2 ** (step / 4) for step in range(4 * 35)} | {float(edge) for edge in _SHOWN_EDGES})
)

Unit = Literal["ms", "count", "percent"]

# The distributions, with their units.
DISTRIBUTIONS: Final[Mapping[str, Unit]] = {
    "first_response": "ms",
    "first_response_by_person": "ms",
    "reply_time": "ms",
    "time_to_assignment": "ms",
    "time_to_first_close": "ms",
    "time_to_last_close": "ms",
    "messages": "count",
    "turns": "count",
    "tokens": "count",
    "duration": "ms",
    "tool_time": "ms",
    "heard": "percent",
    "confidence": "percent",
    "request_tokens": "count",
    "left_out": "percent",
    "summary": "percent",
    "stable_prefix": "percent",
    "search_hits": "count",
}

# The prefix of the distributions by tool.
TOOL_TIME: Final = "tool_time/"

# The shares: numerator and denominator among the counts.
SHARES: Final[Mapping[str, tuple[str, str]]] = {
    "automation": ("closed_without_person", "closed_conversations"),
    "handover": ("handed_over", "answered_conversations"),
    "unresolved": ("unresolved", "opened"),
    "voice": ("voice_turns", "turns"),
    "interruptions": ("interrupted_answers", "answers"),
    "tool_errors": ("tool_errors", "tool_calls"),
    "left_out": ("left_out_part", "left_out_whole"),
    "summary": ("summary_part", "summary_whole"),
    "stable_prefix": ("stable_prefix_part", "stable_prefix_whole"),
    "searches_without_result": ("searches_without_result", "searches"),
    "quoted_searches": ("quoted_searches", "searches_with_answer"),
    "requests_with_notes": ("requests_with_notes", "requests"),
}

Histogram = dict[int, int]
"""The number of values by bucket."""


class Cell(Struct, kw_only=True, omit_defaults=True):
    """Counts and histograms. Cells add up."""

    counts: dict[str, int] = {}
    histograms: dict[str, Histogram] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + by

    def observe(self, name: str, value: float) -> None:
        """Add a value to a distribution. A negative time, from clocks that disagree, counts as 0."""
        buckets = self.histograms.setdefault(name, {})
        bucket = bucket_of(value)
        buckets[bucket] = buckets.get(bucket, 0) + 1

    def add(self, other: "Cell") -> None:
        """Add another cell to this one."""
        for name, value in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + value
        for name, histogram in other.histograms.items():
            buckets = self.histograms.setdefault(name, {})
            for bucket, value in histogram.items():
                buckets[bucket] = buckets.get(bucket, 0) + value


def total(cells: Iterable[Cell]) -> Cell:
    """Return the sum of the cells."""
    result = Cell()
    for cell in cells:
        result.add(cell)
    return result


def bucket_of(value: float) -> int:
    """Return the bucket of a value. Bucket 0 contains values below 1."""
    return bisect_right(_EDGES, max(value, 0))


class Bucket(Struct, frozen=True, kw_only=True):
    """How many values are below an upper edge, and not below the previous one."""

    below: float | None
    """The upper edge; None for the last bucket."""
    count: int


class Distribution(Struct, frozen=True, kw_only=True):
    """Percentiles and buckets of values. A percentile is off by at most 10 %."""

    unit: Unit
    count: int
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    buckets: tuple[Bucket, ...]


def distribution(unit: Unit, histogram: Histogram) -> Distribution:
    """Return the percentiles and the shown buckets of a histogram that is not empty."""
    ordered = sorted(histogram.items())
    count = sum(histogram.values())
    # The bucket of 100 % contains larger numbers too.
    most = 100 if unit == "percent" else math.inf
    p50, p75, p90, p95, p99 = (
        min(_percentile(ordered, count, share), most) for share in (0.5, 0.75, 0.9, 0.95, 0.99)
    )
    return Distribution(
        unit=unit, count=count, p50=p50, p75=p75, p90=p90, p95=p95, p99=p99, buckets=_shown(unit, ordered)
    )


def _percentile(ordered: list[tuple[int, int]], count: int, share: float) -> float:
    wanted = share * count
    seen = 0
    for bucket, number in ordered:
        seen += number
        if seen >= wanted:
            return _middle(bucket)
    raise AssertionError("a histogram is not empty")


def _middle(bucket: int) -> float:
    """Return the middle of a bucket on the logarithmic scale, or the count itself where it is a small one."""
    if bucket == 0:
        return 0
    low = _EDGES[bucket - 1]
    if bucket == len(_EDGES):
        return round(low)
    high = _EDGES[bucket]
    # Most values are whole numbers, and a narrow bucket contains one of them at most.
    whole = int(low) if low == int(low) else int(low) + 1
    if whole < high <= whole + 1:
        return whole
    return round(math.sqrt(low * high))


def _shown(unit: Unit, ordered: list[tuple[int, int]]) -> tuple[Bucket, ...]:
    edges = {"ms": TIME_EDGES, "count": COUNT_EDGES, "percent": PERCENT_EDGES}[unit]
    counts = [0] * (len(edges) + 1)
    for bucket, number in ordered:
        low = _EDGES[bucket - 1] if bucket else 0
        counts[bisect_right(edges, low)] += number
    bounds: tuple[float | None, ...] = (*edges, None)
    return tuple(Bucket(below=below, count=count) for below, count in zip(bounds, counts, strict=True))
