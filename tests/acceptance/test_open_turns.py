"""Persistence First: the user's words are stored before an agent is asked."""

import asyncio
from typing import Any

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.errors import AgentUnavailable, ConversationNotFound, InvalidInput, MessageConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.builders import Target
from tests.doubles import InTurn, Scripted


def asked(text: str, message_id: str) -> Message:
    return Message(role="user", content=text, message_id=message_id)


def supervisor_of(manager: ConversationManager, agent: Any) -> SupervisorAgent:
    return SupervisorAgent(manager, [Specialist(loop=AgenticLoop(agent))])


async def contents(manager: ConversationManager, conversation_id: str) -> list[Any]:
    return [message.content for message in await manager.messages(conversation_id)]


async def waiting(manager: ConversationManager, conversation_id: str) -> list[Any]:
    return [turn.messages[0].content for turn in await manager.unanswered(conversation_id)]


def test_the_words_are_stored_while_the_agent_works_and_stay_when_it_fails(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        record = await erin.get_or_create_conversation("s")

        class Looking(Scripted):
            async def reply(self, ask: Any, *, on_text: Any = None) -> Any:
                assert await waiting(erin, record.id) == ["Is it cold?"]
                return await super().reply(ask, on_text=on_text)

        supervisor = supervisor_of(erin, Looking(AgentUnavailable("503")))
        await supervisor.process_query("Is it cold?", "s", record.id)
        assert await contents(erin, record.id) == []
        assert await waiting(erin, record.id) == ["Is it cold?"]
        later = Scripted("Noted.", "Very.")
        await supervisor_of(erin, later).process_query("Buy milk.", "s", record.id)
        assert [message.content for message in later.asked[0].messages] == ["Buy milk."]
        assert [message["content"] for message in await erin.load_context(record.id)] == [
            "Buy milk.",
            "Noted.",
        ]
        await supervisor_of(erin, later).answer_unanswered(record.id)
        assert await contents(erin, record.id) == ["Buy milk.", "Noted.", "Is it cold?", "Very."]
        assert await waiting(erin, record.id) == []

    target.run(scenario)


def test_turns_that_overlap_read_whole(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        record = await erin.get_or_create_conversation("s")
        agent = InTurn("one", "two")
        supervisor = supervisor_of(erin, agent)
        turns = []
        for number, question in enumerate(("first?", "second?")):
            turns.append(asyncio.ensure_future(supervisor.process_query(question, "s", record.id)))
            await agent.is_asked[number].wait()
        assert await waiting(erin, record.id) == ["first?", "second?"]
        await erin.add_message(record.id, "system", "in between")
        for turn, may_answer in zip(turns, agent.may_answer, strict=True):
            may_answer.set()
            await turn
        assert await contents(erin, record.id) == ["in between", "first?", "one", "second?", "two"]
        assert await waiting(erin, record.id) == []

    target.run(scenario)


def test_a_question_that_is_delivered_again_is_stored_once(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        record = await erin.get_or_create_conversation("s")
        agent = Scripted(AgentUnavailable("503"), "Yes.", "Yes, again.")
        supervisor = supervisor_of(erin, agent)
        for _ in range(3):
            await supervisor.process_query(asked("Ready?", "q1"), "s", record.id)
        assert await contents(erin, record.id) == ["Ready?", "Yes."]
        await erin.open_turn(record.id, [asked("Ready?", "q1")])
        assert await waiting(erin, record.id) == [], "the log has the answer"

    target.run(scenario)


def test_a_turn_opens_extends_and_closes(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        record = await erin.get_or_create_conversation("s")
        with pytest.raises(RuntimeError, match="the agent failed"):
            async with erin.turn(record.id) as turn:
                turn.user("Book a table.", message_id="q1")
                await turn.open()
                turn.assistant("For how many?")
                await turn.open()
                raise RuntimeError("the agent failed")
        (left,) = await erin.unanswered(record.id)
        assert [message.content for message in left.messages] == ["Book a table.", "For how many?"]
        with pytest.raises(MessageConflict):
            await erin.open_turn(record.id, [asked("Something else.", "q1")])
        async with erin.turn(record.id, answering=left) as turn:
            turn.assistant("Booked.")
        assert await contents(erin, record.id) == ["Book a table.", "For how many?", "Booked."]
        assert await erin.unanswered(record.id) == []

    target.run(scenario)


def test_open_turns_are_discarded_and_cleared(target: Target) -> None:
    async def scenario(erin: ConversationManager) -> None:
        record = await erin.get_or_create_conversation("s")
        await erin.open_turn(record.id, [asked("one", "q1")])
        await erin.open_turn(record.id, [asked("two", "q2")])
        assert await erin.discard_turn(record.id, "q1")
        assert not await erin.discard_turn(record.id, "q1")
        assert await waiting(erin, record.id) == ["two"]
        await erin.clear_history(record.id)
        assert await waiting(erin, record.id) == []
        with pytest.raises(InvalidInput, match="messages"):
            await erin.open_turn(record.id, [])
        with pytest.raises(ConversationNotFound):
            await erin.open_turn(new_id(), [asked("three", "q3")])

    target.run(scenario)
