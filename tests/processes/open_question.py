"""A process that asks an agent that never answers: `python -m tests.processes.open_question URL`.

Prints `asked` and the conversation's id once the agent has the question, and then waits to be killed.
"""

import asyncio
import sys

import aforesaid
from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from tests.doubles import Silent


async def main(url: str) -> None:
    options = aforesaid.Models(preload=False)
    async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None), models=options) as memory:
        manager = memory.of("erin")
        record = await manager.get_or_create_conversation("kitchen")
        agent = Silent()
        supervisor = SupervisorAgent(manager, [Specialist(loop=AgenticLoop(agent))])
        asking = asyncio.ensure_future(supervisor.process_query("Is the oven on?", "kitchen"))
        await agent.is_asked.wait()
        print("asked", record.id, flush=True)
        await asking


asyncio.run(main(sys.argv[1]))
