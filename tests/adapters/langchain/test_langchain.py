"""LangChain with Aforesaid as its chat message history."""

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
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
    adapter = LangChainAdapter()


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
