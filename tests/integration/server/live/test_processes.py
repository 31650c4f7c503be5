"""Two server processes on one store: one sees what is said to the other, and a killed one loses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed

import aforesaid
from tests.integration.server.live.parts import PATIENCE, words
from tests.integration.server.live.sockets import Socket, connecting
from tests.processes.live_server import start_server, stop_server
from tests.servers.postgres import Databases


class Node:
    def __init__(self, process: BaseProcess, port: int) -> None:
        self.process = process
        self.url = f"ws://127.0.0.1:{port}/ws"

    def connect(self) -> Any:
        return connecting(self.url)

    def kill(self) -> None:
        self.process.kill()


@asynccontextmanager
async def a_node(url: str) -> AsyncIterator[Node]:
    process, port = await asyncio.to_thread(start_server, url)
    try:
        yield Node(process, port)
    finally:
        await asyncio.to_thread(stop_server, process)


@pytest.fixture(params=["postgres", "sqlite"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes share: one that tells of changes, and one that is looked at."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/memory.db"
    databases: Databases = request.getfixturevalue("databases")
    return databases.furnished()


async def test_a_watcher_on_one_sees_what_is_said_to_the_other(shared_url: str) -> None:
    owner = f"erin-{uuid4()}"
    async with (
        a_node(shared_url) as one,
        a_node(shared_url) as other,
        one.connect() as speaker,
        other.connect() as watcher,
    ):
        ready = await speaker.hello(owner=owner, session_id="kitchen")
        await watcher.hello(owner=owner, conversation_id=ready["conversation"]["id"])
        seen: list[str] = []
        for number in range(5):
            await speaker.say(f"q{number}", f"question {number}")
        while len(seen) < 10:
            seen += words(await watcher.until("messages"))
        assert seen == [said for n in range(5) for said in (f"question {n}", f"you said question {n}")]


async def test_killing_one_loses_nothing_and_doubles_nothing(shared_url: str) -> None:
    """What was acknowledged is stored; what was not is sent again to the other, and is stored once."""
    owner = f"erin-{uuid4()}"
    questions = [f"question {number}" for number in range(24)]
    async with a_node(shared_url) as one, a_node(shared_url) as other, other.connect() as watcher:
        async with one.connect() as speaker:
            ready = await speaker.hello(owner=owner, session_id="kitchen")
            conversation_id = ready["conversation"]["id"]
            await watcher.hello(owner=owner, conversation_id=conversation_id)
            acknowledged, place = await talked_until_killed(speaker, one, questions)
        async with other.connect() as again:
            await again.hello(owner=owner, session_id="kitchen", place=place or ready["place"])
            for number in range(len(acknowledged), len(questions)):
                await again.say(f"q{number}", questions[number])
        expected = [said for question in questions for said in (question, f"you said {question}")]
        seen: list[str] = []
        while len(seen) < len(expected):
            seen += words(await watcher.until("messages"))
        assert seen == expected
    async with aforesaid.open(shared_url, models=aforesaid.Models(embedder=None)) as memory:
        stored = await memory.of(owner).messages(conversation_id, limit=1000)
        assert [message.content for message in stored] == expected


async def talked_until_killed(
    speaker: Socket, node: Node, questions: list[str]
) -> tuple[list[str], dict[str, int] | None]:
    """Ask one question after the other; the server is killed with some under way."""
    acknowledged: list[str] = []
    place = None
    try:
        for number, question in enumerate(questions):
            await speaker.send("text", id=f"q{number}", text=question)
            if number == 12:
                node.kill()
            done = await asyncio.wait_for(speaker.until("answer.done"), PATIENCE)
            acknowledged.append(done["id"])
            place = done["place"]
    except ConnectionClosed:
        pass
    assert 12 <= len(acknowledged) < len(questions)
    return acknowledged, place
