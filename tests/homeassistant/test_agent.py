"""An agent that remembers: windows, restarts, concurrency, failures, streaming, tool calls."""

import asyncio
from typing import Any

import ollama as ollama_client
import pytest
from homeassistant.components import conversation
from homeassistant.components.conversation.chat_log import async_get_chat_log
from homeassistant.core import Context, HomeAssistant
from homeassistant.helpers import intent
from homeassistant.helpers.chat_session import async_get_chat_session

from tests.homeassistant.world import Model, agent, load, memory_entry, restart, say, speech


async def test_the_second_turn_contains_the_first(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama)))
    await say(core, "my cat is Momo")
    result = await say(core, "what is my cat called")
    assert speech(result) == "answer 2"
    assert model.said() == ["my cat is Momo", "answer 1", "what is my cat called"]


async def test_a_conversation_survives_a_restart(core: HomeAssistant, ollama: str, model: Model) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    await say(core, "my cat is Momo")
    await restart(core, entry)
    await say(core, "what is my cat called")
    assert model.said() == ["my cat is Momo", "answer 1", "what is my cat called"]


async def test_an_expired_id_still_names_its_conversation(
    core: HomeAssistant, ollama: str, model: Model
) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    first = await say(core, "my cat is Momo", conversation_id=None)
    await restart(core, entry)
    second = await say(core, "what is my cat called", conversation_id=first.conversation_id)
    assert second.conversation_id == first.conversation_id
    assert model.said() == ["my cat is Momo", "answer 1", "what is my cat called"]


async def test_two_concurrent_turns_both_survive(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama)))
    both = asyncio.Barrier(2)

    async def wait() -> str:
        await both.wait()
        return "yes"

    model.replies = [wait, wait]
    await asyncio.gather(say(core, "turn on the light"), say(core, "close the door"))
    await say(core, "what did I say")
    assert {"turn on the light", "close the door"} <= set(model.said())
    assert len(model.said()) == 5


async def test_a_failing_agent_leaves_no_trace(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama)))
    await say(core, "one")
    model.replies = [ollama_client.ResponseError("out of memory")]
    failed = await say(core, "two")
    assert failed.response.response_type is intent.IntentResponseType.ERROR
    await say(core, "three")
    assert model.said() == ["one", "answer 1", "three"]


async def test_an_agent_that_raises_leaves_no_trace(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama)))
    model.replies = [RuntimeError("a bug")]
    with pytest.raises(RuntimeError):
        await core.async_create_task(say(core, "one"))
    await say(core, "two")
    assert model.said() == ["two"]


async def test_deltas_pass_through(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama)))
    model.replies = ["the light is on now"]
    deltas: list[dict[str, Any]] = []
    user_input = conversation.ConversationInput(
        text="light on",
        context=Context(user_id="erin"),
        conversation_id="kitchen",
        device_id=None,
        satellite_id=None,
        language="en",
        agent_id="conversation.remembering",
    )
    with (
        async_get_chat_session(core, "kitchen") as session,
        async_get_chat_log(
            core, session, user_input, chat_log_delta_listener=lambda _, delta: deltas.append(delta)
        ),
    ):
        await say(core, "light on")
    assert [each["content"] for each in deltas if each.get("content")] == [
        "the ",
        "light ",
        "is ",
        "on ",
        "now ",
    ]
    info = conversation.async_get_agent_info(core, "conversation.remembering")
    assert info is not None
    assert info.supports_streaming


async def test_tool_calls_are_stored_and_sent_again(core: HomeAssistant, ollama: str, model: Model) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    model.replies = [{"name": "llm__GetDateTime", "arguments": {}}, "it is late"]
    assert speech(await say(core, "what time is it")) == "it is late"
    await restart(core, entry)
    await say(core, "and now")
    roles = [message["role"] for message in model.requests[-1]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert model.requests[-1][2]["tool_calls"][0]["function"]["name"] == "llm__GetDateTime"


async def test_the_built_in_agent_remembers_too(core: HomeAssistant) -> None:
    entry = await load(core, memory_entry(agent("conversation.home_assistant")))
    await say(core, "what time is it", conversation_id="hall")
    manager = entry.runtime_data.link.of("user:erin")
    messages = await manager.messages("hall")
    assert messages[0].role == "user"
    assert messages[-1].role == "assistant"
