"""A process that appends turns to a conversation on Redis, from several tasks at once."""

import asyncio
from multiprocessing.context import ForkServerProcess

from aforesaid.model.messages import Message
from aforesaid.stores.redis import RedisBackend
from tests.processes.forking import processes

TASKS = 8
TURNS = 5


def started_writer(url: str, owner: str, conversation_id: str, name: str) -> ForkServerProcess:
    process = processes.Process(target=_run, args=(url, owner, conversation_id, name), daemon=True)
    process.start()
    return process


def _run(url: str, owner: str, conversation_id: str, name: str) -> None:
    asyncio.run(_write(url, owner, conversation_id, name))


async def _write(url: str, owner: str, conversation_id: str, name: str) -> None:
    backend = RedisBackend(url)
    await backend.open()
    store = backend.of(owner)

    async def write(task: int) -> None:
        for turn in range(TURNS):
            key = f"{name}/{task}/{turn}"
            messages = [Message(role=role, content=[key, role]) for role in ("user", "tool", "assistant")]
            await store.append(conversation_id, messages)

    await asyncio.gather(*(write(task) for task in range(TASKS)))
    await backend.close()
