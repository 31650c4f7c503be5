"""Notifications over WebSocket frames: each to one connection, until it is confirmed or read."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from aforesaid.model.ids import new_id
from aforesaid.server.live import notices
from tests.builders import url_for
from tests.integration.server.live.parts import Client, HubSetup, open_hub


@pytest.fixture(params=["redis", "postgres"])
async def two(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[HubSetup, HubSetup]]:
    """Two server processes, as far as the store can tell. They send when the test says so."""
    url, owner = url_for(request.param, tmp_path, request), f"owner-{new_id()}"
    monkeypatch.setattr(notices, "NOTICE_SECONDS", 3600.0)
    async with AsyncExitStack() as stack:
        hubs = [await stack.enter_async_context(open_hub(url, owner=owner)) for _ in range(2)]
        for hub in hubs:
            acting = hub.erin
            monkeypatch.setattr(
                hub.live.services,
                "manager",
                lambda _, owner, who, acting=acting: acting if who is None else acting.as_participant(who),
            )
        yield hubs[0], hubs[1]


async def bob_at(hub: HubSetup, **fields: Any) -> Client:
    client = hub.client()
    ready = await client.hello(participant="bob", session_id=new_id(), notifications=True, **fields)
    assert ready["type"] == "ready", ready
    return client


async def meeting(hub: HubSetup) -> str:
    shared = (await hub.erin.get_or_create_conversation("roof")).id
    for participant in ("ann", "bob"):
        await hub.erin.set_participant(shared, participant)
    return shared


def notices_of(client: Client) -> list[dict[str, Any]]:
    return [frame for frame in client.frames if frame["type"] == "notifications"]


async def drained(client: Client) -> None:
    await client.send("ping")
    await client.until("pong")


async def test_one_connection_of_all_processes_gets_each_notification(
    two: tuple[HubSetup, HubSetup],
) -> None:
    one, other = two
    shared = await meeting(one)
    clients = [await bob_at(one), await bob_at(one), await bob_at(other)]
    await one.erin.add_message(shared, "user", "the roof leaks, @bob", author="ann", message_id="m1")
    for hub in (one, other, one, other):
        await hub.live.notices.send()
    for client in clients:
        await drained(client)
    found = [(client, frame) for client in clients for frame in notices_of(client)]
    assert len(found) == 1
    client, frame = found[0]
    assert [(item["message_id"], item["mentioned"]) for item in frame["notifications"]] == [("m1", True)]
    assert "leaks" not in str(frame)
    # Nobody else takes what is on its way; once it is confirmed, nobody gets it again.
    assert await one.erin.take_notifications(participant_id="bob") == []
    await client.send("notified", conversation_id=shared, claim=frame["claim"])
    await drained(client)
    assert await other.erin.notifications(participant_id="bob") == []
    # The marker of any device clears it where it was shown.
    await other.erin.mark_read_up_to(shared, "m1", participant_id="bob")
    for hub in (one, other):
        await hub.live.notices.send()
    await drained(client)
    assert [one["type"] for one in client.frames].count("notifications.cleared") == 1
    for each in clients:
        each.leave()


async def test_what_was_not_confirmed_is_sent_elsewhere_with_the_same_id(
    two: tuple[HubSetup, HubSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    shared = await meeting(one)
    await one.erin.add_message(shared, "user", "hello", author="ann", message_id="m1")
    lost, kept = await bob_at(one), await bob_at(other)
    await one.live.notices.send()
    await drained(lost)
    (first,) = notices_of(lost)
    lost.leave()
    await other.live.notices.send()
    await drained(kept)
    assert notices_of(kept) == []
    store = notices.owner_store(other.erin.store)
    later = store.now() + notices.LEASE * 2
    monkeypatch.setattr(type(store), "now", lambda self: later)
    await other.live.notices.send()
    await drained(kept)
    (second,) = notices_of(kept)
    assert second["notifications"][0]["id"] == first["notifications"][0]["id"]
    await kept.send("notified", conversation_id=shared, claim=first["claim"])
    assert (await kept.until("error"))["problem"]["status"] == 404
    await kept.send("notified", conversation_id=shared, claim=second["claim"])
    await drained(kept)
    assert await one.erin.notifications(participant_id="bob") == []
    kept.leave()


async def test_a_participant_who_watches_is_not_notified(two: tuple[HubSetup, HubSetup]) -> None:
    one, other = two
    shared = await meeting(one)
    here = one.client()
    await here.hello(participant="bob", conversation_id=shared, presence=True)
    await one.live.presences.share()
    away = await bob_at(other)
    await one.erin.add_message(shared, "user", "hello", author="ann", message_id="m1")
    await other.live.notices.send()
    await drained(away)
    assert notices_of(away) == []
    here.leave()
    await one.live.presences.share()
    await other.live.notices.send()
    await drained(away)
    assert len(notices_of(away)) == 1
    away.leave()


async def test_only_a_participant_asks_for_notifications() -> None:
    async with open_hub() as hub:
        client = hub.client()
        await client.send("hello", key="erin", session_id="s", notifications=True)
        assert (await client.next())["problem"]["status"] == 422
        client.leave()
