"""W5: the process is killed in the middle of its work. What was acknowledged and is not there?"""

import random
from typing import Any

from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.peers.texts import compared
from benchmarks.workloads.size import Size


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    taking_part = [one for one in entrants if not one.is_variant and one.kind != "floor"]
    return {"entrants": {one.name: _measured(race, size, one) for one in taking_part}}


def _measured(race: Race, size: Size, entrant: Entrant) -> dict[str, Any]:
    race.say("W5", entrant)
    chance = random.Random(20261116)
    acknowledged: list[str] = []
    with race.place(entrant) as place:
        for kill in range(size.kills):
            acknowledged += race.killed(entrant, place, who=f"k{kill}", chance=chance)
        found = race.run(entrant, "everything", place)
    if "error" in found:
        return {"acknowledged": len(acknowledged), "reopens": False, "error": found["error"]}
    return {
        **compared(acknowledged, found["texts"]),
        "kills": size.kills,
        "reopens": True,
        "seconds": found["seconds"],
    }
