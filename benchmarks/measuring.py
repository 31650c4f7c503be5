"""Measuring side by side: the same moment, the same machine, alternating, so that noise hits both."""

import statistics
import time
from collections.abc import Awaitable, Callable

Step = Callable[[], Awaitable[object]]


RUN = 25
"""Steps of one kind in a row: short enough that noise hits all alike, long enough that each runs warm."""


async def side_by_side(
    steps: dict[str, Step], *, rounds: int, between: Step | None = None
) -> dict[str, list[float]]:
    """Seconds of each step, taken in short runs that alternate. The first of a run only warms up.

    `between` happens before each step and is not measured: what would happen in the quiet after one.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(max(1, rounds // RUN)):
        for name, step in steps.items():
            await step()
            for _ in range(RUN):
                if between is not None:
                    await between()
                begin = time.perf_counter()
                await step()
                times[name].append(time.perf_counter() - begin)
    return times


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """How much longer one step takes than another: the median of what each pair of runs says.

    The two runs of a pair are neighbours, so that a machine that is busy for a while is so for both.
    """
    return statistics.median(ratios(times, name, base))


def ratios(times: dict[str, list[float]], name: str, base: str) -> list[float]:
    """The ratio of the medians in each pair of runs."""
    pairs = zip(_runs(times[name]), _runs(times[base]), strict=True)
    return [p50(one) / p50(other) for one, other in pairs]


def _runs(seconds: list[float]) -> list[list[float]]:
    return [seconds[start : start + RUN] for start in range(0, len(seconds), RUN)]


def middle_half(values: list[float]) -> str:
    """Where the middle half of the values lies."""
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.2f}–{high:.2f}"


def p50(seconds: list[float]) -> float:
    return statistics.median(seconds)


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"
