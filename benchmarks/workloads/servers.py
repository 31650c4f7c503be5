"""W13: what else larger installations measure: windows through layers, the search of conversations, and four
processes on PostgreSQL.
"""

import asyncio
from typing import Any

from tests.servers.postgres import Databases

from benchmarks import conversation_search, layer_windows, postgres_together
from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.postgres import server
from benchmarks.workloads.size import Size


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    """Needs no other entrant: the floors are a plain store and the bare driver."""
    return {
        "layers": asyncio.run(layer_windows.measure(size.rounds)),
        "listed": asyncio.run(conversation_search.measure(size.listed)),
        "processes": _processes(size.together),
    }


def _processes(seconds: float) -> dict[str, float]:
    with server(None) as postgres:
        url = Databases(postgres).new()
        asyncio.run(postgres_together.prepare(url))
        return postgres_together.processes(url, seconds)
