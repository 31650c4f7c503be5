"""LangChain with Aforesaid as its chat message history."""

import asyncio
import inspect
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import aforesaid
from aforesaid.adapters.langchain import AforesaidChatMessageHistory, open_manager
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks


class LangChainAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"langchain/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        async def ask(messages: Any) -> Any:
            self.before_answer()
            return await GenericFakeChatModel(messages=iter([AIMessage(content=answer)])).ainvoke(messages)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chain = RunnableWithMessageHistory(
                RunnableLambda(ask), lambda session_id: AforesaidChatMessageHistory(session_id, manager)
            )
        where = {"configurable": {"session_id": session}}
        await chain.ainvoke([HumanMessage(content=question)], where)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = {"name": "look", "args": {"where": "shed"}, "id": "c1"}
        await AforesaidChatMessageHistory(session, manager).aadd_messages(
            [
                HumanMessage(content="What is in the shed?"),
                AIMessage(content="", tool_calls=[call]),
                ToolMessage(content="a rake", tool_call_id="c1"),
                AIMessage(content="A rake."),
            ]
        )

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        found = await AforesaidChatMessageHistory(session, manager).aget_messages()
        return [str(message.text) for message in found]


class TestChecks(AdapterChecks):
    # LangChain cuts a question off by the length of the history, which the other writer has made longer.
    keeps_questions = False
    adapter = LangChainAdapter()


def test_the_interface_is_complete() -> None:
    assert not getattr(AforesaidChatMessageHistory, "__abstractmethods__", ())
    # The reference adds one message at a time; ours stores several in one transaction.
    reference = set(vars(InMemoryChatMessageHistory)) & {"aadd_messages", "aclear", "aget_messages", "clear"}
    assert reference | {"add_messages", "messages"} <= set(vars(AforesaidChatMessageHistory))
    for name in reference | {"add_messages"}:
        wanted = inspect.signature(getattr(BaseChatMessageHistory, name)).parameters
        assert list(inspect.signature(getattr(AforesaidChatMessageHistory, name)).parameters) == list(wanted)


@pytest.mark.parametrize("seed", range(5))
async def test_random_operations_give_what_the_reference_gives(seed: int) -> None:
    choose = random.Random(seed)
    async with aforesaid.open("memory://") as memory:
        pairs = [
            (InMemoryChatMessageHistory(), AforesaidChatMessageHistory(name, memory.of("kim")))
            for name in "ab"
        ]
        for step in range(40):
            added, count = _message(choose, step), choose.randint(0, 3)
            action = choose.choice(
                ["add", "add", "several", "clear"] if step % 7 == 0 else ["add", "several"]
            )
            for history in choose.choice(pairs):
                if action == "clear":
                    await history.aclear()
                else:
                    await history.aadd_messages([added] * (1 if action == "add" else count))
            for reference, ours in pairs:
                assert await ours.aget_messages() == await reference.aget_messages(), (seed, step, action)


def _message(choose: random.Random, step: int) -> Any:
    call = {"name": "look", "args": {"where": ["shed", None, 1.5]}, "id": f"c{step}"}
    kinds: list[Any] = [
        HumanMessage(content=f"said {step}", name="kim"),
        HumanMessage(content=[{"type": "text", "text": "ä\u2028"}, {"type": "image", "url": "x:y"}]),
        AIMessage(content="", tool_calls=[call], usage_metadata=None),
        AIMessage(content=f"answer {step}", response_metadata={"model": "m"}, id=f"i{step}"),
        ToolMessage(content="a rake", tool_call_id=f"c{step}", artifact={"rows": [step]}, status="error"),
        SystemMessage(content="Be brief."),
        ChatMessage(role="critic", content="Hm."),
    ]
    return choose.choice(kinds)


async def test_messages_come_back_exactly() -> None:
    messages = [
        HumanMessage(content=[{"type": "text", "text": "hi"}, {"type": "image", "url": "x:y"}], id="1"),
        AIMessage(content="ok", tool_calls=[{"name": "f", "args": {}, "id": "c"}], id="2"),
        ToolMessage(content="done", tool_call_id="c", artifact={"rows": [1]}, id="3"),
    ]
    async with aforesaid.open("memory://") as memory:
        history = AforesaidChatMessageHistory("s", memory.of("kim"))
        await history.aadd_messages(messages)
        assert await history.aget_messages() == messages
        await history.aclear()
        assert await history.aget_messages() == []


async def test_the_synchronous_face(tmp_path: Path) -> None:
    def use() -> list[Any]:
        manager = open_manager(f"sqlite:///{tmp_path / 'memory.db'}", owner="kim")
        history = AforesaidChatMessageHistory("s", manager)
        history.add_user_message("hi")
        history.add_ai_message("hello")
        return [message.content for message in history.messages]

    assert await asyncio.to_thread(use) == ["hi", "hello"]
