"""W9: a turn through the server, by HTTP and by WebSocket, and what an idle server weighs.

The benchmarks of the two surfaces are modules of their own; what they measure is taken over as it is.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from inspect import isawaitable
from typing import Any

from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size

SURFACES = {"HTTP": "benchmarks.http_turn", "WebSocket": "benchmarks.ws_turn"}


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    return {"surfaces": {name: _measured(module) for name, module in SURFACES.items() if find_spec(module)}}


def _measured(module: str) -> Any:
    """What `measure()` of the module gives."""
    measure: Callable[[], Any] = importlib.import_module(module).measure
    return asyncio.run(_awaited(measure))


async def _awaited(measure: Callable[[], Any]) -> Any:
    found: Any | Awaitable[Any] = measure()
    return await found if isawaitable(found) else found
