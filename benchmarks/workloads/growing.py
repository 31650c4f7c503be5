"""W1 and W2: one more durable turn, and a window, as a conversation grows; flushes and bytes of a turn."""

import asyncio
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import turns
from benchmarks.measuring import ratios
from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.report.tables import MARK
from benchmarks.settings import DEFAULT
from benchmarks.workloads.size import Size

IN_MEMORY = Path("/dev/shm")
OURS = "Aforesaid"
TRACED = (5, 25)
"""Turns of two traced runs: what they differ by is the turns' own."""
TRACED_AT = 1_000
"""Messages of the conversation that is traced: far enough that nothing is new any more."""


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    measured = {one.name: _measured(race, size, one) for one in entrants}
    found: dict[str, Any] = {"entrants": measured}
    return {**found, "floor": _beside_floor(race, size)} if OURS in measured else found


def _measured(race: Race, size: Size, entrant: Entrant) -> dict[str, Any]:
    race.say("W1 W2", entrant)
    with race.place(entrant) as place:
        figures = race.run(
            entrant,
            "growth",
            place,
            sizes=[length for length in size.lengths if length <= entrant.longest],
            seconds=size.at_each_length,
            fresh=entrant.fresh,
        )
    if entrant.place != "folder":
        return {**figures, "flushes": None}
    return {**figures, "flushes": _flushes(race, entrant), "free": _free(race, size, entrant)}


def _free(race: Race, size: Size, entrant: Entrant) -> dict[str, Any] | None:
    """The same where flushing is free, in memory: what is left is the work itself."""
    if not os.access(IN_MEMORY, os.W_OK):
        return None
    length = min(MARK, size.lengths[-1])
    with race.place(entrant, within=IN_MEMORY) as place:
        found = race.run(
            entrant, "growth", place, sizes=[length], seconds=size.at_each_length, fresh=entrant.fresh
        )
    return found["rows"][0] if "rows" in found else None


def _flushes(race: Race, entrant: Entrant) -> float | None:
    counts = []
    for number in TRACED:
        with race.place(entrant) as place:
            counts.append(race.flushes(entrant, place, number=number, size=TRACED_AT))
    few, many = counts
    return None if few is None or many is None else (many - few) / (TRACED[1] - TRACED[0])


def _beside_floor(race: Race, size: Size) -> dict[str, Any]:
    """A turn beside the same rows through the engine called directly, in one process, alternating."""
    found = {}
    for synchronous, base in (("full", "floor"), ("normal", "floor handed to a thread")):
        with tempfile.TemporaryDirectory(dir=race.folder) as folder:
            times = asyncio.run(turns.measure(Path(folder), synchronous, size.rounds, DEFAULT))
        rounds = ratios(times, "turn", base)
        found[synchronous] = {
            "floor": statistics.median(times[base]),
            "turn": statistics.median(times["turn"]),
            "ratio": statistics.median(rounds),
            "middle_half": statistics.quantiles(rounds, n=4)[::2] if len(rounds) > 1 else rounds * 2,
        }
    return found
