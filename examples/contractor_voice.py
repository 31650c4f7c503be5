"""A contractor's voice service with three agents. Each argument is a recording.

    ANTHROPIC_API_KEY=… python examples/contractor_voice.py question.wav …

The transcriber comes from the settings, such as `AFORESAID_TRANSCRIBER=wyoming`. A question that matches no
rule goes to the agent that answered last, so that "and when is it due?" reaches the same one. An invoice is
sent once, also when the model fails afterwards or a question is delivered again.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aforesaid
from aforesaid.agents import (
    AgenticLoop,
    AnthropicAgent,
    RuleRouter,
    Specialist,
    SupervisorAgent,
    ToolRegistry,
    tool,
)
from aforesaid.settings import Settings
from aforesaid.voice import VoiceAssistant, transcriber_for

MODEL = os.environ.get("MODEL", "claude-sonnet-5")
RULES = RuleRouter({"invoice|bill|paid": "invoices", "when|schedule|appointment": "schedule"})


def send_invoice(client: str, euros: float) -> dict[str, Any]:
    """Send an invoice to a client."""
    print(f"(an invoice of {euros:g} euros goes to {client})")
    return {"sent": True, "client": client, "euros": euros}


@tool(repeatable=True)
def next_appointment(client: str) -> dict[str, str]:
    """Return the next appointment with a client."""
    return {"client": client, "day": "Monday"}


def specialist(name: str, purpose: str, *tools: Any) -> Specialist:
    agent = AnthropicAgent(MODEL, name=name, base_url=os.environ.get("ANTHROPIC_BASE_URL"))
    loop = AgenticLoop(agent, instructions=f"{purpose} You are heard, not read: answer in one sentence.")
    return Specialist(loop=loop, description=purpose, tools=ToolRegistry(tools), view="narrated")


async def main(recordings: Sequence[str]) -> None:
    if not recordings:
        raise SystemExit("usage: python examples/contractor_voice.py question.wav …")
    transcriber = transcriber_for(Settings.load().voice)
    if transcriber is None:
        raise SystemExit("set AFORESAID_TRANSCRIBER")
    async with aforesaid.open(os.environ.get("MEMORY_URL", "sqlite:///memory.db")) as memory:
        contractor = memory.of("contractor")
        agents = [
            specialist("office", "You answer questions of a contractor's clients."),
            specialist("invoices", "You handle invoices.", send_invoice),
            specialist("schedule", "You know the appointments.", next_appointment),
        ]
        supervisor = SupervisorAgent(contractor, agents, router=RULES, channel="voice")
        voice = VoiceAssistant(supervisor, transcriber)
        for recording in recordings:
            sound = await asyncio.to_thread(Path(recording).read_bytes)
            reply = await voice.handle_voice_input(sound, "phone", on_filler=print)
            print(reply.spoken, flush=True)
        await voice.close()
        for agent in agents:
            await agent.loop.agent.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
