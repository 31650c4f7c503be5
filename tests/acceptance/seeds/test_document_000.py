"""The research on context management, as printed."""

from uuid import UUID

import pytest

from aforesaid.compat import AgenticLoop, ChatterboxConversationEntity, ConversationInput
from aforesaid.dialects import meaning_of
from aforesaid.memory.manager import ConversationManager
from tests.acceptance.seeds.printed import printed, run
from tests.builders import Target
from tests.doubles import Scripted


def entity_of(block: str) -> str:
    """Return the block with its elided arguments: the loop, and the memory where the store is."""
    return "entity = " + printed(block).replace("...,", "loop, memory=manager,")


@pytest.mark.requirement("000-001", "000-003", "000-011", "000-012")
def test_the_last_twenty_turns_are_sent(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        agent = Scripted(*(f"answer {number}" for number in range(23)))
        names = await run(
            entity_of("000-01"),
            ChatterboxConversationEntity=ChatterboxConversationEntity,
            loop=AgenticLoop(agent),
            manager=manager,
        )
        for number in range(23):
            said = ConversationInput(f"question {number}", conversation_id="kitchen")
            result = await names["entity"].async_process(said)
            assert (result.response_text, result.conversation_id) == (f"answer {number}", "kitchen")
        sent = [(message.role, meaning_of(message).text) for message in agent.asked[-1].messages]
        turns = [
            one for at in range(2, 22) for one in (("user", f"question {at}"), ("assistant", f"answer {at}"))
        ]
        assert sent == [*turns, ("user", "question 22")]

    target.run(scenario)


@pytest.mark.requirement("000-011", "000-015")
def test_an_id_is_created_and_continues_the_session(target: Target) -> None:
    async def scenario(manager: ConversationManager) -> None:
        agent = Scripted("hello", "again")
        names = await run(
            entity_of("000-02"),
            ChatterboxConversationEntity=ChatterboxConversationEntity,
            loop=AgenticLoop(agent),
            manager=manager,
        )
        first = await names["entity"].async_process(ConversationInput("hi"))
        assert UUID(first.conversation_id).version == 4
        said = ConversationInput("and now?", conversation_id=first.conversation_id)
        assert (await names["entity"].async_process(said)).conversation_id == first.conversation_id
        assert [meaning_of(message).text for message in agent.asked[1].messages] == [
            "hi",
            "hello",
            "and now?",
        ]

    target.run(scenario)
