"""A model in place of an Ollama server, and what tests do with a core."""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from homeassistant.components import conversation
from homeassistant.config_entries import ConfigEntryState, ConfigSubentryData
from homeassistant.core import Context, HomeAssistant
from pytest_homeassistant_custom_component.common import MockConfigEntry

from aforesaid.errors import ConversationNotFound
from custom_components.aforesaid.const import CONF_MODE, CONF_TARGET, DOMAIN, MODE_EMBEDDED

Reply = str | dict[str, Any] | Exception


class Model:
    """A model behind Ollama's client: records requests, and answers them in order."""

    def __init__(self) -> None:
        self.requests: list[list[Any]] = []
        self.tools: list[Any] = []
        self.replies: list[Reply | Callable[[], Coroutine[Any, Any, Reply]]] = []

    async def chat(self, *, messages: list[Any], tools: Any = None, **_: Any) -> AsyncIterator[Any]:
        self.requests.append([dict(message) for message in messages])
        self.tools.append(tools)
        reply: Any = self.replies.pop(0) if self.replies else f"answer {len(self.requests)}"
        if callable(reply):
            reply = await reply()
        if isinstance(reply, Exception):
            raise reply
        return self._stream(reply)

    async def _stream(self, reply: Any) -> AsyncIterator[Any]:
        if isinstance(reply, dict):
            call = {"function": reply}
            yield {"message": {"role": "assistant", "content": "", "tool_calls": [call]}}
        else:
            for word in reply.split(" "):
                yield {"message": {"role": "assistant", "content": word + " "}}
        yield {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}

    def said(self, index: int = -1) -> list[str]:
        """Return what the model received, without the system prompt."""
        texts = [str(message.get("content") or "").strip() for message in self.requests[index]]
        return texts[1:]


def agent(target: str, **options: Any) -> ConfigSubentryData:
    """Return the subentry of a remembering agent."""
    return ConfigSubentryData(
        data={CONF_TARGET: target, **options},
        subentry_type="conversation",
        title="Remembering",
        unique_id=None,
    )


def memory_entry(*agents: ConfigSubentryData, **fields: Any) -> MockConfigEntry:
    """Return an entry with an embedded memory."""
    return MockConfigEntry(
        **{
            "domain": DOMAIN,
            "title": "Aforesaid",
            "data": {CONF_MODE: MODE_EMBEDDED},
            "subentries_data": list(agents),
            **fields,
        }
    )


async def load(core: HomeAssistant, entry: MockConfigEntry) -> MockConfigEntry:
    """Add an entry and wait until it is loaded."""
    entry.add_to_hass(core)
    assert await core.config_entries.async_setup(entry.entry_id)
    await core.async_block_till_done()
    assert entry.state is ConfigEntryState.LOADED
    return entry


async def say(
    core: HomeAssistant,
    text: str,
    *,
    agent_id: str = "conversation.remembering",
    conversation_id: str | None = "kitchen",
    user: str | None = "erin",
    device_id: str | None = None,
) -> conversation.ConversationResult:
    """Say a sentence to an agent."""
    return await conversation.async_converse(
        core,
        text,
        conversation_id,
        Context(user_id=user),
        language="en",
        agent_id=agent_id,
        device_id=device_id,
    )


def speech(result: conversation.ConversationResult) -> str:
    """Return the spoken answer."""
    return str(result.response.speech["plain"]["speech"]).strip()


async def restart(core: HomeAssistant, entry: MockConfigEntry) -> MockConfigEntry:
    """Unload the entry, forget all that the core remembers of conversations, and load it again."""
    await core.config_entries.async_unload(entry.entry_id)
    core.data.pop("conversation_chat_logs", None)
    core.data.pop("chat_session", None)
    await core.config_entries.async_setup(entry.entry_id)
    await core.async_block_till_done()
    return entry


async def recorded(entry: MockConfigEntry, *, name: str = "kitchen", owner: str = "user:erin") -> list[str]:
    """Wait until finished turns are stored; return the words of a conversation."""
    await entry.runtime_data.recorder.settled()
    try:
        messages = await entry.runtime_data.link.of(owner).messages(name)
    except ConversationNotFound:
        return []
    return [str(message.content).strip() for message in messages if message.role in ("user", "assistant")]
