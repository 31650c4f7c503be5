"""Pydantic AI with Aforesaid as its conversation store."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import aforesaid
from aforesaid.adapters.pydantic_ai import AforesaidConversationStore
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks, memory_in


class PydanticAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"pydantic-ai/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        def answers(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
            self.before_answer()
            return ModelResponse(parts=[TextPart(answer)])

        await self._run(manager, session, question, Agent(FunctionModel(answers)))

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        def answers(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            if messages[-1].parts[0].part_kind == "tool-return":
                return ModelResponse(parts=[TextPart("A rake.")])
            calls = [ToolCallPart("look", {"where": place}) for place in ("shed", "garden")]
            return ModelResponse(parts=calls)

        agent = Agent(FunctionModel(answers))
        agent.tool_plain(look)
        await self._run(manager, session, "What is in the shed?", agent)

    async def _run(self, manager: ManagerProtocol, session: str, question: str, agent: Any) -> None:
        store = AforesaidConversationStore(manager)
        while True:
            conversation = await store.load(session) or Conversation(conversation_id=session)
            result = await agent.run(question, conversation=conversation)
            try:
                await store.save(result)
            except ConversationConflict:
                continue  # another writer was first: load again, as the documentation says
            return

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        loaded = await AforesaidConversationStore(manager).load(session)
        messages = [] if loaded is None else loaded.messages
        return ["".join(str(getattr(part, "content", "")) for part in one.parts) for one in messages]


def look(where: str) -> str:
    """Look somewhere."""
    return f"a rake in the {where}"


class TestChecks(AdapterChecks):
    adapter = PydanticAdapter()


async def test_an_interrupted_save_is_completed_by_the_next_reader(tmp_path: Path) -> None:
    class Interrupted(AforesaidConversationStore):
        async def _complete(self, conversation_id: str, document: Any) -> Any:
            raise InterruptedError

    async with memory_in(tmp_path) as memory:
        kim = memory.of("kim")
        agent = Agent(FunctionModel(lambda *_: ModelResponse(parts=[TextPart("Lima.")])))
        result = await agent.run("Peru?", conversation=Conversation(conversation_id="c"))
        with pytest.raises(InterruptedError):
            await Interrupted(kim).save(result)
        assert await PydanticAdapter().history(kim, "c") == ["Peru?", "Lima."]
        assert [one.content for one in await kim.messages("pydantic-ai/c")] == ["Peru?", "Lima."]


async def test_a_redacted_entry_stays_in_the_chain() -> None:
    async with aforesaid.open("memory://") as memory:
        kim, adapter = memory.of("kim"), PydanticAdapter()
        await adapter.say(kim, "c", "Peru?", "Lima.")
        await adapter.say(kim, "c", "Chile?", "Santiago.")
        answer = (await kim.entries("pydantic-ai/c"))[1].message
        await kim.redact("pydantic-ai/c", str(answer.message_id))
        texts = await adapter.history(kim, "c")
    assert (texts[0], texts[2:]) == ("Peru?", ["Chile?", "Santiago."])
    assert "Lima" not in texts[1]


async def test_a_fork_continues_when_its_first_conversation_was_deleted() -> None:
    async with aforesaid.open("memory://") as memory:
        kim, adapter = memory.of("kim"), PydanticAdapter()
        store = AforesaidConversationStore(kim)
        await adapter.say(kim, "c", "Peru?", "Lima.")
        await store.fork("c", at=2, new_conversation_id="fork")
        await adapter.say(kim, "fork", "Chile?", "Santiago.")
        await kim.delete_conversation("pydantic-ai/c")
        assert await adapter.history(kim, "fork") == ["Chile?", "Santiago."]
        assert [record.conversation_id for record in await store.read_records()] == ["fork"]


@pytest.mark.parametrize("seed", range(5))
async def test_random_operations_give_what_the_reference_gives(seed: int) -> None:
    """Saves, branches, forks, conflicts and deletions on both stores."""
    choose = random.Random(seed)
    async with aforesaid.open("memory://") as memory:
        stores: list[Any] = [InMemoryConversationStore(), AforesaidConversationStore(memory.of("kim"))]
        for step in range(25):
            name, other = choose.choice("abc"), choose.choice("abc")
            action, cut = (
                choose.choice(["run", "run", "branch", "fork", "delete", "stale"]),
                choose.randint(0, 4),
            )
            outcomes = [await _outcome(_act(store, action, name, other, cut, step)) for store in stores]
            assert outcomes[0] == outcomes[1], (seed, step, action)
            states = [[await _texts(store, each) for each in "abc"] for store in stores]
            assert states[0] == states[1], (seed, step, action)


async def _act(store: Any, action: str, name: str, other: str, cut: int, step: int) -> None:
    loaded = await store.load(name)
    if action == "run":
        agent = Agent(FunctionModel(lambda *_: ModelResponse(parts=[TextPart(f"answer {step}")])))
        conversation = loaded or Conversation(conversation_id=name)
        await store.save(await agent.run(f"question {step}", conversation=conversation))
    elif action == "stale":
        await store.save(Conversation(conversation_id=name, messages=[]))
    elif loaded is not None and action == "branch":
        await store.branch(name, at=min(cut, len(loaded.messages)), expected_revision=loaded.revision)
    elif loaded is not None and action == "fork":
        await store.fork(name, at=min(cut, len(loaded.messages)), new_conversation_id=other)
    elif loaded is not None and action == "delete":
        await store.delete(name)


async def _outcome(doing: Any) -> str:
    try:
        await doing
    except UserError as error:  # compared with the reference
        return type(error).__name__
    return "done"


async def _texts(store: Any, name: str) -> Any:
    loaded = await store.load(name)
    if loaded is None:
        return None
    return [[getattr(part, "content", None) for part in one.parts] for one in loaded.messages]
