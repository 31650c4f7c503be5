"""W9: a turn through the server, by HTTP and by WebSocket, each beside the framework doing nothing.

The two surfaces have benchmarks of their own, each with a server and a load in processes apart; what they
measure is taken from there.
"""

import asyncio
import importlib
import statistics
from importlib.util import find_spec
from typing import Any

from benchmarks.peers.driving import Race
from benchmarks.peers.jobs import summary
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size

SURFACES = {"HTTP": "benchmarks.http_turn", "WebSocket": "benchmarks.ws_turn"}


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    there = {name: module for name, module in SURFACES.items() if find_spec(module)}
    return {"surfaces": {name: _measured(module, size) for name, module in there.items()}}


def _measured(module: str, size: Size) -> dict[str, Any]:
    """A turn and the empty one: how many a second over 64 connections, and how long each takes."""
    surface = importlib.import_module(module)
    try:
        found = asyncio.run(surface.measure(seconds=size.serving, rounds=size.serving_rounds))
    except SystemExit as error:  # how these benchmarks say that an answer was not the one they wanted
        return {"error": str(error)}
    return {name: _figures(rounds) for name, rounds in found.items()}


def _figures(rounds: list[Any]) -> dict[str, Any]:
    times = [each for one in rounds for each in one.times]
    return {"a_second": statistics.median(one.rate for one in rounds), **summary(times)}
