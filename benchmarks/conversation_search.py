"""How long `search_conversations` takes: `python -m benchmarks.conversation_search [--sizes 1000,10000]`.

One owner with many conversations on SQLite, Redis and PostgreSQL, with a subject, a client name and a
message each. The stores are asked the same questions in turn, each after a turn in another conversation, as
in a busy service. Prints the time on the clock and of this process's processor, and the records that a
question reads.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.servers.postgres import Databases
from tests.servers.redis import running

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from benchmarks.postgres import server
from benchmarks.search_speed import Speech, Taken

QUESTIONS, WARM, AT_ONCE = 100, 10, 64


async def fill(manager: ConversationManager, number: int, first: int) -> None:
    speech, free = Speech(first), asyncio.Semaphore(AT_ONCE)

    async def one(at: int) -> None:
        async with free:
            record = started(new_id(), now=manager.store.now()).with_(
                subject=speech.sentence(4), client_name=f"client {at}"
            )
            await manager.store.create(record)
            said = aforesaid.Message(role="user", content=speech.sentence(8))
            await manager.store.append(record.id, [said])

    await asyncio.gather(*(one(at) for at in range(first, number)))


class Reads:
    """Counts the records that a store returns."""

    def __init__(self, manager: ConversationManager) -> None:
        self.records = 0
        store: Any = manager.store
        while hasattr(store, "inner"):
            store = store.inner
        kind = type(store)
        find, get = kind.find, kind.get

        async def noted_find(one: Any, *arguments: Any) -> Any:
            page = await find(one, *arguments)
            self.records += len(page.conversations)
            return page

        async def noted_get(one: Any, *arguments: Any) -> Any:
            self.records += 1
            return await get(one, *arguments)

        kind.find, kind.get = noted_find, noted_get


async def ask(
    managers: dict[str, ConversationManager], reads: dict[str, Reads], size: int
) -> list[dict[str, Any]]:
    """Return the times of each store, in seconds, and the records that a question reads."""
    taken = {name: Taken() for name in managers}
    speech, choice, first = Speech(99), random.Random(size), dict[str, float]()
    latest = {name: await manager.search_conversations(limit=50) for name, manager in managers.items()}
    for number in range(QUESTIONS + WARM):
        question = speech.sentence(choice.randint(1, 3))
        for name, manager in managers.items():
            if number == WARM:
                reads[name].records = 0
            begun = perf_counter()
            await manager.add_message(choice.choice(latest[name]).id, "user", speech.sentence(8))
            async with taken[name].one():
                await manager.search_conversations(question, limit=10)
            if number == 0:
                first[name] = perf_counter() - begun
                print(f"{size:>7} {name}: the first question {first[name]:.2f} s", flush=True)
    for name, one in taken.items():
        print(f"{size:>7} {one.shown(name)}   records {reads[name].records / QUESTIONS:.0f}", flush=True)
    return [
        {
            "conversations": size,
            "store": name,
            "records": reads[name].records / QUESTIONS,
            "first": first[name],
            **one.figures(),
        }
        for name, one in taken.items()
    ]


async def measure(
    sizes: Sequence[int], stores: Sequence[str] = ("sqlite", "redis", "postgres")
) -> list[dict[str, Any]]:
    """Fill the stores and ask them at each number of conversations."""
    found = []
    with tempfile.TemporaryDirectory() as folder, running() as port, server(None) as postgres:
        urls = {
            "sqlite": f"sqlite:///{Path(folder) / 'memory.db'}?synchronous=normal",
            "redis": f"redis://127.0.0.1:{port}/0?timeout=120",
            "postgres": Databases(postgres).new(),
        }
        async with AsyncExitStack() as stack:
            managers = {}
            for name in stores:
                opening = aforesaid.open(
                    urls[name],
                    layers=aforesaid.Layers(resilience="off"),
                    models=aforesaid.Models(embedder=None),
                )
                managers[name] = (await stack.enter_async_context(opening)).of("erin")
            reads = {name: Reads(manager) for name, manager in managers.items()}
            filled = 0
            for size in sizes:
                await asyncio.gather(*(fill(manager, size, filled) for manager in managers.values()))
                filled = size
                found += await ask(managers, reads, size)
    return found


async def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--sizes", default="1000,10000")
    given.add_argument("--stores", default="sqlite,redis,postgres")
    asked = given.parse_args()
    await measure([int(size) for size in asked.sizes.split(",")], asked.stores.split(","))


if __name__ == "__main__":
    asyncio.run(main())
