"""Branches and links over WebSocket frames."""

from aforesaid.model.ids import new_id
from tests.integration.server.live.parts import Client, open_hub


async def test_a_client_forks_compares_merges_and_links_by_frames() -> None:
    async with open_hub() as hub:
        client = hub.client()
        ready = await client.hello(session_id="s")
        parent = ready["conversation"]["id"]
        await client.say("q1", "one")
        await client.say("q2", "two")
        for _ in range(2):  # the second is a repetition
            await client.send("fork", id="f-1", message_id="q2", subject="other")
        first, again = await client.until("forked"), await client.until("forked")
        branch = first["conversation"]["id"]
        assert again["conversation"]["id"] == branch
        await client.send("watch", conversation_id=branch)
        watching = await client.until("watching")
        assert [one["message"]["content"] for one in watching["entries"]] == ["one", "you said one"]
        await client.say("q3", "three", conversation_id=branch)

        await client.send("branches")
        tree = (await client.until("branches"))["branches"]
        assert [(one["conversation_id"], one["parent_id"]) for one in tree] == [
            (parent, None),
            (branch, parent),
        ]
        await client.send("compare", other_id=branch)
        compared = (await client.until("comparison"))["comparison"]
        assert (compared["shared"], len(compared["only_here"]), len(compared["only_there"])) == (2, 2, 2)
        await client.send("merge", id="x", branch_id=branch, how="adopt")
        refused = await client.until("error")
        assert (refused["id"], refused["problem"]["status"]) == ("x", 409)
        await client.send("merge", branch_id=branch)
        assert (await client.until("merged"))["merged"]["added"] == 2
        assert "three" in str(client.frames) or "three" in str(await client.until("messages"))

        other = (await hub.erin.get_or_create_conversation(new_id())).id
        await client.send("link", other_id=other)
        assert [one["id"] for one in (await client.until("links"))["conversations"]] == [other]
        await client.send("unlink", other_id=other)
        assert (await client.until("links"))["conversations"] == []
        await client.send("links")
        assert (await client.until("links"))["conversations"] == []
        client.leave()


async def test_a_watcher_of_a_branch_gets_changes_of_the_shared_part() -> None:
    async with open_hub() as hub:
        parent = (await hub.erin.get_or_create_conversation("dinner")).id
        await hub.erin.add_message(parent, "user", "a secret", message_id="m1")
        await hub.erin.add_message(parent, "assistant", "noted", message_id="m2")
        branch = (await hub.erin.fork(parent)).id
        client = hub.client()
        ready = await client.hello(conversation_id=branch)
        assert [one["message"]["content"] for one in ready["entries"]] == ["a secret", "noted"]
        await hub.erin.redact(parent, "m1")
        changed = await client.until("reset")
        assert changed["conversation"]["id"] == branch
        assert "a secret" not in str(changed)
        client.leave()


async def test_a_key_that_reads_does_not_fork() -> None:
    async with open_hub() as hub:
        conversation = (await hub.erin.get_or_create_conversation("s")).id
        client: Client = hub.client()
        await client.hello(key="reader", conversation_id=conversation)
        for kind, fields in (("fork", {"id": "f"}), ("merge", {"branch_id": conversation})):
            await client.send(kind, **fields)
            assert (await client.until("error"))["problem"]["status"] == 403
        await client.send("branches")
        assert len((await client.until("branches"))["branches"]) == 1
        client.leave()
