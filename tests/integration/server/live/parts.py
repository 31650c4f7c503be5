"""A live hub without sockets: a scripted agent, a gate with some keys, a fixed clock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec

import aforesaid
from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import meaning_of
from aforesaid.errors import AccessError, NotAuthenticated, TranscriberUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.clock import Clock as WallClock
from aforesaid.model.clock import system_clock
from aforesaid.model.messages import Message
from aforesaid.protocol.live import write_frame
from aforesaid.protocol.live_base import Outgoing
from aforesaid.server.auth.keys import Caller
from aforesaid.server.limits import Limits, LiveLimits
from aforesaid.server.live.connection import Connection
from aforesaid.server.live.hub import Hub, Transcribe
from aforesaid.telemetry import Telemetry
from tests.servers.remote import open_at

PATIENCE = 120.0
"""Seconds after which a test gives up waiting for what should happen at once."""


class Parrot:
    """An agent that repeats what it hears, word by word."""

    name = "parrot"
    dialect = "plain"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.windows: list[tuple[Message, ...]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.has_begun = asyncio.Event()

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        said = meaning_of(ask.messages[-1]).text
        self.asked.append(said)
        self.windows.append(ask.messages)
        words = f"you said {said}"
        if on_text is not None:
            on_text(words[:4])
        self.has_begun.set()
        await self.may_go_on.wait()
        if on_text is not None:
            on_text(words[4:])
        return Reply(messages=(Message(role="assistant", content=words),))

    async def close(self) -> None: ...


def assistant_of(agent: Any) -> Callable[[ConversationManager], SupervisorAgent]:
    return lambda manager: SupervisorAgent(manager, [Specialist(loop=AgenticLoop(agent))])


class Keys:
    """A gate: keys and who holds them."""

    def __init__(self, **callers: Caller) -> None:
        self.callers = callers

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Caller:
        key = headers.get(b"authorization", b"").removeprefix(b"Bearer ").decode()
        if key not in self.callers:
            raise NotAuthenticated
        return self.callers[key]


def callers(owner: str) -> dict[str, Caller]:
    """Keys, and who holds them: the owner's own, one that may only read, another's, and one for both."""
    other = f"not {owner}"
    return {
        "erin": Caller(name="key:erin", owners=frozenset({owner}), scope="write", owner=owner),
        "reader": Caller(name="key:reader", owners=frozenset({owner}), scope="read", owner=owner),
        "sam": Caller(name="key:sam", owners=frozenset({other}), scope="write", owner=other),
        "both": Caller(name="key:both", owners=frozenset({owner, other}), scope="write"),
    }


class Services:
    def __init__(self, memory: aforesaid.Memory, agent: Any, transcribe: Transcribe | None) -> None:
        self.memory = memory
        self.agent = agent
        self.understood = transcribe
        self.refusals: list[tuple[str, str]] = []

    def manager(self, caller: Caller, owner: str, participant: str | None) -> ConversationManager:
        return self.memory.of(owner)

    def assistant(self, manager: ConversationManager) -> SupervisorAgent:
        return assistant_of(self.agent)(manager)

    async def note_refusal(self, action: str, error: AccessError, *, source: str) -> None:
        self.refusals.append((action, type(error).__name__))

    def transcribe(self, manager: ConversationManager) -> Transcribe:
        if self.understood is None:
            raise TranscriberUnavailable
        return self.understood


class Client:
    """The other end of a connection, as a client sees it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[dict[str, Any]] = []
        self._waiting: asyncio.Future[Outgoing] | None = None

    async def send(self, type: str, **fields: Any) -> None:  # noqa: A002  the name in the frame
        await self.connection.receive(msgspec.json.encode({"type": type, **fields}).decode())

    async def next(self) -> dict[str, Any]:
        frame = await self.soon(PATIENCE)
        assert frame is not None, f"nothing more came after {self.frames[-3:]}"
        return frame

    async def soon(self, seconds: float) -> dict[str, Any] | None:
        """The next frame, if one comes soon; else it is waited for on the next occasion."""
        self._waiting = self._waiting or asyncio.ensure_future(self.connection.next())
        done, _ = await asyncio.wait({self._waiting}, timeout=seconds)
        if not done:
            return None
        waiting, self._waiting = self._waiting, None
        document: dict[str, Any] = msgspec.json.decode(write_frame(waiting.result()))
        self.frames.append(document)
        return document

    async def until(self, type: str) -> dict[str, Any]:  # noqa: A002
        """The next frame of this type; what comes before is kept in `frames`."""
        while True:
            frame = await self.next()
            if frame["type"] == type:
                return frame

    async def hello(self, **fields: Any) -> dict[str, Any]:
        await self.send("hello", **({"key": "erin"} | fields))
        return await self.next()

    async def say(self, id: str, text: str, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """Say something, and wait until it is answered."""
        await self.send("text", id=id, text=text, **fields)
        return await self.until("answer.done")

    def leave(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self.connection.leave()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class HubSetup:
    """A room, and what it is made of."""

    def __init__(
        self,
        live: Hub,
        memory: aforesaid.Memory,
        agent: Parrot,
        clock: Clock,
        authenticator: Keys,
        owner: str,
    ) -> None:
        self.live = live
        self.memory = memory
        self.authenticator = authenticator
        self.owner = owner
        self.erin = memory.of(owner)
        self.agent = agent
        self.clock = clock

    def client(self, **headers: str) -> Client:
        given = {name.encode(): value.encode() for name, value in headers.items()}
        return Client(Connection(self.live, given, now=self.clock))


@asynccontextmanager
async def open_hub(
    url: str = "memory://",
    *,
    owner: str = "erin",
    transcribe: Transcribe | None = None,
    rates: Limits | None = None,
    wall_clock: WallClock = system_clock,
    **limits: Any,
) -> AsyncIterator[HubSetup]:
    agent, clock = Parrot(), Clock()
    authenticator = Keys(**callers(owner))
    async with open_at(url, sweep_every=None, preload=False, embedder=None, clock=wall_clock) as memory:
        live = Hub(
            Services(memory, agent, transcribe),
            authenticator,
            LiveLimits(**({"poll_seconds": 0.01} | limits)),
            rates=rates,
            metrics=Telemetry(),
        )
        try:
            yield HubSetup(live, memory, agent, clock, authenticator, owner)
        finally:
            await live.close()


async def comes_true(condition: Callable[[], bool]) -> None:
    """Wait for what happens inside a server, where no event tells of it.

    Most of it happens within a few steps of the loop. What a timer does, or another process, takes longer.
    """
    async with asyncio.timeout(PATIENCE):
        for step in count():
            if condition():
                return
            await asyncio.sleep(0 if step < 100 else 0.002)


def words(frame: dict[str, Any]) -> list[str]:
    """What the messages of a frame say."""
    return [entry["message"]["content"] for entry in frame["entries"]]
