"""What a remembered turn adds to the bare SDK with fifty sessions: `python -m benchmarks.agent_sessions`.

Fifty sessions in one process speak at random moments, as people do. Each moment is, by chance, the bare call
of Anthropic's SDK or a turn of the supervisor: question made durable, window, the same call, turn stored
durably in SQLite. Both happen in the same run, so that a busy machine disturbs both. The provider is a fake
one in a process of its own.
"""

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aforesaid
from aforesaid.agents import AgenticLoop, AnthropicAgent, Specialist, SupervisorAgent
from aforesaid.testing.providers import FakeProvider, Says

SESSIONS = 50
ROUNDS = 40
MEAN_PAUSE = 1.0
QUESTION = "Is the front door locked, and did anybody ring while I was out this afternoon?"
ANSWER = "The front door has been locked since 14:05. Two people rang: a parcel at 15:20, your neighbour."
PROMPT = "You are the assistant of a household. Answer briefly, in the language of the question."
AIMS = {50: 2.0, 95: 6.0}
"""Milliseconds that a turn may add, by percentile."""


async def serve() -> None:
    """Run the provider until the standard input ends."""
    async with FakeProvider("anthropic", otherwise=Says(ANSWER)) as provider:
        print(provider.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(url: str, provider: str, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the seconds of bare calls and of turns."""
    times: dict[str, list[float]] = {"bare": [], "turn": []}
    async with aforesaid.open(url) as memory:
        agent = AnthropicAgent("claude-fake", base_url=provider, api_key="none")
        specialist = Specialist(loop=AgenticLoop(agent, instructions=PROMPT))
        supervisor = SupervisorAgent(memory.of("erin"), [specialist])
        client: Any = await agent._client.get()
        messages = [
            {"role": role, "content": text} for role, text in (("user", QUESTION), ("assistant", ANSWER))
        ]
        body = {"model": "claude-fake", "max_tokens": 4096, "system": PROMPT, "extra_body": {}}

        async def session(number: int) -> None:
            chance = random.Random(number)
            name = f"session {number}"
            await supervisor.process_query(QUESTION, name)
            history = messages * 10
            for _ in range(rounds):
                await asyncio.sleep(chance.uniform(0, 2 * MEAN_PAUSE))
                kind = chance.choice(("bare", "turn"))
                begin = time.perf_counter()
                if kind == "turn":
                    await supervisor.process_query(QUESTION, name)
                else:
                    await client.messages.create(messages=[*history, messages[0]], **body)
                times[kind].append(time.perf_counter() - begin)

        await asyncio.gather(*(session(number) for number in range(SESSIONS)))
        await agent.close()
    return times


def report(times: dict[str, list[float]]) -> bool:
    """Print the percentiles; return whether the aims are met."""
    ways = {kind: statistics.quantiles(seconds, n=100) for kind, seconds in times.items()}
    turns, load = len(times["turn"]), os.getloadavg()[0]
    print(f"{SESSIONS} sessions, SQLite, {turns} turns (load {load:.1f} on {os.cpu_count()} cores)")
    met = True
    for percentile, aim in AIMS.items():
        bare, turn = (1000 * ways[kind][percentile - 1] for kind in ("bare", "turn"))
        met = met and turn - bare < aim
        added = f"added {turn - bare:.2f} ms (aim {aim:g} ms)"
        print(f"  p{percentile}: bare {bare:.2f} ms, turn {turn:.2f} ms, {added}")
    return met


async def main(rounds: int = ROUNDS) -> bool:
    serving = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.agent_sessions",
        "serve",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert serving.stdin is not None
    assert serving.stdout is not None
    try:
        provider = (await serving.stdout.readline()).decode().strip()
        with tempfile.TemporaryDirectory() as folder:
            return report(await measure(f"sqlite:///{Path(folder)}/memory.db", provider, rounds))
    finally:
        serving.stdin.close()
        await serving.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        sys.exit(0 if asyncio.run(main(*map(int, sys.argv[1:]))) else 1)
