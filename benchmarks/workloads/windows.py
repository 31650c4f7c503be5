"""W8: windows over tool-heavy histories: how long one takes, and how many a provider would refuse."""

import logging
import time
from collections import Counter
from random import Random
from typing import Any

from benchmarks import window_validity
from benchmarks.peers.driving import Race
from benchmarks.peers.jobs import summary
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size
from recollect.testing.histories import DIALECT_NAMES, STATES, entries_of, random_history
from recollect.windows import WindowPolicy, build_window

POLICY = WindowPolicy(max_tokens=4_000)


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    logging.getLogger("recollect.windows").setLevel(logging.ERROR)
    return {"states": {state: _state(state, size.histories) for state in STATES}, "window": _timed(size)}


def _state(state: Any, histories: int) -> dict[str, Any]:
    found = sum(
        (window_validity.count(state, source, histories) for source in window_validity.SOURCES),
        start=Counter[str](),
    )
    requests = found["requests"]
    judged = found["windows"] * len(DIALECT_NAMES)
    return {
        "windows": found["windows"],
        "requests": requests,
        "refused_per_1000": 1000 * found["refused"] / requests,
        "last_messages_per_1000": 1000 * found["as they stand"] / judged,
        "questions_lost": found["lost"],
        "over_budget": found["over"],
    }


def _timed(size: Size) -> dict[str, Any]:
    """A window of 4,000 tokens out of some 400 messages, most of them calls and results."""
    random = Random(8)
    logs = [entries_of(random_history(random, dialect="mixed", state="at rest", turns=80)) for _ in range(20)]
    times = []
    for number in range(size.histories * 2):
        begin = time.perf_counter()
        build_window(logs[number % len(logs)], POLICY, cost=window_validity.words)
        times.append(time.perf_counter() - begin)
    return {"messages": sum(map(len, logs)) / len(logs), **summary(times)}
