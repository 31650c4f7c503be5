"""`aforesaid participants`, `notifications` and `webhooks`: people of a conversation, and what they hear."""

import asyncio
import json

import aforesaid
from aforesaid.cli.runtime import DEFAULT_OWNER
from tests.integration.cli.conftest import Run


def write(*message_ids: str) -> None:
    async def work() -> None:
        async with aforesaid.open("sqlite:///aforesaid-demo.db") as memory:
            manager = memory.of(DEFAULT_OWNER)
            await manager.get_or_create_conversation("roof")
            for message_id in message_ids:
                await manager.add_message("roof", "user", "hello", message_id=message_id, author="ann")

    asyncio.run(work())


def meeting(run: Run) -> None:
    write()
    run("participants", "set", "roof", "ann")
    run("participants", "set", "roof", "bob", "--name", "Bob")


def test_notifications_are_listed_taken_once_and_follow_the_rule(run: Run) -> None:
    meeting(run)
    write("m1", "m2")
    assert "No notifications" in run("notifications", "list", "ann").output
    listed = json.loads(run("notifications", "list", "bob", "--json").output)
    assert [one["message_id"] for one in listed] == ["m1", "m2"]
    assert "hello" not in json.dumps(listed)
    assert "m2" in run("notifications", "list", "bob", "--take").output
    assert "No notifications" in run("notifications", "list", "bob").output
    assert run("notifications", "rule", "roof", "bob").output == "bob: all\n"
    assert json.loads(run("notifications", "rule", "roof", "bob", "none", "--json").output)["rule"] == "none"
    write("m3")
    assert "No notifications" in run("notifications", "list", "bob").output
    run("notifications", "rule", "roof", "bob", "sometimes", code=2)
    run("notifications", "rule", "roof", "eve", "all", code=3)


def test_a_webhook_shows_its_secret_once(run: Run) -> None:
    meeting(run)
    assert "No webhooks" in run("webhooks", "list").output
    made = run("webhooks", "set", "bob", "https://hooks.example.org/bob").output
    assert "whsec_" in made
    assert "webhook_hosts" in made
    listed = run("webhooks", "list", "--json").output
    assert json.loads(listed)[0]["url"] == "https://hooks.example.org/bob"
    assert "secret" not in listed
    assert "hooks.example.org" in run("webhooks", "list").output
    run("webhooks", "set", "bob", "http://hooks.example.org/bob", code=2)
    assert run("webhooks", "remove", "bob").output == "Removed.\n"
    run("webhooks", "remove", "bob", code=1)


def test_reading_and_assigning(run: Run) -> None:
    meeting(run)
    write("m1", "m2", "m3")
    assert run("participants", "read", "roof", "bob").output == "bob: 3 unread messages\n"
    assert run("participants", "read", "roof", "bob", "m2").output == "bob: 1 unread message\n"
    assert json.loads(run("participants", "read", "roof", "bob", "m1", "--json").output)["unread"] == 1
    assert "m2" in run("participants", "list", "roof").output
    assert run("participants", "assign", "roof", "bob").output == "Assigned to bob.\n"
    taken = run("participants", "assign", "roof", "ann", code=1)
    assert "bob" in taken.stderr
    assert run("participants", "assign", "roof", "--expected", "bob").output == "Assigned to no one.\n"
