"""Branches behind a server give the same as in this process."""

import pytest

from aforesaid.errors import ConversationNotFound, InvalidInput, MergeConflict
from aforesaid.model.messages import Message
from tests.servers.remote import open_at


async def test_branches_through_a_server() -> None:
    async with open_at("behind+memory://", sweep_every=None) as memory:
        manager = memory.of("erin")
        await manager.append(
            "dinner",
            [
                Message(role="user", content="q1", message_id="q1"),
                Message(role="assistant", content="a1", message_id="a1"),
            ],
        )
        branch = await manager.fork("dinner", at="a1", subject="pie", request_id="once")
        assert (await manager.fork("dinner", at="a1", request_id="once")).id == branch.id
        assert branch.lineage[0].messages == 2
        await manager.append(branch.id, [Message(role="user", content="x", message_id="x")])
        assert [entry.message.content for entry in await manager.entries(branch.id, 9)] == ["q1", "a1", "x"]
        root, other = await manager.branches("dinner")
        assert (other.conversation_id, other.parent_id) == (branch.id, root.conversation_id)
        compared = await manager.compare("dinner", branch.id)
        assert (compared.shared, len(compared.only_there)) == (2, 1)
        assert compared.differences == {"subject": (None, "pie")}
        merged = await manager.merge("dinner", branch.id, fields=["subject"])
        assert (merged.added, merged.conversation.subject) == (1, "pie")
        await manager.append("dinner", [Message(role="user", content="on", message_id="on")])
        await manager.append(branch.id, [Message(role="user", content="y", message_id="y")])
        with pytest.raises(MergeConflict):
            await manager.merge("dinner", branch.id, how="adopt")
        await manager.link("dinner", branch.id)
        assert [one.id for one in await manager.links("dinner")] == [branch.id]
        await manager.unlink("dinner", branch.id)
        assert await manager.links("dinner") == []
        with pytest.raises(ConversationNotFound):
            await manager.fork("nothing")
        with pytest.raises(InvalidInput, match="how"):
            await manager.merge("dinner", branch.id, how="guess")  # type: ignore[arg-type]
