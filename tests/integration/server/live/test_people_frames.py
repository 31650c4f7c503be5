"""Participants, the assignee, notification rules and analytics over WebSocket frames."""

from tests.integration.server.live.parts import open_hub


async def test_a_client_changes_participants_assigns_and_asks_for_numbers_by_frames() -> None:
    async with open_hub() as hub:
        client = hub.client()
        roof = (await client.hello(session_id="s"))["conversation"]["id"]
        await client.send("participant", participant_id="bob", name="Bob", role="guest", history="from_now")
        added = await client.until("participant")
        assert (added["participant"]["name"], added["participant"]["role"]) == ("Bob", "guest")
        assert [one.id for one in await hub.erin.participants(roof)] == ["bob"]

        await client.send("rule", rule="mentions", participant_id="bob")
        assert (await client.until("rule"))["rule"] == "mentions"
        assert await hub.erin.notification_rule(roof, participant_id="bob") == "mentions"

        await client.send("assign", assignee="bob")
        assert (await client.until("assigned"))["conversation"]["assigned_to"] == "bob"
        await client.send("assign", id="a-2", assignee="eve")
        refused = await client.until("error")
        assert (refused["id"], refused["problem"]["status"]) == ("a-2", 409)
        assert (await hub.erin.get_conversation(roof)).assigned_to == "bob"

        await client.send("participant", participant_id="bob", role="left")
        assert (await client.until("participant"))["participant"]["role"] == "left"
        await client.send("analytics", id="n-1", by="day")
        numbers = await client.until("analytics")
        assert (numbers["id"], numbers["report"]["total"]["counts"]["opened"]) == ("n-1", 1)
        client.leave()


async def test_a_key_that_reads_changes_nothing() -> None:
    async with open_hub() as hub:
        roof = (await hub.erin.get_or_create_conversation("roof")).id
        client = hub.client()
        await client.hello(key="reader", conversation_id=roof)
        for kind, fields in (
            ("participant", {"participant_id": "bob"}),
            ("assign", {"assignee": "bob"}),
            ("rule", {"rule": "none", "participant_id": "bob"}),
        ):
            await client.send(kind, **fields)
            assert (await client.until("error"))["problem"]["status"] == 403
        assert await hub.erin.participants(roof) == []
        client.leave()
