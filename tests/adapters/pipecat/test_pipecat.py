"""Pipecat with Aforesaid as the memory of a pipeline."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage

import aforesaid
from aforesaid.adapters.pipecat import AforesaidHistory
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks
from tests.adapters.pipecat.scripted import ScriptedModel, call


class PipecatAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"pipecat/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        await self._run(manager, session, question, answer)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        await self._run(manager, session, "What is in the shed?", {"id": "c1"}, "A rake.")

    async def _run(self, manager: ManagerProtocol, session: str, question: str, *answers: Any) -> None:
        model = ScriptedModel(*answers, before=self.before_answer)
        async with call(AforesaidHistory(session, manager), model) as running:
            await running.say(question)
            while (await running.ended_turns.get()).content != answers[-1]:
                pass

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        loaded = await AforesaidHistory(session, manager).load()
        return [str(message.get("content") or "") for message in loaded]


class TestChecks(AdapterChecks):
    adapter = PipecatAdapter()


async def test_a_context_comes_back_exactly() -> None:
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
        history = AforesaidHistory("s", memory.of("kim"))
        await history.save(LLMContext(messages))
        assert await AforesaidHistory("s", memory.of("kim")).load() == messages


@pytest.mark.parametrize("seed", range(5))
async def test_random_changes_of_a_context_are_stored_once_and_in_order(seed: int) -> None:
    """A context that grows, is trimmed or summarised, and is loaded again, against a plain list."""
    choose, expected = random.Random(seed), list[Any]()
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        history = AforesaidHistory("s", kim)
        context = LLMContext()
        for step in range(40):
            action = choose.choice(["say", "say", "say", "repeat", "trim", "summary", "restart", "nothing"])
            added: list[Any] = []
            if action == "say":
                added = [
                    {"role": "user", "content": f"q{step}"},
                    {"role": "assistant", "content": f"a{step}"},
                ]
            elif action == "repeat":
                added = [{"role": "user", "content": "yes"}]
            elif action == "trim":
                context.set_messages(context.get_messages()[-3:])
            elif action == "summary":
                added = [{"role": "assistant", "content": f"summary {step}"}]
                context.set_messages([*added, *context.get_messages()[-2:]])
            elif action == "restart":
                history = AforesaidHistory("s", kim)
                context = LLMContext([{"role": "system", "content": "Be brief."}, *await history.load()])
                added = [] if any(one["role"] == "system" for one in expected) else context.get_messages()[:1]
            if action in ("say", "repeat"):
                context.add_messages(added)
            expected += added
            await history.save(context)
            assert await AforesaidHistory("s", kim).load() == expected, (seed, step, action)


async def test_a_call_is_stored_with_its_result_when_its_tool_has_finished() -> None:
    function = {"name": "look", "arguments": "{}"}
    asked = {"role": "user", "content": "What is in the shed?"}
    called = {"role": "assistant", "tool_calls": [{"id": "c", "function": function, "type": "function"}]}
    result = {"role": "tool", "content": "IN_PROGRESS", "tool_call_id": "c"}
    async with aforesaid.open("memory://") as memory:
        history = AforesaidHistory("s", memory.of("kim"))
        context = LLMContext([asked, called, result])
        await history.save(context)
        assert await AforesaidHistory("s", memory.of("kim")).load() == [asked]
        result["content"] = "a rake"
        await history.save(context)
        assert await AforesaidHistory("s", memory.of("kim")).load() == [asked, called, result]


async def test_messages_that_could_not_be_stored_are_stored_by_the_next_save() -> None:
    async with aforesaid.open("memory://") as memory:
        history = AforesaidHistory("s", memory.of("kim"))
        hello, broken = {"role": "user", "content": "hello"}, {"role": "user", "content": object()}
        context = LLMContext([hello, broken])
        with pytest.raises(TypeError):
            await history.save(context)
        context.set_messages([hello])
        await history.save(context)
        assert [one["content"] for one in await history.load()] == ["hello"]


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
