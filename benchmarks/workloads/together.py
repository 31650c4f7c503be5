"""W3: 64 conversations at once. Who has no async calls runs on the loop and on threads; the better counts."""

from typing import Any

from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size

CONVERSATIONS = 64


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    return {"entrants": {one.name: _measured(race, size, one) for one in entrants if not one.fresh}}


def _measured(race: Race, size: Size, entrant: Entrant) -> dict[str, Any]:
    race.say("W3", entrant)
    runs = [
        _one(race, size, entrant, threads) for threads in ((False, True) if entrant.blocking else (False,))
    ]
    return max(runs, key=lambda figures: float(figures.get("turns_a_second", 0)))


def _one(race: Race, size: Size, entrant: Entrant, threads: bool) -> dict[str, Any]:
    with race.place(entrant) as place:
        figures = race.run(
            entrant,
            "together",
            place,
            conversations=CONVERSATIONS,
            seconds=size.together,
            threads=threads,
        )
    return {**figures, "threads": threads}
