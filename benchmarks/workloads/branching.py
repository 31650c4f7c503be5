"""W11: what branches and participants cost where there are none, and a context through five forks.

Both are ratios of processor time of the same work in one run, in blocks that alternate.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from copy import copy
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Any

import aforesaid
from aforesaid.layers.branched import stored_itself
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy
from benchmarks.peers.driving import Race
from benchmarks.peers.roster import Entrant
from benchmarks.workloads.size import Size

FORKS = 5
BLOCK = 40
"""Calls of a block: much longer than the clock's resolution."""
WARM = 5
Work = Callable[[], Awaitable[Any]]


def run(race: Race, size: Size, entrants: tuple[Entrant, ...]) -> dict[str, Any]:
    """Needs no other entrant: this is the price of our own features."""
    blocks = 5 if size.histories < 100 else 60
    with tempfile.TemporaryDirectory(dir=race.folder) as folder:
        urls = {"memory": "memory://", "SQLite": f"sqlite:///{Path(folder) / 'branches.db'}"}
        found = {name: asyncio.run(_ratios(url, blocks)) for name, url in urls.items()}
    return {"forks": FORKS, "stores": found}


async def _ratios(url: str, blocks: int) -> dict[str, float]:
    options = {
        "retention": aforesaid.Retention(sweep_every=None),
        "models": aforesaid.Models(preload=False, embedder=None),
        "layers": aforesaid.Layers(resilience="off", cache="off"),
    }
    async with aforesaid.open(url, **options) as memory:  # type: ignore[arg-type]
        manager = memory.of("bench")
        return {"append": await _append(manager, blocks), "context": await _context(manager, blocks)}


async def _append(manager: ConversationManager, blocks: int) -> float:
    """Return the cost of a turn relative to one without the layer of branches and the check of authors."""
    plain = _without_features(manager)
    return await _ratio(_turns(manager, "with"), _turns(plain, "without"), blocks)


def _without_features(manager: ConversationManager) -> ConversationManager:
    plain = copy(manager)
    plain.store = stored_itself(manager.store)
    plain._compose()
    plain._participants.check_authors = _unchecked  # type: ignore[method-assign, assignment]
    return plain


async def _unchecked(*_: object) -> None:
    """Accept every author."""


def _turns(manager: ConversationManager, conversation: str) -> Work:
    numbers = count()

    async def turn() -> None:
        number = next(numbers)
        # New conversations now and then, so that neither side measures a long log.
        await manager.append(f"{conversation} {number // 100}", _turn(number))

    return turn


def _turn(number: int) -> list[Message]:
    return [
        Message(role="user", content=f"How many litres did we use on day {number}?"),
        Message(role="assistant", content=f"On day {number} you used 40 litres, less than before."),
    ]


async def _context(manager: ConversationManager, blocks: int) -> float:
    """Return the cost of a context through forks relative to one of the same length without a fork."""
    straight = (await manager.get_or_create_conversation("straight")).id
    forked = (await manager.get_or_create_conversation("forked")).id
    for number in range(2 * (FORKS + 1)):
        await manager.append(straight, _turn(number))
        await manager.append(forked, _turn(number))
        if number % 2 and number < 2 * FORKS:
            forked = (await manager.fork(forked)).id

    def loading(conversation_id: str) -> Work:
        return lambda: manager.load_context(conversation_id, policy=WindowPolicy(max_messages=100))

    assert len(await loading(straight)()) == len(await loading(forked)())
    return await _ratio(loading(forked), loading(straight), blocks)


async def _ratio(one: Work, other: Work, blocks: int) -> float:
    """Return the ratio of processor time of undisturbed blocks, which alternate; the first ones warm up."""
    spent: dict[Work, list[int]] = {one: [], other: []}
    gc.collect()
    gc.disable()  # a collection falls into one block or the other, and its cost follows the heap
    try:
        for block in range(blocks + WARM):
            # Each is first in half of the blocks.
            for work in (one, other) if block % 2 else (other, one):
                spent[work].append(await _spent(work))
    finally:
        gc.enable()
    first, second = (quantiles(times[WARM:], n=4)[0] for times in spent.values())
    return round(first / second, 3)


async def _spent(work: Work) -> int:
    begin = time.process_time_ns()
    for _ in range(BLOCK):
        await work()
    return time.process_time_ns() - begin
