"""A household assistant without a model. Each line of the input is a message.

    echo "Remember that the spare key is under the blue pot" | python examples/household.py
    echo "Where is the spare key?" | python examples/household.py

It keeps what it hears and answers from that: words of earlier conversations, and notes.
"""

import asyncio
import os
import sys
from collections.abc import Iterable

import aforesaid
from aforesaid.agents import assistant_for


async def main(lines: Iterable[str]) -> None:
    async with aforesaid.open(os.environ.get("MEMORY_URL", "sqlite:///memory.db")) as memory:
        assistant = assistant_for(memory.of("household"))
        for line in lines:
            print(await assistant.process_query(line.strip(), "kitchen"), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.stdin))
