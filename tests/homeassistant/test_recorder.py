"""What is recorded of agents that are not wrapped, and what the core's own LLM API gives them."""

from typing import Any

import ollama as ollama_client
import pytest
from homeassistant.components import conversation
from homeassistant.components.conversation.chat_log import async_get_chat_log
from homeassistant.core import Context, HomeAssistant
from homeassistant.helpers import intent
from homeassistant.helpers.chat_session import async_get_chat_session
from pytest_homeassistant_custom_component.common import MockConfigEntry

from tests.homeassistant.world import Model, load, memory_entry, recorded, restart, say

BUILT_IN = "conversation.home_assistant"


@pytest.fixture
async def entry(core: HomeAssistant, request: pytest.FixtureRequest) -> MockConfigEntry:
    options = getattr(request, "param", {})
    return await load(core, memory_entry(options=options))


async def test_every_turn_of_a_model_is_recorded(
    core: HomeAssistant, entry: MockConfigEntry, ollama: str
) -> None:
    await say(core, "one", agent_id=ollama)
    await say(core, "two", agent_id=ollama)
    assert await recorded(entry) == ["one", "answer 1", "two", "answer 2"]


async def test_local_intents_are_recorded_with_their_calls(
    core: HomeAssistant, entry: MockConfigEntry
) -> None:
    await say(core, "what time is it", agent_id=BUILT_IN)
    await recorded(entry)
    roles = [message.role for message in await entry.runtime_data.link.of("user:erin").messages("kitchen")]
    assert roles == ["user", "assistant", "tool", "assistant"]


async def test_the_local_part_of_a_pipeline_is_recorded(core: HomeAssistant, entry: MockConfigEntry) -> None:
    """A pipeline handles sentences itself, without a request to an agent."""
    context = Context(user_id="erin")
    sentence = conversation.ConversationInput(
        text="what time is it",
        context=context,
        conversation_id="kitchen",
        device_id=None,
        satellite_id=None,
        language="en",
        agent_id="conversation.any",
    )
    await Pipeline(core, context).run(sentence)
    assert (await recorded(entry))[0] == "what time is it"


class Pipeline:
    """What the assist pipeline does with a sentence that it handles locally."""

    def __init__(self, hass: HomeAssistant, context: Context) -> None:
        self.host = self
        self.hass, self.context, self.device_id, self.satellite_id = hass, context, None, None

    async def run(self, sentence: conversation.ConversationInput) -> None:
        def listener(chat_log: Any, delta: Any) -> None:
            self.hass.verify_event_loop_thread("listener")

        with (
            async_get_chat_session(self.hass, "kitchen") as session,
            async_get_chat_log(self.hass, session, sentence, chat_log_delta_listener=listener) as chat_log,
        ):
            response = await conversation.async_handle_intents(self.hass, sentence, chat_log)
            assert response is not None
            chat_log.async_add_assistant_content_without_tools(
                conversation.AssistantContent(agent_id=BUILT_IN, content="It is late")
            )


async def test_failed_turns_are_not_recorded(
    core: HomeAssistant, entry: MockConfigEntry, ollama: str, model: Model
) -> None:
    model.replies = [ollama_client.ResponseError("out of memory"), "yes"]
    failed = await say(core, "one", agent_id=ollama)
    assert failed.response.response_type is intent.IntentResponseType.ERROR
    nonsense = await say(core, "colourless green ideas", agent_id=BUILT_IN, conversation_id="hall")
    assert nonsense.response.response_type is intent.IntentResponseType.ERROR
    await say(core, "two", agent_id=ollama)
    assert await recorded(entry) == ["two", "yes"]
    assert await recorded(entry, name="hall") == []


async def test_a_tool_call_that_fails_later_leaves_no_trace(
    core: HomeAssistant, entry: MockConfigEntry, ollama: str, model: Model
) -> None:
    model.replies = [
        {"name": "llm__GetDateTime", "arguments": {}},
        ollama_client.ResponseError("out of memory"),
    ]
    await say(core, "one", agent_id=ollama)
    assert await recorded(entry) == []


@pytest.mark.parametrize("entry", [{"record_all_agents": False}], indirect=True)
async def test_recording_can_be_switched_off(
    core: HomeAssistant, entry: MockConfigEntry, ollama: str
) -> None:
    await say(core, "one", agent_id=ollama)
    await say(core, "what time is it", agent_id=BUILT_IN)
    assert await recorded(entry) == []


async def test_an_ai_task_is_not_recorded(core: HomeAssistant, entry: MockConfigEntry, ollama: str) -> None:
    with async_get_chat_session(core) as session, async_get_chat_log(core, session) as chat_log:
        chat_log.async_add_user_content(conversation.UserContent("a task"))
        chat_log.async_add_assistant_content_without_tools(
            conversation.AssistantContent(agent_id="task", content="done")
        )
        name = session.conversation_id
    assert await recorded(entry, name=name, owner="shared") == []


@pytest.mark.parametrize("entry", [{"record_all_agents": False}], indirect=True)
async def test_the_api_gives_history_to_an_agent(
    core: HomeAssistant, entry: MockConfigEntry, model: Model, ollama_with_history: str
) -> None:
    await say(core, "my cat is Momo", agent_id=ollama_with_history, conversation_id=None)
    await entry.runtime_data.recorder.settled()
    await restart(core, entry)
    await say(core, "what is my cat called", agent_id=ollama_with_history, conversation_id=None)
    assert model.said() == ["my cat is Momo", "answer 1", "what is my cat called"]
    await entry.runtime_data.recorder.settled()
    await say(core, "who am I", agent_id=ollama_with_history, conversation_id=None, user="bob")
    assert model.said() == ["who am I"]


async def test_the_prompt_stays_the_same(
    core: HomeAssistant, entry: MockConfigEntry, model: Model, ollama_with_history: str
) -> None:
    for text in ("one", "two", "three"):
        await say(core, text, agent_id=ollama_with_history, conversation_id=None)
        await entry.runtime_data.recorder.settled()
    prompts = {request[0]["content"] for request in model.requests}
    assert len(prompts) == 1
