"""Pipecat with Aforesaid as the memory of a pipeline."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage

import aforesaid
from aforesaid.adapters.pipecat import AforesaidHistory
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks


class Aggregator:
    """The part of the assistant's aggregator that the history uses: its events."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def event_handler(self, name: str) -> Callable[[Any], Any]:
        assert name == "on_assistant_turn_stopped"
        return self.handlers.append

    async def stop(self, *, interrupted: bool) -> None:
        for handler in self.handlers:
            await handler(self, SimpleNamespace(interrupted=interrupted, content="", timestamp=""))


class PipecatAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"pipecat/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        history, aggregator = AforesaidHistory(session, manager), Aggregator()
        context = LLMContext(await history.load())
        history.attach(aggregator, context)
        context.add_message({"role": "user", "content": question})
        self.before_answer()
        context.add_message({"role": "assistant", "content": answer})
        await aggregator.stop(interrupted=False)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        history = AforesaidHistory(session, manager)
        context = LLMContext(await history.load())
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"where": "shed"}'},
        }
        context.add_messages(
            [
                {"role": "user", "content": "What is in the shed?"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "a rake"},
                {"role": "assistant", "content": "A rake."},
            ]
        )
        await history.save(context)

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        return [str(message.get("content")) for message in await AforesaidHistory(session, manager).load()]


class TestChecks(AdapterChecks):
    adapter = PipecatAdapter()


async def test_a_context_comes_back_exactly_and_an_interruption_is_kept() -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        LLMSpecificMessage(llm="google", message={"thought": "aGk="}),
        {"role": "assistant", "content": "There is a"},
    ]
    async with aforesaid.open("memory://") as memory:
        history, aggregator = AforesaidHistory("s", memory.of("kim")), Aggregator()
        context = LLMContext(await history.load())
        history.attach(aggregator, context)
        context.add_messages(messages)
        await aggregator.stop(interrupted=True)
        await aggregator.stop(interrupted=False)
        assert await AforesaidHistory("s", memory.of("kim")).load() == messages
        stored = await memory.of("kim").messages("pipecat/s")
    assert [message.speech.words_heard for message in stored if message.speech] == ["There is a"]


async def test_turns_that_end_while_another_is_stored_are_stored_once_and_in_order() -> None:
    async with aforesaid.open("memory://") as memory:
        history, saves = AforesaidHistory("s", memory.of("kim")), []
        context = LLMContext()
        for number in range(5):
            context.add_message({"role": "user", "content": f"question {number}"})
            context.add_message({"role": "assistant", "content": f"answer {number}"})
            saves.append(asyncio.create_task(history.save(context, interrupted=number == 2)))
            await asyncio.sleep(0)  # the task takes what the context has now
        await asyncio.gather(*saves)
        stored = await memory.of("kim").messages("pipecat/s")
    assert [one.content for one in stored][1::2] == [f"answer {number}" for number in range(5)]
    assert len(stored) == 10
    assert [one.content for one in stored if one.speech] == ["answer 2"]
