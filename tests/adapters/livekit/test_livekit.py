"""LiveKit Agents with Aforesaid as the memory of a voice session."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from livekit.agents.llm import ChatContext, ChatMessage, FunctionCall, FunctionCallOutput

import aforesaid
from aforesaid.adapters.livekit import AforesaidHistory
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks


class Session:
    """The part of an `AgentSession` that the history uses: its events."""

    def __init__(self) -> None:
        self.handlers: list[Callable[[Any], None]] = []

    def on(self, name: str, handler: Callable[[Any], None]) -> None:
        assert name == "conversation_item_added"
        self.handlers.append(handler)

    def add(self, item: Any) -> None:
        for handler in self.handlers:
            handler(SimpleNamespace(item=item))


class LiveKitAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"livekit/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        history, voice = AforesaidHistory(session, manager), Session()
        history.attach(voice)
        voice.add(ChatMessage(role="user", content=[question]))
        await history.flush()
        self.before_answer()
        voice.add(ChatMessage(role="assistant", content=[answer]))
        await history.flush()

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        context = ChatContext.empty()
        context.add_message(role="user", content="What is in the shed?")
        context.insert(FunctionCall(call_id="c1", name="look", arguments='{"where": "shed"}'))
        context.insert(FunctionCallOutput(call_id="c1", name="look", output="a rake", is_error=False))
        context.add_message(role="assistant", content="A rake.")
        await AforesaidHistory(session, manager).save(context)

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        context = await AforesaidHistory(session, manager).load()
        return [item.text_content or "" for item in context.items if item.type == "message"]


class TestChecks(AdapterChecks):
    adapter = LiveKitAdapter()


async def test_a_context_comes_back_exactly_and_is_stored_once() -> None:
    context = ChatContext.empty()
    context.add_message(role="system", content="Be brief.")
    context.add_message(role="user", content="hi", created_at=1000.5)
    context.insert(FunctionCall(call_id="c1", name="look", arguments="{}", created_at=1001.0))
    context.insert(
        FunctionCallOutput(call_id="c1", name="look", output="a rake", is_error=True, created_at=1002.0)
    )
    context.add_message(role="assistant", content="There is a", interrupted=True, created_at=1003.0)
    async with aforesaid.open("memory://") as memory:
        history = AforesaidHistory("s", memory.of("kim"))
        await history.save(context)
        await history.save(context)
        loaded = await history.load()
        stored = await memory.of("kim").messages("livekit/s")
    assert loaded.to_dict(exclude_timestamp=False) == context.to_dict(exclude_timestamp=False)
    (cut,) = [message for message in stored if message.speech is not None]
    assert cut.speech is not None
    assert cut.speech.interrupted
    assert cut.speech.words_heard == "There is a"


async def test_items_are_stored_in_the_order_of_their_events() -> None:
    async with aforesaid.open("memory://") as memory:
        history, voice = AforesaidHistory("s", memory.of("kim")), Session()
        history.attach(voice)
        for number in range(20):
            voice.add(ChatMessage(role="user", content=[str(number)], created_at=1000.0 + number))
        await history.flush()
        assert await asyncio.wait_for(LiveKitAdapter().history(memory.of("kim"), "s"), 30) == [
            str(number) for number in range(20)
        ]
