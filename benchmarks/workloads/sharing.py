"""W4: several tasks, and several processes, in one conversation. What was acknowledged and is not there?"""

from typing import Any

from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.peers.texts import compared
from benchmarks.workloads.size import Size

TASKS = 16
PROCESSES = 4


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    taking_part = [one for one in entrants if not one.is_variant and one.kind != "floor"]
    return {"entrants": {one.name: _measured(race, size, one) for one in taking_part}}


def _measured(race: Race, size: Size, entrant: Entrant) -> dict[str, Any]:
    race.say("W4", entrant)
    tasks = {"who": "a", "tasks": TASKS, "turns": size.turns_of_task, "seconds": size.sharing}
    process = {"tasks": 1, "turns": size.turns_of_process, "seconds": size.sharing}
    return {
        "tasks": _judged(race, entrant, [tasks]),
        "processes": _judged(race, entrant, [{**process, "who": name} for name in "abcd"[:PROCESSES]]),
    }


def _judged(race: Race, entrant: Entrant, each: list[dict[str, Any]]) -> dict[str, Any]:
    with race.place(entrant) as place:
        race.run(entrant, "beginning", place)
        said = race.side_by_side(entrant, "shared", place, each)
        found = race.run(entrant, "everything", place)
    if broken := next((one["error"] for one in [*said, found] if "error" in one), None):
        return {"error": broken}
    acknowledged = [name for one in said for name in one["acknowledged"]]
    return {**compared(acknowledged, found["texts"]), "errors": sum(one["errors"] for one in said)}
