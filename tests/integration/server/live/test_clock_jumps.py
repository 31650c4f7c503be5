"""Clients converge while clocks jump, connections end and servers restart, in any order."""

import random
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing import FixedClock
from tests.builders import STORES, url_for
from tests.integration.server.live.interleaving import Reader
from tests.integration.server.live.parts import Client, HubSetup, open_hub
from tests.integration.server.live.test_disconnects import redact_one
from tests.servers.remote import open_at

SEEDS = {"memory": 6, "sqlite": 4, "file": 2, "redis": 2, "postgres": 2}
STEPS = 40
JUMPS = tuple(
    sign * size
    for size in (timedelta(seconds=1), timedelta(minutes=20), timedelta(hours=5), timedelta(days=2))
    for sign in (1, -1)
)
FARTHEST = timedelta(days=10)
"""How far a clock may be from where it started: a conversation lives for 30 days."""


class JumpingClock(FixedClock):
    """A clock that is set to other times while a program runs."""

    def jump(self, chance: random.Random) -> None:
        start = FixedClock().now
        wanted = self.now + chance.choice(JUMPS)
        self.set(min(max(wanted, start - FARTHEST), start + FARTHEST))


class Watching:
    """A client of a server that can be restarted, and a second process that writes with its own clock."""

    def __init__(self, url: str, chance: random.Random, stack: AsyncExitStack) -> None:
        self.url = url
        self.owner = f"erin-{uuid4()}"
        self.chance = chance
        self.clocks = [JumpingClock(), JumpingClock()]
        self.stack = stack
        self.hub: HubSetup
        self.client: Client
        self.reader: Reader
        self._server = AsyncExitStack()
        self._elsewhere: ConversationManager | None = None

    @property
    def other(self) -> ConversationManager:
        """The second process; where only one can use the store, this one."""
        return self._elsewhere or self.hub.erin

    async def start(self) -> None:
        await self._start_server()
        if not self.url.startswith(("memory:", "file:")):
            options: dict[str, Any] = {"sweep_every": None, "preload": False, "embedder": None}
            elsewhere = open_at(self.url, clock=self.clocks[1], **options)
            self._elsewhere = (await self.stack.enter_async_context(elsewhere)).of(self.owner)
        self.client = self.hub.client()
        self.reader = Reader(await self.client.hello(session_id="kitchen"))

    async def _start_server(self) -> None:
        opened = open_hub(self.url, owner=self.owner, poll_seconds=0.001, wall_clock=self.clocks[0])
        self.hub = await self._server.enter_async_context(opened)

    async def reconnect(self) -> None:
        """Continue at the place up to which the client has everything."""
        self.client = self.hub.client()
        known = {"conversation_id": self.reader.conversation_id, "place": self.reader.place}
        self.reader.take(await self.client.hello(**known))

    async def restart(self) -> None:
        self.client.leave()
        if not self.url.startswith("memory:"):  # with its process, such a memory would end
            await self._server.aclose()
            await self._start_server()
        await self.reconnect()

    async def step(self, number: int) -> None:
        match self.chance.randrange(8):
            case 0 | 1:
                said = Message(role="user", content=f"m{number}", message_id=f"m{number}")
                await self.other.append(self.reader.conversation_id, [said])
            case 2:
                await self.client.send("text", id=f"q{number}", text=f"q{number}", answer=False)
            case 3:
                await redact_one(self.other, self.reader.conversation_id, self.chance)
            case 4 | 5:
                self.chance.choice(self.clocks).jump(self.chance)
            case 6:
                self.client.leave()
                await self.reconnect()
            case 7:
                await self.restart()
        if (frame := await self.client.soon(0)) is not None:
            self.reader.take(frame)

    async def aclose(self) -> None:
        self.client.leave()
        await self._server.aclose()


@pytest.mark.parametrize("store", STORES)
async def test_clients_converge_whatever_the_clocks_do(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_for(store, tmp_path, request)
    for seed in range(SEEDS[store]):
        async with AsyncExitStack() as stack:
            watching = Watching(url, random.Random(seed), stack)
            await watching.start()
            for number in range(STEPS):
                await watching.step(number)
            await watching.client.send("text", id="last", text="the last words", answer=False)
            while "the last words" not in watching.reader.held.values():
                watching.reader.take(await watching.client.next())
            await watching.reader.converges(watching.client, watching.hub)
            await watching.aclose()
