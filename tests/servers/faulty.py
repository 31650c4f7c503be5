"""A server with bugs in what others wrote for it: `python -m tests.servers.faulty PORT`.

Its store cannot list conversations and refuses long answers. Its assistant answers each question in 10,000
words after it has called a tool that fails.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import aforesaid
from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent, ToolRegistry
from aforesaid.contracts import Appended, Ask, OnText, Reply
from aforesaid.errors import InvalidMessage
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory
from aforesaid.model.messages import Message
from aforesaid.server.app import create_app
from aforesaid.server.process import Server, bind_socket, uvicorn_config
from aforesaid.settings import Settings
from aforesaid.stores.memory import InMemoryBackend, InMemoryStore
from tests.doubles import calling

MOST_CHARACTERS = 10_000


class FaultyBackend(InMemoryBackend):
    def of(self, owner: str) -> "FaultyStore":
        return FaultyStore(self, owner)


class FaultyStore(InMemoryStore):
    async def find(self, *args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("a bug of this store")

    async def append(self, conversation_id: str, messages: Sequence[Message], **options: Any) -> Appended:
        if any(len(str(message.content)) > MOST_CHARACTERS for message in messages):
            raise InvalidMessage("this store keeps short messages only", field="content")
        return await super().append(conversation_id, messages, **options)


class Verbose:
    """Calls its tool at each question, and answers its result at length."""

    name, dialect = "assistant", "plain"

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        if ask.messages[-1].role == "user":
            return calling(("c1", "look_up", {}))
        return Reply(messages=(Message(role="assistant", content="word " * MOST_CHARACTERS),))

    async def close(self) -> None:
        """Nothing was opened."""


def look_up() -> str:
    """Look something up."""
    raise ConnectionError("a bug of this tool")


def assistant(manager: ConversationManager) -> SupervisorAgent:
    return SupervisorAgent(manager, [Specialist(loop=AgenticLoop(Verbose()), tools=ToolRegistry([look_up]))])


async def main(port: int) -> None:
    settings, listening = Settings(), bind_socket("127.0.0.1", port)
    models = aforesaid.Models(preload=False, embedder=None)
    async with Memory(FaultyBackend(), models=models) as memory:
        app = create_app(memory, settings, assistant=assistant, open_without_keys=True)
        await Server(app, uvicorn_config(app, settings.server)).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
