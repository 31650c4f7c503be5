"""Watching while others write in the middle of every read and every append: a client misses nothing."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from aforesaid.errors import ConversationNotFound
from aforesaid.model.messages import Message
from aforesaid.server.live.feeds import FIRST_READ, Feed
from tests.builders import STORES, url_for
from tests.integration.server.live.interleaving import InterruptedStore, Reader, Writers, interrupt
from tests.integration.server.live.parts import HubSetup, open_hub, words

SEEDS = {"memory": 40, "sqlite": 6, "file": 3, "redis": 3, "postgres": 3}
SLOW_POLL = 600.0
"""Seconds between polls: none comes, so what a test sees does not depend on it."""


@pytest.fixture(params=STORES)
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HubSetup]:
    url = url_for(request.param, tmp_path, request)
    async with open_hub(url, owner=f"erin-{uuid4()}", poll_seconds=SLOW_POLL) as found:
        yield found


async def a_conversation(hub: HubSetup, *, messages: int) -> str:
    made = await hub.erin.get_or_create_conversation("kitchen")
    turn = [Message(role="user", content=f"m{n}", message_id=f"m{n}") for n in range(messages)]
    await hub.erin.append(made.id, turn)
    return made.id


@pytest.mark.parametrize("messages", [FIRST_READ - 1, FIRST_READ])
async def test_a_turn_stored_during_a_look_hides_no_redaction(hub: HubSetup, messages: int) -> None:
    """The look reads the record, then the end of the log, which by then has lost its oldest messages."""
    conversation_id = await a_conversation(hub, messages=messages)
    reads: list[str] = []

    async def between(name: str) -> None:
        reads.append(name)
        if reads == ["get", "get"]:
            turn = [Message(role="user", content=f"late {number}") for number in range(2)]
            await hub.erin.append(conversation_id, turn)

    feed = Feed(InterruptedStore(hub.erin.store, _nothing), conversation_id)
    await feed.start()
    feed.store.between = between  # type: ignore[attr-defined]
    await hub.erin.redact(conversation_id, "m0")
    await feed.refresh()
    await feed.refresh()
    assert feed.resets or [piece.sequence for _, piece in feed.changes] == [1]
    assert "late 1" in str([bytes(piece.body) for piece in feed.buffered_since(messages) or []])


async def _nothing(_: str) -> None:
    pass


async def test_a_message_redacted_before_its_turn_ends_arrives_redacted(hub: HubSetup) -> None:
    client = hub.client()
    conversation_id = ""

    async def between(name: str) -> None:
        if name == "append":
            await hub.erin.redact(conversation_id, "q1")
            await hub.live.feeds.refresh(hub.owner, conversation_id)

    interrupt(hub, between)
    ready = await client.hello(session_id="kitchen")
    conversation_id = ready["conversation"]["id"]
    reader = Reader(ready)
    await client.send("text", id="q1", text="my pin is marzipan")
    while "answer.done" not in [frame["type"] for frame in client.frames]:
        reader.take(await client.next())
    await reader.converges(client, hub)
    assert len(reader.held) == 2
    assert "marzipan" not in reader.held[1]


async def test_a_message_redacted_in_the_gap_arrives_redacted_with_the_answer(hub: HubSetup) -> None:
    """The turn is stored and redacted while no client watches, and ends when the client is back."""
    may_end, is_stored = asyncio.Event(), asyncio.Event()

    async def between(name: str) -> None:
        if name == "append":
            is_stored.set()
            await may_end.wait()

    interrupt(hub, between)
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    reader = Reader(ready)
    await client.send("text", id="q1", text="my pin is marzipan")
    await is_stored.wait()
    client.leave()
    await hub.erin.redact(reader.conversation_id, "q1")
    again = hub.client()
    reader.take(await again.hello(session_id="kitchen", place=reader.place))
    may_end.set()
    while (frame := await again.next())["type"] != "answer.done":
        reader.take(frame)
    reader.take(frame)
    await reader.converges(again, hub)
    assert len(reader.held) == 2
    assert "marzipan" not in reader.held[1]


async def test_a_turn_that_overtakes_another_leaves_none_of_its_messages_out(hub: HubSetup) -> None:
    """The first turn is stored and not over yet when a second one is stored and acknowledged."""
    client = hub.client()
    conversation_id, has_overtaken = "", asyncio.Event()

    async def between(name: str) -> None:
        if name == "append" and not has_begun.is_set():
            has_begun.set()
            await hub.live.feeds.refresh(hub.owner, conversation_id)
            await client.send("turn", id="g", messages=[{"role": "user", "content": "given"}])
            await has_overtaken.wait()

    has_begun = asyncio.Event()

    interrupt(hub, between)
    ready = await client.hello(session_id="kitchen")
    conversation_id = ready["conversation"]["id"]
    await client.send("text", id="q1", text="asked")
    await client.until("stored")
    has_overtaken.set()
    await client.until("answer.done")
    describe = [entry["sequence"] for frame in client.frames for entry in frame.get("entries", ())]
    assert describe == [1, 2]


async def test_a_given_message_that_was_redacted_since_comes_back_with_stored(hub: HubSetup) -> None:
    client = hub.client()
    conversation_id = ""

    async def between(name: str) -> None:
        if name == "append":
            await hub.erin.redact(conversation_id, "g")
            await hub.live.feeds.refresh(hub.owner, conversation_id)

    interrupt(hub, between)
    ready = await client.hello(session_id="kitchen")
    conversation_id = ready["conversation"]["id"]
    given = [{"role": "user", "content": "my pin is marzipan"}, {"role": "assistant", "content": "kept"}]
    await client.send("turn", id="g", messages=given)
    reader = Reader(ready)
    reader.held = {number: str(message["content"]) for number, message in enumerate(given, start=1)}
    await reader.converges(client, hub)
    assert "marzipan" not in reader.held[1]
    assert reader.held[2] == "kept"


async def test_all_watchers_hear_that_a_conversation_is_gone(hub: HubSetup) -> None:
    """Also when it is another watcher's reading that finds out."""
    conversation_id = await a_conversation(hub, messages=1)
    feed = Feed(hub.erin.store, conversation_id)
    await feed.start()
    woken = asyncio.Event()
    feed.join(woken.set)
    await hub.erin.delete_conversation(conversation_id)
    with pytest.raises(ConversationNotFound):
        await feed.current(limit=1)
    assert feed.gone
    assert woken.is_set()


async def test_an_unexpected_error_of_one_look_does_not_end_polling() -> None:
    failures = 0

    async def between(name: str) -> None:
        nonlocal failures
        if name == "get" and may_fail.is_set() and not failures:
            failures += 1
            raise RuntimeError("a defect")

    may_fail = asyncio.Event()
    async with open_hub(poll_seconds=0.001) as hub:
        interrupt(hub, between)
        client = hub.client()
        ready = await client.hello(session_id="kitchen")
        may_fail.set()
        await hub.erin.add_message(ready["conversation"]["id"], "user", "hello")
        assert words(await client.until("messages")) == ["hello"]
    assert failures == 1


async def test_clients_converge_whatever_is_written_in_the_middle_of_a_read(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    url = url_for(store, tmp_path, request)
    for seed in range(SEEDS[store]):
        owner = f"erin-{uuid4()}"
        async with open_hub(url, owner=owner, poll_seconds=0.001, turns_waiting=100) as hub:
            await play(hub, random.Random(seed))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        metafunc.parametrize("store", STORES)


async def play(hub: HubSetup, chance: random.Random) -> None:
    """Talk, leave and come back while others write in the middle of everything."""
    writers = Writers(hub, chance, writes=60)
    interrupt(hub, writers)
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    reader = Reader(ready)
    writers.conversation_id = reader.conversation_id
    for step in range(25):
        match chance.randrange(4):
            case 0:
                await client.send("text", id=f"q{step}", text=f"q{step}")
            case 1:
                await client.send("text", id=f"n{step}", text=f"n{step}", answer=False)
            case 2:
                await writers.write()
            case 3:
                client.leave()
                client = hub.client()
                reader.take(await client.hello(session_id="kitchen", place=reader.place))
        for _ in range(chance.randrange(3)):
            if (frame := await client.soon(0)) is not None:
                reader.take(frame)
    writers.stop()
    await client.send("text", id="last", text="the last words", answer=False)
    while "the last words" not in reader.held.values():
        reader.take(await client.next())
    await hub.live.feeds.refresh(hub.owner, reader.conversation_id)
    await reader.converges(client, hub)
