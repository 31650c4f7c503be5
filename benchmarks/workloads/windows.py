"""W8: windows over tool-heavy histories: how long one takes, and how many a provider would refuse."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from random import Random
from typing import Any

import msgspec

from aforesaid.dialects import write
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, STATES, entries_of, random_history
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window
from benchmarks import window_validity
from benchmarks.peers.driving import Race
from benchmarks.peers.jobs import summary
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size

POLICY = WindowPolicy(max_tokens=4_000)


DIALECTS = {
    "openai_agents:SQLite": "openai_responses",
    "langchain:SQLHistory": "openai_chat",
    "strands:Files": "anthropic",
}
"""Who cuts windows of messages with tools, and in which dialect. LangGraph's users cut with what LangChain
has; LlamaIndex cuts by tokens alone; Google's sessions give the last events as they stand, in a dialect that
we do not judge."""
MOST = 8
"""Messages in a window that peers are asked for."""


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    logging.getLogger("aforesaid.windows").setLevel(logging.ERROR)
    return {
        "states": {state: _state(state, size.histories) for state in STATES},
        "window": _timed(size),
        "entrants": dict(_peers(race, size, entrants)),
    }


def _peers(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those that have a way to cut a window of messages, and ours on the same histories."""
    for one in (one for one in entrants if not one.is_variant):
        dialect = DIALECTS.get(one.adapter)
        if dialect is not None:
            race.say("W8", one)
            for kind in ("sound", "flawed"):
                logs = _logs(dialect, kind, size.histories)
                yield f"{one.name}, {kind} histories", _peer(race, one, dialect, logs)
                yield "Aforesaid, the same " + f"({dialect}, {kind})", _ours(dialect, logs)


def _logs(dialect: str, kind: str, histories: int) -> list[list[Message]]:
    """Sound: a provider takes the whole, so that what is refused is the fault of the cut. Flawed: results are
    missing, come twice or answer nothing, as after a crash."""
    random = Random(f"W8 {dialect}")
    made = (random_history(random, dialect=dialect, state="at rest", turns=6) for _ in count())
    wanted = (log for log in made if (kind == "sound") != bool(problems(write(log, dialect), dialect)))
    return list(islice(wanted, histories))


def _peer(race: Race, entrant: Entrant, dialect: str, logs: list[list[Message]]) -> dict[str, Any]:
    file = race.folder / "histories.json"
    file.write_bytes(msgspec.json.encode([write(log, dialect).messages for log in logs]))
    with race.place(entrant) as place:
        found = race.run(entrant, "windows", place, histories=str(file), most=MOST)
    return found if "error" in found else _judged(found.pop("windows"), dialect) | found


def _ours(dialect: str, logs: list[list[Message]]) -> dict[str, Any]:
    times, windows = [], []
    for log in logs:
        entries = entries_of(log)
        begin = time.perf_counter()
        context = build_window(entries, WindowPolicy(max_messages=MOST), cost=window_validity.words)
        windows.append(write(context.messages, dialect).messages)
        times.append(time.perf_counter() - begin)
    return _judged(windows, dialect) | summary(times)


def _judged(windows: list[Any], dialect: str) -> dict[str, Any]:
    """How many a provider would refuse. A window with nothing in it is no request."""
    refused = sum(bool(not window or problems(window, dialect)) for window in windows)
    return {"windows": len(windows), "refused_per_1000": 1000 * refused / len(windows)}


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
