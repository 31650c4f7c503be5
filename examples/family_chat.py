"""A family chat bot with the Anthropic SDK. Each line of the input is `person: message`.

    echo "Anna: What did I want to buy?" | ANTHROPIC_API_KEY=… python examples/family_chat.py

`ChatHistory` returns the last turns of a person, ready to send, and stores whole turns. After half an hour
without a message a new conversation starts.
"""

import asyncio
import os
import sys
from collections.abc import Iterable

import anthropic

import aforesaid

MODEL = os.environ.get("MODEL", "claude-sonnet-5")
PROMPT = "You are the assistant of a family. Answer in one or two sentences."


async def main(lines: Iterable[str]) -> None:
    client = anthropic.AsyncAnthropic()
    async with aforesaid.open(os.environ.get("MEMORY_URL", "sqlite:///memory.db")) as memory:
        chat = aforesaid.ChatHistory(memory.of("family"))
        for line in lines:
            person, _, text = line.strip().partition(": ")
            question: anthropic.types.MessageParam = {"role": "user", "content": text}
            history = await chat.get_history(person)
            reply = await client.messages.create(
                model=MODEL,
                max_tokens=500,
                system=PROMPT,
                messages=[*history, question],  # type: ignore[list-item]
            )
            # A request that fails raises above: nothing of its turn is stored.
            await chat.save_turn(person, [question, reply])
            print("".join(block.text for block in reply.content if block.type == "text"), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.stdin))
