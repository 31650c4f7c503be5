"""Each option takes effect, for all agents and for one."""

from datetime import timedelta
from typing import Any

import pytest
from freezegun.api import FrozenDateTimeFactory
from homeassistant.core import HomeAssistant

from aforesaid.model.messages import Message
from tests.homeassistant.world import Model, agent, load, memory_entry, recorded, restart, say

LONG = "word " * 200


async def test_max_history_turns(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama), options={"max_history_turns": 2}))
    for text in ("one", "two", "three", "four"):
        await say(core, text)
    assert model.said() == ["two", "answer 2", "three", "answer 3", "four"]


async def test_all_turns(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama, max_history_turns=0), options={"max_history_turns": 1}))
    for at in range(25):
        await say(core, f"question {at}")
    assert len(model.said()) == 49


@pytest.mark.parametrize(("options", "first"), [({}, False), ({"sliding_window_enable": False}, True)])
async def test_the_token_window(
    core: HomeAssistant, ollama: str, model: Model, options: dict[str, Any], first: bool
) -> None:
    await load(core, memory_entry(agent(ollama), options={"sliding_window_max_tokens": 600, **options}))
    await say(core, f"first {LONG}")
    await say(core, f"second {LONG}")
    await say(core, f"third {LONG}")
    await say(core, "what was first")
    assert any(text.startswith("first") for text in model.said()) is first


@pytest.mark.parametrize("preserve", [True, False])
async def test_system_messages(core: HomeAssistant, ollama: str, model: Model, preserve: bool) -> None:
    options = {"max_history_turns": 1, "sliding_window_preserve_system": preserve}
    entry = await load(core, memory_entry(agent(ollama), options=options))
    await entry.runtime_data.link.of("user:erin").append(
        "kitchen", [Message(role="system", content="Speak plainly."), Message(role="user", content="zero")]
    )
    for text in ("one", "two", "three"):
        await say(core, text)
    assert ("Speak plainly." in model.said()) is preserve


@pytest.mark.parametrize("auto", [True, False])
async def test_one_conversation_without_an_id(
    core: HomeAssistant, ollama: str, model: Model, auto: bool
) -> None:
    entry = await load(core, memory_entry(agent(ollama), options={"auto_create_conversation_id": auto}))
    first = await say(core, "my cat is Momo", conversation_id=None)
    await restart(core, entry)
    second = await say(core, "what is my cat called", conversation_id=None)
    assert ("my cat is Momo" in model.said()) is auto
    assert (first.conversation_id == second.conversation_id) is auto
    if auto:
        assert str(second.conversation_id).startswith("aforesaid:user:")
        await say(core, "and again", conversation_id=second.conversation_id)
        assert "my cat is Momo" in model.said()


async def test_lifetime(
    core: HomeAssistant, ollama: str, model: Model, freezer: FrozenDateTimeFactory
) -> None:
    entry = await load(core, memory_entry(agent(ollama), options={"lifetime": {"days": 7}}))
    await say(core, "my cat is Momo")
    record = await entry.runtime_data.link.of("user:erin").get_conversation("kitchen")
    assert record.ttl == timedelta(days=7)
    freezer.tick(timedelta(days=6))
    await restart(core, entry)
    assert await recorded(entry) == ["my cat is Momo", "answer 1"]
    freezer.tick(timedelta(days=2))
    await restart(core, entry)
    await say(core, "what is my cat called")
    assert model.said() == ["what is my cat called"]


async def test_a_new_lifetime_applies_to_old_conversations(core: HomeAssistant, ollama: str) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    await say(core, "one")
    core.config_entries.async_update_entry(entry, options={"lifetime": {"days": 0}})
    await core.async_block_till_done()
    await say(core, "two")
    record = await entry.runtime_data.link.of("user:erin").get_conversation("kitchen")
    assert record.ttl is None
    assert record.tags == ("home_assistant",)
    assert record.channel == "text"
