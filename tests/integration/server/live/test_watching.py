"""Watching without sockets, on every store: each message once and in order, also after a gap."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from aforesaid.model.messages import Message
from aforesaid.server.live import feeds, watches
from tests.builders import STORES, url_for
from tests.integration.server.live.interleaving import Reader
from tests.integration.server.live.parts import Client, HubSetup, open_hub, words

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(params=STORES)
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HubSetup]:
    async with open_hub(url_for(request.param, tmp_path, request), owner=f"erin-{uuid4()}") as found:
        yield found


async def seen_until(client: Client, last: str) -> list[str]:
    """Collect all words that a watcher receives, until these words."""
    found: list[str] = []
    while last not in found:
        frame = await client.next()
        if frame["type"] == "reset":
            found = words(frame)
        elif frame["type"] in ("messages", "ready", "watching"):
            found += words(frame)
    return found


async def test_a_watcher_receives_what_others_store(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    erin = hub.erin
    for number in range(5):
        await erin.append(ready["conversation"]["id"], [Message(role="user", content=f"message {number}")])
    assert await seen_until(client, "message 4") == [f"message {number}" for number in range(5)]


async def test_two_who_talk_in_one_conversation_see_the_same_order(hub: HubSetup) -> None:
    one, other = hub.client(), hub.client()
    ready = await one.hello(session_id="kitchen")
    await other.hello(conversation_id=ready["conversation"]["id"])
    for number in range(6):
        await (one if number % 2 else other).send("text", id=f"q{number}", text=f"q{number}")
    orders = []
    for client in (one, other):
        sequences: list[int] = []
        while len(sequences) < 12:
            frame = await client.next()
            sequences += [entry["sequence"] for entry in frame.get("entries", ())]
        orders.append(sequences)
    assert orders[0] == orders[1] == sorted(orders[0])


async def test_a_resumed_client_gets_what_it_missed_and_nothing_twice(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    done = await client.say("q1", "hello")
    client.leave()
    erin = hub.erin
    for number in range(3):
        await erin.append(
            ready["conversation"]["id"],
            [Message(role="user", content=f"u{number}"), Message(role="assistant", content=f"a{number}")],
        )
    again = hub.client()
    resumed = await again.hello(session_id="kitchen", place=done["place"])
    assert resumed["resumed"]
    assert resumed["entries"] == []
    assert await seen_until(again, "a2") == ["u0", "a0", "u1", "a1", "u2", "a2"]


async def test_an_answer_under_way_is_finished_and_the_resumed_client_gets_it(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    hub.agent.may_go_on.clear()
    await client.send("text", id="q1", text="hello")
    assert (await client.until("answer.delta"))["text"] == "you "
    client.leave()
    again = hub.client()
    resumed = await again.hello(session_id="kitchen", place=ready["place"])
    assert resumed["answering"] == ["q1"]
    assert (await again.next())["text"] == "you "
    hub.agent.may_go_on.set()
    done = await again.until("answer.done")
    assert words(done) == ["hello", "you said hello"]
    assert hub.agent.asked == ["hello"]


async def test_an_answer_that_was_stored_in_the_gap_is_not_made_again(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    await client.say("q1", "hello")
    client.leave()
    again = hub.client()
    await again.hello(session_id="kitchen", place=ready["place"])
    assert await seen_until(again, "you said hello") == ["hello", "you said hello"]
    repeated = await again.say("q1", "hello")
    assert repeated["repeated"]
    assert repeated["text"] == "you said hello"
    assert repeated["entries"] == []
    assert hub.agent.asked == ["hello"]


async def test_a_changed_record_is_sent(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    erin = hub.erin
    client_id = "7d5b5c2e-6f3a-4a43-9c86-3f2c8a2d9b01"
    await erin.clients.add("Johnson", client_id=client_id)
    await erin.associate_client(ready["conversation"]["id"], client_id, "Johnson")
    describe = await client.until("conversation")
    assert describe["conversation"]["client_name"] == "Johnson"
    assert describe["place"]["revision"] == 1


async def test_a_redacted_message_is_sent_without_its_words(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    await client.say("q1", "my pin is marzipan")
    await hub.erin.redact(ready["conversation"]["id"], "q1")
    changed = await client.until("changed")
    assert [entry["sequence"] for entry in changed["entries"]] == [1]
    assert "marzipan" not in str(changed)


async def test_a_message_redacted_in_the_gap_is_sent_to_the_resumed_client(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    done = await client.say("q1", "my pin is marzipan")
    client.leave()
    await hub.erin.redact(ready["conversation"]["id"], "q1")
    again = hub.client()
    await again.hello(session_id="kitchen", place=done["place"])
    changed = await again.until("changed")
    assert [entry["sequence"] for entry in changed["entries"]] == [1]
    assert "marzipan" not in str(changed)


async def test_a_log_that_is_cleared_starts_over(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    done = await client.say("q1", "hello")
    erin = hub.erin
    await erin.clear_history(ready["conversation"]["id"])
    reset = await client.until("reset")
    assert reset["entries"] == []
    await erin.add_message(ready["conversation"]["id"], "user", "a new start")
    assert await seen_until(client, "a new start") == ["a new start"]
    again = hub.client()
    await again.hello(session_id="kitchen", place=done["place"])
    assert words(await again.until("reset")) == ["a new start"]


async def test_a_conversation_that_is_deleted_is_gone(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    await hub.erin.delete_conversation(ready["conversation"]["id"])
    assert (await client.until("gone"))["conversation_id"] == ready["conversation"]["id"]
    await client.send("text", id="q1", text="anybody?")
    assert (await client.next())["problem"]["status"] == 404
    assert len(hub.live.feeds) == 0


async def test_a_backdated_message_is_sent_too(hub: HubSetup) -> None:
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    erin = hub.erin
    for number in range(30):
        await erin.add_message(ready["conversation"]["id"], "user", f"m{number}")
    await erin.add_message(ready["conversation"]["id"], "user", "from long ago", timestamp=LONG_AGO)
    describe = await seen_until(client, "from long ago")
    assert describe[-1] == "from long ago"
    assert describe[:-1] == [f"m{number}" for number in range(30)]


async def test_a_slow_reader_gets_a_notice_and_misses_nothing(
    hub: HubSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "BUFFER_ENTRIES", 4)
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    conversation_id = ready["conversation"]["id"]
    erin = hub.erin
    for number in range(40):
        await erin.add_message(conversation_id, "user", f"m{number}")
    await hub.live.feeds.refresh(hub.owner, conversation_id)
    lagging = await client.next()
    assert (lagging["type"], lagging["behind"]) == ("lagging", 40)
    assert await seen_until(client, "m39") == [f"m{number}" for number in range(40)]


async def test_who_was_away_for_very_long_gets_all_of_it_in_pages(
    hub: HubSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_READ", 16)
    monkeypatch.setattr(watches, "MAX_READ", 16)
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    client.leave()
    turn = [Message(role="user", content=f"m{number}") for number in range(70)]
    await hub.erin.append(ready["conversation"]["id"], turn)
    await hub.erin.add_message(ready["conversation"]["id"], "user", "the last")
    again = hub.client()
    await again.hello(session_id="kitchen", place=ready["place"])
    assert await seen_until(again, "the last") == [f"m{number}" for number in range(70)] + ["the last"]
    assert "reset" not in [frame["type"] for frame in again.frames]


async def test_an_owner_sees_nothing_of_another(hub: HubSetup) -> None:
    client, theirs = hub.client(), hub.client()
    await client.hello(session_id="kitchen")
    await theirs.hello(key="sam", session_id="kitchen")
    await theirs.say("q1", "my secret")
    await client.say("q1", "hello")
    assert "secret" not in str(client.frames)


async def test_connections_that_leave_leave_nothing_behind(hub: HubSetup) -> None:
    for _ in range(3):
        clients = [hub.client() for _ in range(3)]
        for client in clients:
            await client.hello(session_id="kitchen")
            await client.say(str(id(client)), "hello")
        for client in clients:
            client.leave()
    assert len(hub.live.feeds) == 0
    assert len(hub.live.turns) == 0
    await hub.live.presences.share()
    assert not hub.live.presences._watched
    assert not hub.live.presences._leaving
    assert not hub.live._concurrency._open


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_a_watcher_ends_up_with_what_is_stored(hub: HubSetup, seed: int) -> None:
    """Writers, redactions, broken connections in any order: messages once, in order, and as they are."""
    chance = random.Random(seed)
    client = hub.client()
    ready = await client.hello(session_id="kitchen")
    reader = Reader(ready)
    conversation_id, erin = reader.conversation_id, hub.erin
    for step in range(25):
        match chance.randrange(6):
            case 0 | 1:
                turn = [
                    Message(role="user", content=f"s{step}.{n}", message_id=f"s{step}.{n}") for n in range(2)
                ]
                await erin.append(conversation_id, turn)
            case 2:
                await client.send("text", id=f"q{step}", text=f"q{step}")
            case 3:
                ids = [m.message_id for m in await erin.messages(conversation_id) if m.message_id]
                if ids:
                    await erin.redact(conversation_id, chance.choice(ids))
            case 4:
                client.leave()
                client = hub.client()
                reader.take(await client.hello(session_id="kitchen", place=reader.place))
            case 5:
                await erin.mark_read(conversation_id)
        for _ in range(chance.randrange(3)):
            if (frame := await client.soon(0)) is not None:
                reader.take(frame)
    await client.send("text", id="last", text="the last question", answer=False)
    while "the last question" not in reader.held.values():
        reader.take(await client.next())
    await hub.live.feeds.refresh(hub.owner, conversation_id)
    await reader.converges(client, hub)
