"""What a remembered turn costs over the bare call of the provider: `python -m benchmarks.agent_overhead`.

The provider is a fake one on this machine, through the real SDK. The bare call sends the same request that
the turn sends: a window of twenty messages, the system prompt with thirty notes, the tools. The turn chooses
that window from a conversation of a thousand messages, reads the notes, runs the loop, and stores question
and answer durably. Everything is on as it is by default. Vectors for search by meaning are made in the quiet
a second after a turn; here that happens between two measurements, but in the last run, whose turns follow
each other at once. Time of the processor is that of all threads: what a machine that is busy with other
things cannot stretch much.
"""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import aforesaid
from aforesaid.agents import AgenticLoop, AnthropicAgent, OpenAIChatAgent, Specialist, answer_turn
from aforesaid.agents.toolbox import owner_tools
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contracts import Agent
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing.providers import Called, FakeProvider, Says
from aforesaid.testing.providers.provider import Kind
from aforesaid.windows import WindowPolicy
from benchmarks.measuring import RUN, Step, p50, side_by_side

QUESTION = "Is the front door locked, and did anybody ring while I was out this afternoon?"
ANSWER = "The front door has been locked since 14:05. Two people rang: a parcel at 15:20, your neighbour."
PROMPT = "You are the assistant of a household. Answer briefly, in the language of the question."
PLACES = [
    "kitchen",
    "garden",
    "cellar",
    "stairs",
    "window",
    "heating",
    "kettle",
    "bicycle",
    "postman",
    "garage",
    "ladder",
    "lantern",
]
LOOK = Called("call_1", "search_history", {"query": "who rang at the front door"})
HISTORY = 1000
NOTES = 30
WORDS = [f"{first}{second}" for first in ("ba", "do", "fi", "gu", "ke") for second in PLACES]
AIM = 5.0


def agent_of(kind: Kind, url: str) -> Agent:
    if kind == "anthropic":
        return AnthropicAgent("claude-fake", base_url=url, api_key="none")
    return OpenAIChatAgent("gpt-fake", base_url=url)


def tools_of(manager: ConversationManager) -> ToolRegistry:
    """The tools of an owner: everything that a turn may call, notes and search."""
    return owner_tools(manager)


async def noted(manager: ConversationManager) -> None:
    """As much as an assistant learns about a household."""
    for number in range(NOTES):
        place = PLACES[number % len(PLACES)]
        await manager.remember(
            f"In the {place} there is a key number {number}", subject=f"key {number} {place}"
        )


async def filled(manager: ConversationManager) -> str:
    """A conversation with a past, in which people talk about many things."""
    record = await manager.get_or_create_conversation("bench")
    for start in range(0, HISTORY, 100):
        await manager.append(record.id, [_said(number) for number in range(start, start + 100)])
    await manager.search_history("front door")  # the index is there
    return record.id


def _said(number: int) -> Message:
    chosen = Random(number)
    words = " ".join(chosen.choice(WORDS) for _ in range(20))
    return Message(role="assistant" if number % 2 else "user", content=f"{words} {number}")


def bare_call(kind: Kind, client: Any, body: dict[str, Any]) -> Step:
    """The SDK's own call with this body of a request."""
    parameters = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    create = client.messages.create if kind == "anthropic" else client.chat.completions.create

    async def call() -> None:
        await create(**parameters)

    return call


async def measure(kind: Kind, url: str, rounds: int, *, quiet_between: bool = True) -> dict[str, list[float]]:
    async with (
        aforesaid.open(url) as memory,
        FakeProvider(kind) as provider,
    ):
        provider.will(Says(ANSWER))
        erin = memory.of("erin")
        conversation_id = await filled(erin)
        await noted(erin)
        agent = agent_of(kind, provider.url)
        specialist = Specialist(loop=AgenticLoop(agent, instructions=PROMPT), tools=tools_of(erin))

        async def turn() -> None:
            provider.will(Says(ANSWER))
            await answer_turn(erin, conversation_id, specialist, QUESTION)

        without = Specialist(
            loop=specialist.loop,
            tools=specialist.tools,
            policy=WindowPolicy(max_messages=20, notes_tokens=0),
        )

        async def turn_without_notes() -> None:
            provider.will(Says(ANSWER))
            await answer_turn(erin, conversation_id, without, QUESTION)

        async def turn_with_a_search() -> None:
            provider.will(Says("", (LOOK,)), Says(ANSWER))
            await answer_turn(erin, conversation_id, specialist, QUESTION)

        await answer_turn(erin, conversation_id, specialist, QUESTION)
        client = await agent._client.get()  # type: ignore[attr-defined]
        call = bare_call(kind, client, provider.requests[-1])

        async def bare() -> None:
            provider.will(Says(ANSWER))
            await call()

        async def bare_twice() -> None:
            await bare()
            await bare()

        spent: dict[str, list[float]] = {name: [] for name in ("bare", "turn")}
        indexer = memory.search_resources.indexer
        between = indexer.wait_until_idle if quiet_between and indexer is not None else None
        times = await side_by_side(
            {"bare": _spending(bare, spent["bare"]), "turn": _spending(turn, spent["turn"])},
            rounds=rounds,
            between=between,
        )
        pair: dict[str, Step] = {"without notes": turn_without_notes, "with notes": turn}
        spent |= {name: [] for name in pair}
        times |= await side_by_side(
            {name: _spending(step, spent[name]) for name, step in pair.items()},
            rounds=rounds // 2,
            between=between,
        )
        times |= await side_by_side(
            {"bare, twice": bare_twice, "turn with a search": turn_with_a_search},
            rounds=rounds // 3,
            between=between,
        )
        await agent.close()
        return times | {f"{name}, processor": seconds for name, seconds in spent.items()}


def _spending(step: Step, spent: list[float]) -> Step:
    """The step, with the processor's seconds that it takes noted."""

    async def spend() -> None:
        begin = time.process_time()
        await step()
        spent.append(time.process_time() - begin)

    return spend


def overheads(times: dict[str, list[float]], name: str, base: str) -> list[float]:
    """Milliseconds that one takes longer than the other, by pairs of neighbouring runs."""
    pairs = zip(_runs(times[name]), _runs(times[base]), strict=True)
    return [1000 * (p50(one) - p50(other)) for one, other in pairs]


def _runs(seconds: list[float]) -> list[list[float]]:
    return [seconds[start : start + RUN] for start in range(0, len(seconds), RUN)]


def report(title: str, times: dict[str, list[float]]) -> None:
    print(f"{title} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    for name, base in (("turn", "bare"), ("turn with a search", "bare, twice")):
        over = overheads(times, name, base)
        low, middle, high = statistics.quantiles(over, n=4)
        quiet = 1000 * (_quiet(times[name]) - _quiet(times[base]))
        print(
            f"  {name:20} p50 {1000 * p50(times[name]):6.2f} ms  over the bare call: p50 {middle:5.2f} ms"
            f" ({low:.2f}–{high:.2f}), quietest tenth {quiet:5.2f} ms  aim {AIM:g} ms"
        )
    notes = 1000 * (p50(times["with notes, processor"]) - p50(times["without notes, processor"]))
    quiet = 1000 * (_quiet(times["with notes"]) - _quiet(times["without notes"]))
    print(
        f"  {'notes':20} {NOTES} of them, over a turn without: processor p50 {notes:5.2f} ms,"
        f" quietest tenth {quiet:5.2f} ms"
    )
    processor = 1000 * (p50(times["turn, processor"]) - p50(times["bare, processor"]))
    print(f"  {'turn':20} processor, over the bare call: p50 {processor:5.2f} ms")


def _quiet(seconds: list[float]) -> float:
    """The tenth of the values that a busy machine disturbed least."""
    return statistics.quantiles(seconds, n=10)[0]


RUNS: tuple[tuple[Kind, str, bool], ...] = (
    ("anthropic", "full", True),
    ("anthropic", "normal", True),
    ("openai_chat", "full", True),
    ("anthropic", "full", False),
)


async def main(rounds: int = 300) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, synchronous, quiet_between) in enumerate(RUNS):
            url = f"sqlite:///{Path(folder)}/{number}.db?synchronous={synchronous}"
            pace = "" if quiet_between else ", turns without a pause"
            times = await measure(kind, url, rounds, quiet_between=quiet_between)
            report(f"{kind}, SQLite synchronous={synchronous}{pace}", times)


if __name__ == "__main__":
    asyncio.run(main())
