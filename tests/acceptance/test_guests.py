"""A guest learns nothing of what was said before they joined: histories that differ in it look the same."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aforesaid.errors import ConversationNotFound, NotAllowed
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.builders import Target

HIDDEN = ("the aubergine plan is secret", "nothing of interest")
QUESTIONS = ("aubergine", "aubergine roof", "roof", "plan secret", "welcome")


async def joined(manager: ConversationManager, hidden: str) -> ConversationManager:
    """Store hidden messages, let Gus join, and store more. Return what Gus has."""
    await manager.get_or_create_conversation("roof")
    await manager.set_participant("roof", "ann", role="manager")
    await manager.append("roof", [Message(role="user", content=hidden, author="ann", message_id="h1")])
    await manager.append("elsewhere", [Message(role="user", content=f"{hidden}, the roof", message_id="e1")])
    await manager.set_participant("roof", "gus", role="guest", may_write=True, history="from_now")
    await manager.append(
        "roof",
        [
            Message(role="user", content="welcome, the roof leaks", author="ann", message_id="m1"),
            Message(role="assistant", content="Somebody comes on Friday.", message_id="m2"),
        ],
    )
    return manager.as_participant("gus")


async def seen(gus: ConversationManager) -> list[Any]:
    """Return what Gus learns by every call that returns words or numbers."""
    found: list[Any] = []
    for question in QUESTIONS:
        findings = await gus.search(question, 10, min_relevance=0, explain=True)
        found += [(one.text, one.relevance, one.score, one.before, one.after) for one in findings.passages]
        found += [(one.message_count, one.score) for one in await gus.search_conversations(question)]
    found += [(one.name, one.message_count) for one in (await gus.list()).conversations]
    found += [(await gus.get_conversation("roof")).message_count]
    found += [message.content for message in await gus.messages("roof", 50)]
    found += [message.content for message in (await gus.load_context("roof")).messages]
    found += [await gus.unread("roof"), [one.message_id for one in await gus.notifications()]]
    stored = await gus.append("roof", [Message(role="user", content="thanks", message_id="g1")])
    return [*found, stored.conversation.message_count]


def test_what_was_said_before_a_guest_joined_changes_nothing_that_they_see(target: Target) -> None:
    async def scenario(hidden: str, manager: ConversationManager) -> list[Any]:
        return await seen(await joined(manager, hidden))

    one, other = (target.run(partial(scenario, hidden)) for hidden in HIDDEN)
    assert one == other
    assert sum("welcome" in str(each) for each in one) > 3, "Gus finds what was said since"


def test_someone_who_takes_part_in_a_branch_only_reads_and_finds_all_of_it(
    target: Target, tmp_path: Path
) -> None:
    async def scenario(manager: ConversationManager) -> None:
        await manager.append(
            "roof",
            [
                Message(role="user", content="The zanzibar roof leaks.", message_id="m1"),
                Message(role="assistant", content="We come on Friday.", message_id="m2"),
            ],
        )
        branch = (await manager.fork("roof")).id
        await manager.append("roof", [Message(role="user", content="zanzibar again", message_id="m3")])
        await manager.set_participant(branch, "bea", may_write=True)
        bea = manager.as_participant("bea")
        found = (await bea.search("zanzibar", min_relevance=0)).passages
        assert [(one.conversation_id, one.text) for one in found] == [(branch, "The zanzibar roof leaks.")]
        assert [one.id for one in await bea.search_conversations("zanzibar")] == [branch]
        with pytest.raises(NotAllowed, match="conversation in which"):
            await bea.redact(branch, "m2")  # it would change in a conversation that is not Bea's
        with pytest.raises(ConversationNotFound):
            await bea.messages("roof")
        assert [message.content for message in await manager.messages("roof")][1] == "We come on Friday."
        await bea.export(tmp_path / "bea")
        await manager.delete_conversation("roof")
        await bea.redact(branch, "m2")  # the message has moved to the branch

    target.run(scenario)
