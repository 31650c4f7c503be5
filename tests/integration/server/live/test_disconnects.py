"""Clients converge when the connections on which their server hears of changes are killed."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from redis.asyncio import Redis

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.builders import url_for
from tests.integration.server.live.interleaving import Reader
from tests.integration.server.live.parts import Client, HubSetup, open_hub
from tests.servers.remote import open_at

Kill = Callable[[], Awaitable[None]]

LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


async def kill_in_postgres(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(LISTENERS.encode())


async def kill_in_redis(url: str) -> None:
    client: Any = Redis.from_url(url.partition("?")[0])
    await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await client.aclose()


KILLS = {"postgres": kill_in_postgres, "redis": kill_in_redis}


@pytest.mark.parametrize("store", list(KILLS))
@pytest.mark.parametrize("seed", range(3))
async def test_a_client_converges_when_the_listening_connection_is_killed(
    store: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Another process writes. Where the store tells of changes, polling comes too late to help."""
    url = url_for(store, tmp_path, request)
    owner = f"erin-{uuid4()}"
    async with (
        open_hub(url, owner=owner, poll_seconds=0.01, watched_poll_seconds=3600.0) as hub,
        open_at(url, sweep_every=None, preload=False, embedder=None) as elsewhere,
    ):

        async def kill() -> None:
            await KILLS[store](url)

        await play(hub, elsewhere.of(owner), kill, random.Random(seed))


async def play(hub: HubSetup, other: ConversationManager, kill: Kill, chance: random.Random) -> None:
    client = hub.client()
    reader = Reader(await client.hello(session_id="kitchen"))
    for step in range(40):
        match chance.randrange(6):
            case 0 | 1 | 2:
                said = Message(role="user", content=f"m{step}", message_id=f"m{step}")
                await other.append(reader.conversation_id, [said])
            case 3:
                await redact_one(other, reader.conversation_id, chance)
            case 4:
                await kill()
            case 5:
                client = await again(hub, client, reader)
        if (frame := await client.soon(0)) is not None:
            reader.take(frame)
    await reader.converges(client, hub)


async def redact_one(other: ConversationManager, conversation_id: str, chance: random.Random) -> None:
    ids = [each.message_id for each in await other.messages(conversation_id) if each.message_id]
    if ids:
        await other.redact(conversation_id, chance.choice(ids))


async def again(hub: HubSetup, client: Client, reader: Reader) -> Client:
    client.leave()
    client = hub.client()
    reader.take(await client.hello(session_id="kitchen", place=reader.place))
    return client
