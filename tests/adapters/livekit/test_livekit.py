"""LiveKit Agents with Aforesaid as the memory of a voice session."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from livekit.agents.llm import ChatContext, ChatItem, FunctionCall, FunctionCallOutput, FunctionToolCall

import aforesaid
from aforesaid.adapters.livekit import AforesaidHistory, item_of, to_log
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import Adapter, AdapterChecks, memory_in
from tests.adapters.livekit.scripted import BOUND, ScriptedModel, session_of


class LiveKitAdapter(Adapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"livekit/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        await self._run(manager, session, question, answer)

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = FunctionToolCall(name="look", arguments='{"where": "shed"}', call_id="c1")
        await self._run(manager, session, "What is in the shed?", call, "A rake.")

    async def _run(self, manager: ManagerProtocol, session: str, question: str, *answers: Any) -> None:
        history = AforesaidHistory(session, manager)
        voice, _ = await session_of(history, ScriptedModel(*answers, before=self.before_answer))
        async with asyncio.timeout(BOUND):
            await voice.run(user_input=question)
        await voice.aclose()
        await history.flush()

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        context = await AforesaidHistory(session, manager).load()
        said = [item for item in context.items if item.type == "message" and item.role != "system"]
        return [item.text_content or "" for item in said]


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


async def test_items_of_a_fast_session_are_stored_in_their_order(tmp_path: Path) -> None:
    """Each answer comes before the items of the one before it are stored."""
    async with memory_in(tmp_path) as memory:
        kim, answers = memory.of("kim"), [f"answer {number}" for number in range(8)]
        history = AforesaidHistory("s", kim)
        voice, _ = await session_of(history, ScriptedModel(*answers))
        async with asyncio.timeout(BOUND):
            for number in range(8):
                await voice.run(user_input=f"question {number}")
        await voice.aclose()
        await history.flush()
        texts = await LiveKitAdapter().history(kim, "s")
    assert texts == [f"{kind} {number}" for number in range(8) for kind in ("question", "answer")]


@pytest.mark.parametrize("seed", range(5))
async def test_random_contexts_come_back_exactly(seed: int) -> None:
    """Contexts that grow, are trimmed and lose items give LiveKit's own serialization back."""
    choose, context = random.Random(seed), ChatContext.empty()
    stored: dict[str, Any] = {}
    async with aforesaid.open("memory://") as memory:
        history = AforesaidHistory("s", memory.of("kim"))
        for step in range(30):
            _grow(context, choose, step)
            stored |= {item["id"]: item for item in _plain(context)}
            await history.save(context)
            if choose.random() < 0.2:
                context.truncate(max_items=3)
            loaded = {item["id"]: item for item in _plain(await history.load())}
            assert loaded == stored, (seed, step)
        assert list(loaded) == list(stored)


def _grow(context: ChatContext, choose: random.Random, step: int) -> None:
    moment, call = 1000.0 + step, f"c{step}"
    if choose.random() < 0.3:
        context.insert(FunctionCall(call_id=call, name="look", arguments='{"n": 1}', created_at=moment))
        failed = choose.random() < 0.5
        output = FunctionCallOutput(
            call_id=call, name="look", output="", is_error=failed, created_at=moment + 0.5
        )
        context.insert(output)
        return
    role = choose.choice(["user", "assistant", "system"])
    text = choose.choice(["hi", "", "ä\u2028\n", "x" * 3000])
    interrupted = role == "assistant" and choose.random() < 0.5
    context.add_message(role=role, content=[text, "more"], interrupted=interrupted, created_at=moment)


def _plain(context: ChatContext) -> list[dict[str, Any]]:
    items = context.to_dict(exclude_timestamp=False, exclude_image=False)["items"]
    return [dict(item) for item in items]


def test_every_kind_of_item_has_a_place_in_the_log() -> None:
    """An item of a kind that the adapter does not know is kept, too: as an entry without words."""
    kinds = {get_args(kind.model_fields["type"].annotation)[0] for kind in _kinds_of_items()}
    assert {"message", "function_call", "function_call_output"} <= kinds
    for kind in kinds - {"message", "function_call", "function_call_output"}:
        message = to_log({"id": "i", "type": kind})
        assert (message.role, message.content) == ("system", "")
        assert item_of(message, {}) == {"id": "i", "type": kind}


def _kinds_of_items() -> tuple[Any, ...]:
    item = get_args(ChatItem)[0]
    return get_args(item)
