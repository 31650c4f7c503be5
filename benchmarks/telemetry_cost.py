"""What being watched costs a turn: `python -m benchmarks.telemetry_cost`.

The same calls with and without: a manager's append and a store's, both doing nothing, watched and not, and
what is counted for a turn of two messages. The least of many rounds, since everything else on the machine
only adds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any

from aforesaid.layers.timed import StoreMetrics, TimedStore
from aforesaid.model.messages import Message
from aforesaid.telemetry import Telemetry, events
from aforesaid.telemetry.events import watched
from aforesaid.telemetry.tracing import Request, answering

ROUNDS, CALLS = 400, 500
TURN = (
    Message(role="user", content="find me a chicken dinner for tonight, please"),
    Message(role="assistant", content="How about lemon chicken with potatoes? It takes forty minutes. " * 3),
)


class Plain:
    """A manager, or a store, that does nothing."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> None:
        return None


@watched
class Watched(Plain):
    """The same as the manager is."""


async def least(work: Callable[[], Awaitable[Any]]) -> float:
    """Microseconds of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            await work()
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


async def main() -> None:
    plain, seen = Plain(), Watched()
    inner: Any = Plain()
    store = TimedStore(inner, StoreMetrics("sqlite://", Telemetry()))

    async def nothing() -> None:
        return None

    async def counted() -> None:
        events.turn_stored("", TURN, known=0)

    async def both(of: Any) -> float:
        return await least(lambda: of.append("", TURN, expected_revision=None))

    floor, empty = await both(plain), await least(nothing)
    for name, context in (("outside of a request", None), ("within a request", Request("r-1"))):
        with nullcontext() if context is None else answering(context):
            costs = {
                "the call of the manager": await both(seen) - floor,
                "what is counted": await least(counted) - empty,
                "the operation of the store (Layers(timed=True))": await both(store) - floor,
            }
        print(name)
        for what, cost in costs.items():
            print(f"  {cost:5.2f} µs  {what}")
        print(f"  {sum(costs.values()):5.2f} µs  together")


if __name__ == "__main__":
    asyncio.run(main())
