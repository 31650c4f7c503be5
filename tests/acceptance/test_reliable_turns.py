"""Whatever a provider does, every effect happens once and is stored once, and every request is valid."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.agents import AgenticLoop, Answer, Specialist, SupervisorAgent, tool
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import meaning_of, read, write
from aforesaid.errors import AgentRefused, AgentUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems

DIALECTS = ("plain", "anthropic", "openai_chat", "openai_responses")
TURNS = 12


def reply_that_calls(dialect: str, calls: Sequence[tuple[str, str, int]]) -> Reply:
    """Return a reply with tool calls in a provider's format."""
    given: Any
    if dialect == "anthropic":
        blocks = [
            {"type": "tool_use", "id": name, "name": tool_name, "input": {"number": n}}
            for name, tool_name, n in calls
        ]
        given = {"role": "assistant", "content": blocks}
    elif dialect == "openai_responses":
        given = [
            {
                "type": "function_call",
                "call_id": name,
                "name": tool_name,
                "arguments": json.dumps({"number": n}),
            }
            for name, tool_name, n in calls
        ]
    elif dialect == "openai_chat":
        functions = [
            {
                "id": name,
                "type": "function",
                "function": {"name": tool_name, "arguments": json.dumps({"number": n})},
            }
            for name, tool_name, n in calls
        ]
        given = {"role": "assistant", "content": None, "tool_calls": functions}
    else:
        documents = [
            {"id": name, "name": tool_name, "arguments": {"number": n}} for name, tool_name, n in calls
        ]
        given = {"role": "assistant", "content": "", "tool_calls": documents}
    return Reply(messages=tuple(read(given, dialect=dialect)), stop="tools")


class World:
    """The effects that happened, and where the program hangs now."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.effects: Counter[int] = Counter()
        self.refused: list[str] = []
        self.number = 0
        self.hangs = asyncio.Event()

        async def send(number: int) -> dict[str, int]:
            """Send something."""
            self.effects[number] += 1
            return {"sent": number}

        async def send_and_hang(number: int) -> str:
            """Send something and never return."""
            self.effects[number] += 1
            await self.hang()
            raise AssertionError("never reached")

        def send_and_fail(number: int) -> str:
            """Send something and fail."""
            self.effects[number] += 1
            raise OSError("the line broke")

        @tool(repeatable=True)
        async def look(number: int) -> str:
            """Look something up."""
            return f"seen {number}"

        self.tools = ToolRegistry([send, send_and_hang, send_and_fail, look])

    async def hang(self) -> None:
        self.hangs.set()
        await asyncio.Event().wait()


class RandomAgent:
    """A provider that answers, calls, fails, hangs, repeats, says nothing, streams and breaks at random."""

    name = "assistant"

    def __init__(self, world: World, dialect: str) -> None:
        self.world = world
        self.dialect = dialect
        self.asked = 0
        self._last: Reply | None = None

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        self.asked += 1
        # An assertion here would be taken for a failing provider.
        self.world.refused += problems(write(ask.messages, self.dialect), self.dialect)
        chance = self.world.chance
        if not ask.may_call:
            return self._says(on_text)
        repeat = [self._repeat] if self._last is not None and ask.messages[-1].role != "user" else []
        acts = [self._says, self._calls, self._calls, self._fails, self._breaks, self._hangs, *repeat]
        result: Any = chance.choice(acts)(on_text)
        reply: Reply = await result if asyncio.iscoroutine(result) else result
        return reply

    def _says(self, on_text: OnText | None) -> Reply:
        if on_text is not None:
            on_text("Done.")
        self._last = None
        return Reply(messages=(Message(role="assistant", content="Done."),))

    def _calls(self, on_text: OnText | None) -> Reply:
        calls = []
        for _ in range(self.world.chance.randint(1, 3)):
            self.world.number += 1
            number = self.world.number
            names = ("send", "send", "send_and_hang", "send_and_fail", "look", "missing")
            calls.append((f"call_{number}", self.world.chance.choice(names), number))
        self._last = reply_that_calls(self.dialect, calls)
        return self._last

    def _repeat(self, on_text: OnText | None) -> Reply:
        assert self._last is not None
        return self._last

    def _fails(self, on_text: OnText | None) -> Reply:
        self._last = None
        empty = AgentUnavailable("the response is empty")
        raise self.world.chance.choice(
            [AgentUnavailable("503"), empty, AgentRefused("no"), ValueError("bug")]
        )

    def _breaks(self, on_text: OnText | None) -> Reply:
        self._last = None
        if on_text is not None:
            on_text("Well, it")
        raise AgentUnavailable("the response ended early")

    async def _hangs(self, on_text: OnText | None) -> Reply:
        self._last = None
        if on_text is not None and self.world.chance.random() < 0.5:
            on_text("Let me")
        await self.world.hang()
        raise AssertionError("never reached")

    async def close(self) -> None:
        """Nothing was opened."""


async def ended(asking: "asyncio.Future[Any]", world: World) -> Any:
    """Return what a query gives; cancel it if it hangs."""
    while not asking.done():
        hangs = asyncio.ensure_future(world.hangs.wait())
        await asyncio.wait({asking, hangs}, return_when=asyncio.FIRST_COMPLETED)
        if world.hangs.is_set() and not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
        hangs.cancel()
        world.hangs.clear()
    return None if asking.cancelled() else asking.result()


async def play(manager: ConversationManager, seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    agent = RandomAgent(world, DIALECTS[seed % len(DIALECTS)])
    loop = AgenticLoop(agent, max_steps=4)
    supervisor = SupervisorAgent(manager, [Specialist(loop=loop, tools=world.tools)], deadline=None)

    def deliver(question: Message) -> "asyncio.Future[Any]":
        on_text = (lambda _: None) if chance.random() < 0.5 else None
        return asyncio.ensure_future(supervisor.answer_or_apology(question, f"s{seed}", on_text=on_text))

    for turn in range(TURNS):
        question = Message(role="user", content=f"Do {turn}", message_id=f"q{turn}")
        deliveries = chance.randint(1, 3)
        before = sum(world.effects.values())
        waiting = [deliver(question) for _ in range(deliveries)] if chance.random() < 0.5 else []
        for _ in range(deliveries):
            had_effects = sum(world.effects.values()) > before
            asked = agent.asked
            answer = await ended(waiting.pop(0) if waiting else deliver(question), world)
            if had_effects:
                assert agent.asked == asked, "a known question runs nothing"
                assert isinstance(answer, Answer)
                assert answer.repeated
    assert world.refused == [], "every request is valid"
    await check_log(manager, f"s{seed}", world)


async def check_log(manager: ConversationManager, session: str, world: World) -> None:
    record = await manager.session(session)
    assert record is not None
    log = await manager.messages(record.id, limit=10_000)
    ids = [message.message_id for message in log]
    assert len(set(ids)) == len(ids), "every message is stored once"
    for dialect in DIALECTS:
        assert problems(write(log, dialect), dialect) == []
    stored: Counter[int] = Counter()
    seen: set[str] = set()
    for message in log:
        for call in meaning_of(message).calls:
            arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
            # A provider may repeat a call within a turn; it is the same call then.
            if call.name.startswith("send") and call.id not in seen:
                stored[arguments["number"]] += 1
            seen.add(call.id)
    assert max(world.effects.values(), default=1) == 1, "every effect happens once"
    missing = [number for number in world.effects if not stored[number]]
    assert missing == [], "every effect is stored"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("seeds", [range(8), range(8, 16), range(16, 24)])
async def test_every_effect_happens_once_and_is_stored_once(store: str, seeds: range, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/memory.db"
    options = aforesaid.Models(preload=False)
    async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None), models=options) as memory:
        for seed in seeds:
            await play(memory.of("erin"), seed)
