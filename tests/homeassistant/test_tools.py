"""The tools that every agent gets, and the actions."""

from typing import Any

import pytest
from homeassistant.auth.const import GROUP_ID_USER
from homeassistant.core import Context, HomeAssistant
from homeassistant.exceptions import HomeAssistantError, ServiceValidationError
from homeassistant.helpers import llm
from pytest_homeassistant_custom_component.common import MockConfigEntry, MockUser

from custom_components.aforesaid.const import DOMAIN
from tests.homeassistant.world import Model, agent, load, memory_entry, recorded, say

NAMES = ("search_history", "remember", "recall", "forget")


@pytest.fixture
async def entry(core: HomeAssistant, ollama: str) -> MockConfigEntry:
    return await load(core, memory_entry(agent(ollama)))


def request_of(user: str | None, device_id: str | None = None) -> llm.LLMContext:
    return llm.LLMContext("ollama", Context(user_id=user), "en", "conversation", device_id)


async def call(core: HomeAssistant, tool: str, user: str | None = "erin", **arguments: Any) -> llm.ToolResult:
    api = await llm.async_get_api(core, "assist", request_of(user))
    return await api.async_call_tool(llm.ToolInput(f"{DOMAIN}__{tool}", arguments))


async def test_every_agent_with_assist_has_the_tools(
    core: HomeAssistant, entry: MockConfigEntry, model: Model, ollama: str, caplog: pytest.LogCaptureFixture
) -> None:
    await say(core, "hello", agent_id=ollama)
    offered = {tool["function"]["name"] for tool in model.tools[-1]}
    assert {f"{DOMAIN}__{name}" for name in NAMES} <= offered
    assert "search_history" in model.requests[-1][0]["content"]
    assert "deprecated" not in caplog.text
    core.config_entries.async_update_entry(entry, options={"offer_tools": False})
    await core.async_block_till_done()
    await say(core, "hello", agent_id=ollama)
    assert not any(DOMAIN in tool["function"]["name"] for tool in model.tools[-1])


async def test_a_model_searches_the_history(
    core: HomeAssistant, entry: MockConfigEntry, model: Model
) -> None:
    await say(core, "my cat is Momo")
    model.replies = [
        {"name": f"{DOMAIN}__search_history", "arguments": {"query": "cat"}},
        "Your cat is Momo",
    ]
    await say(core, "what is my cat called", conversation_id="bedroom")
    (result,) = [message for message in model.requests[-1] if message["role"] == "tool"]
    assert "Momo" in result["content"]


async def test_notes(core: HomeAssistant, entry: MockConfigEntry, model: Model) -> None:
    await call(core, "remember", text="My cat is called Momo", subject="cat")
    assert (await call(core, "recall", query="cat")).data == {"facts": ["My cat is called Momo"]}
    assert (await call(core, "recall", user="bob")).data == {"facts": []}
    await say(core, "hello")
    assert "Momo" in model.said()[0]  # a remembering agent receives the notes
    assert (await call(core, "forget", what="cat")).data == {"forgotten": ["My cat is called Momo"]}
    assert (await call(core, "recall")).data == {"facts": []}
    refused = await call(core, "remember", text="  ")
    assert refused.error
    assert "text" in str(refused.data)


async def test_tools_say_what_they_change(core: HomeAssistant, entry: MockConfigEntry) -> None:
    api = await llm.async_get_api(core, "assist", request_of("erin"))
    ours = {tool.name: tool for tool in api.tools if tool.integration == DOMAIN}
    assert set(ours) == {f"{DOMAIN}__{name}" for name in NAMES}
    assert {name for name, tool in ours.items() if tool.annotations.read_only} == {
        f"{DOMAIN}__search_history",
        f"{DOMAIN}__recall",
    }
    assert ours[f"{DOMAIN}__forget"].annotations.destructive


# Actions


async def act(core: HomeAssistant, name: str, user: str | None = None, **data: Any) -> dict[str, Any]:
    response = await core.services.async_call(
        DOMAIN, name, data, blocking=True, return_response=True, context=Context(user_id=user)
    )
    assert isinstance(response, dict)
    return response


async def test_actions(core: HomeAssistant, entry: MockConfigEntry, hass_admin_user: MockUser) -> None:
    user = hass_admin_user.id
    await say(core, "my cat is Momo", user=user)
    (passage,) = (await act(core, "search_history", user, query="cat"))["passages"]
    assert passage["text"] == "my cat is Momo"
    fact = (await act(core, "remember", user, text="I like tea", subject="tea"))["fact"]
    assert (await act(core, "recall", user))["facts"] == [fact]
    exported = await act(core, "export", user)
    assert exported["counts"]["messages"] == 2
    assert (await act(core, "forget", user, what="tea"))["forgotten"] == [fact]
    await act(core, "clear_history", user, conversation_id="kitchen")
    assert (await act(core, "search_history", user, query="cat"))["passages"] == []
    await say(core, "my dog is Rex", user=user)
    erased = await act(core, "clear_history", user)
    assert erased["erased"]["messages"] == 2
    assert erased["remains"] == []
    assert await recorded(entry, owner=f"user:{user}") == []


async def test_actions_for_others_need_an_administrator(
    core: HomeAssistant, entry: MockConfigEntry, hass_admin_user: MockUser
) -> None:
    erin = MockUser(name="Erin", groups=[await core.auth.async_get_group(GROUP_ID_USER)]).add_to_hass(core)
    core.states.async_set("person.erin", "home", {"user_id": erin.id})
    core.states.async_set("person.bob", "home", {})
    await say(core, "my cat is Momo", user=erin.id)
    for user in (erin.id, hass_admin_user.id, None):
        found = await act(core, "search_history", user, query="cat", person="person.erin")
        assert len(found["passages"]) == 1
    with pytest.raises(ServiceValidationError, match="administrator"):
        await act(core, "search_history", erin.id, query="cat", person="person.bob")
    with pytest.raises(ServiceValidationError, match="no person"):
        await act(core, "export", None, person="person.nobody")
    with pytest.raises(ServiceValidationError, match="not both"):
        await act(core, "export", None, person="person.erin", device="abc")
    assert (await act(core, "search_history", hass_admin_user.id, query="cat"))["passages"] == []


async def test_actions_say_what_is_wrong(core: HomeAssistant, entry: MockConfigEntry) -> None:
    with pytest.raises(ServiceValidationError, match="text"):
        await act(core, "remember", text="  ")
    await entry.runtime_data.link.close()
    with pytest.raises(HomeAssistantError, match="cannot do this now"):
        await act(core, "recall")
    await core.config_entries.async_unload(entry.entry_id)
    with pytest.raises(ServiceValidationError, match="not set up"):
        await act(core, "recall")
