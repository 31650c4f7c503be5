"""Outages of real servers, while people go on speaking.

    python -m tests.chaos.outages [--outages 50] [--stores postgres,redis] [--seed 1]

Speakers store turns through the resilient layer, and read contexts, without a pause. Meanwhile the
server is killed and started again, frozen and thawed, or its connections are cut, dropped, delayed
and truncated by a proxy. At the end everything is read from the server itself and judged.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

import aforesaid
from aforesaid.layers.resilient import Resilience, ResilientBackend
from aforesaid.model.messages import Message
from aforesaid.stores.urls import backend_for
from tests.chaos.checking import Verdict, judge
from tests.chaos.proxy import Mode, Proxy
from tests.chaos.servers import SERVERS, Server

KINDS = ("kill", "freeze", "reset", "refuse", "drop", "delay", "truncate")
OWNERS = ("ann", "bob")
CONVERSATIONS = 2
DURING, BETWEEN = 24, 12
"""Turns that are acknowledged in each outage, and after it."""
PAUSE = 0.01
PATIENCE = 120.0


class Figures(Struct, kw_only=True):
    """What a run did and found."""

    outages: Counter[str]
    verdict: Verdict
    contexts: int = 0
    degraded_contexts: int = 0
    set_aside: int = 0
    slowest_turn: float = 0.0

    def __str__(self) -> str:
        one = self.verdict
        return (
            f"{sum(self.outages.values())} outages {dict(self.outages)}; "
            f"acknowledged turns {one.acknowledged:,}: lost {one.lost}, doubled {one.doubled}, "
            f"torn {one.torn}, reordered {one.reordered}; dead letters {self.set_aside}; "
            f"contexts {self.contexts:,}, of which degraded {self.degraded_contexts:,}; "
            f"slowest turn {self.slowest_turn:.2f} s"
        )


class Speakers:
    """Who speaks, and which of their turns were acknowledged."""

    def __init__(self, memory: aforesaid.Memory, *, pause: float = PAUSE) -> None:
        """`pause` is the time in seconds between the turns of one speaker."""
        self._memory = memory
        self._pause = pause
        self.acknowledged: dict[tuple[str, str], set[int]] = {}
        self.figures = Figures(outages=Counter(), verdict=Verdict())
        self._total = 0
        self._progress = asyncio.Event()
        self._over = False

    def start(self) -> list[asyncio.Task[None]]:
        return [
            asyncio.create_task(self.speak(owner, f"session {number}"))
            for owner in OWNERS
            for number in range(CONVERSATIONS)
        ]

    async def speak(self, owner: str, session: str) -> None:
        manager = self._memory.of(owner)
        conversation = await manager.get_or_create_conversation(session)
        describe = self.acknowledged[owner, conversation.id] = set()
        number = 0
        while not self._over:
            begin = time.monotonic()
            await manager.append(
                conversation.id,
                [Message(role="user", content=number), Message(role="assistant", content=number)],
            )
            self.figures.slowest_turn = max(self.figures.slowest_turn, time.monotonic() - begin)
            describe.add(number)
            number += 1
            self._total += 1
            self._progress.set()
            if number % 5 == 0:
                context = await manager.load_context(conversation.id)
                self.figures.contexts += 1
                self.figures.degraded_contexts += context.report.degraded
            await asyncio.sleep(self._pause)

    async def go_on_for(self, turns: int) -> None:
        """Until so many more turns were acknowledged."""
        wanted = self._total + turns
        async with asyncio.timeout(PATIENCE):
            while self._total < wanted:
                self._progress.clear()
                await self._progress.wait()

    def stop(self) -> None:
        self._over = True


async def run(server: Server, folder: Path, *, outages: int, source: random.Random) -> Figures:
    """So many outages, one after the other, and the verdict."""
    proxy = Proxy(server.port)
    await proxy.start()
    memory = aforesaid.open(
        server.url(proxy.port),
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(resilience=Resilience(folder=folder, read_deadline=0.5, write_deadline=1.0)),
        models=aforesaid.Models(preload=False),
    )
    async with memory:
        layer = memory.layer(ResilientBackend)
        assert layer is not None
        speakers = Speakers(memory)
        speaking = speakers.start()
        await speakers.go_on_for(BETWEEN)
        for _ in range(outages):
            kind = source.choice(KINDS)
            speakers.figures.outages[kind] += 1
            await _outage(kind, server, proxy, lambda: speakers.go_on_for(DURING))
            await until_well(layer)
            await speakers.go_on_for(BETWEEN)
        speakers.stop()
        await asyncio.gather(*speaking)
        await until_well(layer)
        speakers.figures.set_aside = int(layer.set_aside.value)
    await proxy.stop()
    await judge_all(server.url(server.port), speakers)
    return speakers.figures


async def _outage(kind: str, server: Server, proxy: Proxy, meanwhile: Callable[[], Awaitable[None]]) -> None:
    if kind == "kill":
        await asyncio.to_thread(server.kill)
        await meanwhile()
        await asyncio.to_thread(server.restart)
    elif kind == "freeze":
        await asyncio.to_thread(server.freeze)
        try:
            await meanwhile()
        finally:
            await asyncio.to_thread(server.thaw)
    else:
        modes: dict[str, Mode] = {mode: mode for mode in ("reset", "refuse", "drop", "delay", "truncate")}
        proxy.become(modes[kind])
        await meanwhile()
        proxy.become("pass")


async def until_well(layer: ResilientBackend) -> None:
    """Until the store is asked again, and nothing waits for it."""
    async with asyncio.timeout(PATIENCE):
        while not layer.reachable or layer.queues:  # noqa: ASYNC110  the layer has no event for its recovery
            await asyncio.sleep(0.01)


async def judge_all(url: str, speakers: Speakers) -> None:
    """Read everything from the store itself, and compare."""
    backend = backend_for(url)
    await backend.open()
    for (owner, conversation_id), describe in speakers.acknowledged.items():
        entries = await backend.of(owner).page(conversation_id, limit=10**6)
        speakers.figures.verdict += judge(describe, [entry.message.content for entry in entries])
    await backend.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outages", type=int, default=50)
    parser.add_argument("--stores", default="postgres,redis")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    clean = True
    for name in given.stores.split(","):
        server = SERVERS[name]()
        with tempfile.TemporaryDirectory(prefix="aforesaid-outages-") as folder:
            server.start()
            try:
                figures = asyncio.run(
                    run(server, Path(folder), outages=given.outages, source=random.Random(given.seed))
                )
            finally:
                server.stop()
        print(f"{name}, seed {given.seed}: {figures}", flush=True)
        clean &= figures.verdict.is_clean and not figures.set_aside
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
