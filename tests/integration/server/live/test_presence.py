"""Presence, typing and read markers: within a process at once, across processes by leases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from aforesaid.agents.turn_order import running_questions
from aforesaid.errors import AgentError
from aforesaid.model.ids import new_id
from aforesaid.server.live import presence
from tests.builders import STORES, url_for
from tests.integration.server.live.parts import Client, HubSetup, open_hub


@pytest.fixture(params=["redis", "postgres"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[HubSetup, HubSetup]]:
    """Two server processes, as far as the store can tell. They exchange their state when the test says so."""
    url, owner = url_for(request.param, tmp_path, request), f"owner-{new_id()}"
    async with AsyncExitStack() as stack:
        hubs = [await stack.enter_async_context(open_hub(url, owner=owner)) for _ in range(2)]
        yield hubs[0], hubs[1]


async def exchange(two: tuple[HubSetup, HubSetup]) -> None:
    for _ in range(2):
        for hub in two:
            await hub.live.presences.share()


async def joined(hub: HubSetup, conversation_id: str, name: str, **fields: Any) -> Client:
    client = hub.client()
    given = {"conversation_id": conversation_id, "name": name, "presence": True}
    await client.hello(**given | fields)
    return client


async def present(client: Client, *names: str) -> dict[str, Any]:
    """Wait for the frame that lists exactly these names."""
    while True:
        frame = await client.until("presence")
        if frame["here"] == sorted(names):
            return frame


async def test_clients_of_two_processes_see_each_other(two: tuple[HubSetup, HubSetup]) -> None:
    one, other = two
    shared = (await one.erin.get_or_create_conversation("s")).id
    before = (await one.erin.get_conversation(shared)).revision
    ann = await joined(one, shared, "Ann")
    bob = await joined(other, shared, "Bob")
    await exchange(two)
    await present(ann, "Ann", "Bob")
    await present(bob, "Ann", "Bob")
    bob.leave()
    await exchange(two)
    await present(ann, "Ann")
    assert (await one.erin.get_conversation(shared)).revision == before
    ann.leave()


async def test_typing_reaches_the_other_process_and_ends_by_itself(
    two: tuple[HubSetup, HubSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    shared = (await one.erin.get_or_create_conversation("s")).id
    ann = await joined(one, shared, "Ann")
    bob = await joined(other, shared, "Bob")
    await exchange(two)
    await ann.send("typing", active=True)
    await exchange(two)
    started = await bob.until("typing")
    assert (started["role"], started["active"], started["name"]) == ("user", True, "Ann")
    later = one.live.presences._now() + presence.TYPING_SECONDS
    monkeypatch.setattr(one.live.presences, "_now", lambda: later)
    one.live.presences.tick()
    await exchange(two)
    assert (await bob.until("typing"))["active"] is False
    ann.leave()
    bob.leave()


async def test_a_client_whose_process_ended_disappears_with_its_lease(
    two: tuple[HubSetup, HubSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    shared = (await one.erin.get_or_create_conversation("s")).id
    ann = await joined(one, shared, "Ann")
    bob = await joined(other, shared, "Bob")
    await exchange(two)
    await present(ann, "Ann", "Bob")
    # Its process says nothing any more, and the clock of the store goes on.
    other.live.presences._watched.clear()
    watched = one.live.presences._watched[one.owner, shared]
    assert watched.store is not None
    now = watched.store.now() + presence.LEASE * 2
    monkeypatch.setattr(type(watched.store), "now", lambda self: now)
    await one.live.presences.share()
    await present(ann, "Ann")
    ann.leave()
    bob.leave()


async def test_a_read_marker_reaches_the_other_process(
    two: tuple[HubSetup, HubSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    shared = await meeting(one)
    for hub in two:
        as_participants(hub, monkeypatch)
    ann = await joined(one, shared, "Ann", participant="ann")
    bob = await joined(other, shared, "Bob", participant="bob")
    await bob.send("read", message_id="m1")
    await exchange(two)
    read = await ann.until("read")
    assert (read["participant_id"], read["message_id"]) == ("bob", "m1")
    ann.leave()
    bob.leave()


async def meeting(hub: HubSetup) -> str:
    """Return a conversation of Ann and Bob."""
    shared = (await hub.erin.get_or_create_conversation("s")).id
    for participant in ("ann", "bob"):
        await hub.erin.set_participant(shared, participant)
    await hub.erin.add_message(shared, "user", "hello", author="ann", message_id="m1")
    return shared


def as_participants(hub: HubSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = hub.erin
    monkeypatch.setattr(hub.live.services, "manager", lambda _, owner, who: manager.as_participant(who))


@pytest.mark.parametrize("store", STORES)
async def test_a_participant_is_listed_with_the_time_of_their_last_visit(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, owner = url_for(store, tmp_path, request), f"owner-{new_id()}"
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(open_hub(url, owner=owner))
        shared = await meeting(hub)
        as_participants(hub, monkeypatch)
        ann = await joined(hub, shared, "Ann", participant="ann")
        bob = await joined(hub, shared, "Bob", participant="bob")
        bob.leave()
        last_seen = (await offline(ann, "bob"))["last_seen"]
        assert last_seen is not None
        await hub.live.presences.share()
        ann.leave()
        await hub.live.presences.share()
        # Another visit, when nobody was here any more.
        ann = await joined(hub, shared, "Ann", participant="ann")
        await hub.live.presences.share()
        assert (await offline(ann, "bob"))["last_seen"] == last_seen
        await hub.erin.erase_participant("bob")
        assert not await hub.erin.store.documents(presence.KIND, conversation_id=shared, after="seen/b")
        ann.leave()


async def offline(client: Client, participant: str) -> dict[str, Any]:
    """Wait for the frame that lists this participant as offline."""
    while True:
        for one in (await client.until("presence"))["people"]:
            if one["participant_id"] == participant and one["state"] == "offline":
                found: dict[str, Any] = one
                return found


async def test_a_client_that_joins_while_others_are_written_is_written_too(
    two: tuple[HubSetup, HubSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    shared = (await one.erin.get_or_create_conversation("s")).id
    ann = await joined(one, shared, "Ann")
    bob = await joined(other, shared, "Bob")
    late: list[Client] = []
    watched = one.live.presences._watched[one.owner, shared]
    put = watched._put

    async def joining(key: str, state: Any) -> None:
        if not late:
            late.append(await joined(one, shared, "Cid"))
        await put(key, state)

    monkeypatch.setattr(watched, "_put", joining)
    await exchange(two)
    await present(bob, "Ann", "Bob", "Cid")
    for client in (ann, bob, *late):
        client.leave()


async def test_a_client_that_sends_nothing_is_away() -> None:
    async with open_hub() as hub:
        shared = (await hub.erin.get_or_create_conversation("s")).id
        ann = await joined(hub, shared, "Ann")
        hub.clock.now += 301
        bob = await joined(hub, shared, "Bob")
        people = (await present(bob, "Ann", "Bob"))["people"]
        assert {one["name"]: one["state"] for one in people} == {"Ann": "away", "Bob": "here"}
        ann.leave()
        bob.leave()


async def answering(client: Client, *ids: str) -> None:
    """Wait for the frame that lists exactly these questions as being answered."""
    while (await client.until("presence")).get("answering", []) != list(ids):
        pass


async def test_clients_of_all_processes_learn_which_questions_are_being_answered(
    two: tuple[HubSetup, HubSetup],
) -> None:
    one, other = two
    shared = (await one.erin.get_or_create_conversation("s")).id
    ann = await joined(one, shared, "Ann", session_id="s")
    bob = await joined(other, shared, "Bob")
    one.agent.may_go_on.clear()
    await ann.send("text", id="q1", text="hello")
    await one.agent.has_begun.wait()
    one.live.presences.tick()
    await answering(ann, "q1")
    await exchange(two)
    await answering(bob, "q1")
    late = await joined(other, shared, "Cy")
    await answering(late, "q1")
    one.agent.may_go_on.set()
    await ann.until("answer.done")
    while running_questions(one.erin, shared):  # the turn ends after its last frame
        await exchange(two)
    one.live.presences.tick()
    await exchange(two)
    for client in (ann, bob, late):
        await answering(client)
        client.leave()


async def test_an_answer_that_fails_is_no_longer_on_its_way(
    two: tuple[HubSetup, HubSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, _ = two
    shared = (await hub.erin.get_or_create_conversation("s")).id
    ann = await joined(hub, shared, "Ann", session_id="s")
    begun, may_fail = asyncio.Event(), asyncio.Event()

    async def fail(*_: Any, **__: Any) -> None:
        begun.set()
        await may_fail.wait()
        raise AgentError("no model")

    monkeypatch.setattr(hub.agent, "reply", fail)
    await ann.send("text", id="q1", text="hello")
    await begun.wait()
    hub.live.presences.tick()
    await answering(ann, "q1")
    may_fail.set()
    await ann.until("answer.failed")
    hub.live.presences.tick()
    await answering(ann)
    assert [turn.id for turn in await hub.erin.unanswered(shared)] == ["q1"]
    ann.leave()
