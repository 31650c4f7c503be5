"""A question is durable before the agent is asked, and its window is read in the meantime."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message, OpenTurn
from tests.doubles import Scripted


async def test_the_window_is_read_while_the_question_is_stored(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, steps, window_was_read = Scripted("First.", "Second."), list[str](), asyncio.Event()
    supervisor = SupervisorAgent(erin, [Specialist(loop=AgenticLoop(agent))])
    await supervisor.process_query("One?", "kitchen")
    open_turn, load_context, records_read = erin.open_turn, erin.load_context, list[str]()

    async def slow(conversation_id: str, messages: Sequence[Message]) -> OpenTurn:
        await window_was_read.wait()
        opened: OpenTurn = await open_turn(conversation_id, messages)
        steps.append(f"stored, {len(agent.asked)} asked")
        return opened

    async def loading(*given: Any, **named: Any) -> Context:
        context: Context = await load_context(*given, **named)
        steps.append("window")
        window_was_read.set()
        return context

    async def get_conversation(conversation_id: str) -> Any:
        records_read.append(conversation_id)

    monkeypatch.setattr(erin, "open_turn", slow)
    monkeypatch.setattr(erin, "load_context", loading)
    monkeypatch.setattr(erin, "get_conversation", get_conversation)
    assert await supervisor.process_query("Two?", "kitchen") == "Second."
    assert steps == ["window", "stored, 1 asked"]
    assert records_read == [], "the lookup of the session has read the record"
