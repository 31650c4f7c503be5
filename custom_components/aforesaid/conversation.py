"""A conversation entity that remembers: it wraps another agent."""

from typing import Literal

from homeassistant.components import conversation
from homeassistant.components.conversation.agent_manager import async_get_agent
from homeassistant.components.conversation.models import AbstractConversationAgent
from homeassistant.config_entries import ConfigSubentry
from homeassistant.const import MATCH_ALL
from homeassistant.core import HomeAssistant, callback
from homeassistant.exceptions import HomeAssistantError
from homeassistant.helpers import intent
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback

from .agents import missing_target, resolve_target
from .const import CONF_TARGET, DOMAIN, SUBENTRY_AGENT
from .contents import mark_stored, messages_of, seed
from .names import conversation_name
from .options import Options
from .owners import owner_of
from .recorder import mark_handled
from .runtime import AforesaidConfigEntry

PARALLEL_UPDATES = 0


async def async_setup_entry(
    hass: HomeAssistant, entry: AforesaidConfigEntry, async_add_entities: AddConfigEntryEntitiesCallback
) -> None:
    """Add one entity for each remembering agent."""
    for subentry in entry.subentries.values():
        if subentry.subentry_type == SUBENTRY_AGENT:
            async_add_entities([RememberingEntity(entry, subentry)], config_subentry_id=subentry.subentry_id)


class RememberingEntity(conversation.ConversationEntity):
    """An agent with the memory of its conversations."""

    _attr_has_entity_name = True
    _attr_name = None
    _attr_translation_key = "remembering"

    def __init__(self, entry: AforesaidConfigEntry, subentry: ConfigSubentry) -> None:
        self._entry = entry
        self._agent = subentry.subentry_id
        self._target: str = subentry.data[CONF_TARGET]
        self._options = Options.of(entry.options, subentry.data)
        self._attr_unique_id = subentry.subentry_id
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, subentry.subentry_id)},
            name=subentry.title,
            manufacturer="Aforesaid",
            entry_type=DeviceEntryType.SERVICE,
        )

    # What Home Assistant asks of an agent is answered by the target, found at each use: it may be reloaded.

    @property
    def supported_languages(self) -> list[str] | Literal["*"]:
        agent = self._target_agent()
        return MATCH_ALL if agent is None else agent.supported_languages

    @property
    def supports_streaming(self) -> bool:
        return bool(getattr(self._target_agent(), "supports_streaming", False))

    @property
    def supported_features(self) -> conversation.ConversationEntityFeature:
        features = getattr(self._target_agent(), "supported_features", None)
        return conversation.ConversationEntityFeature(features or 0)

    async def async_prepare(self, language: str | None = None) -> None:
        agent = self._target_agent()
        if agent is not None:
            await agent.async_prepare(language)

    @callback
    def _target_agent(
        self,
    ) -> AbstractConversationAgent | conversation.ConversationEntity | None:
        return async_get_agent(self.hass, resolve_target(self.hass, self._target))

    async def _async_handle_message(
        self, user_input: conversation.ConversationInput, chat_log: conversation.ChatLog
    ) -> conversation.ConversationResult:
        """Seed the log, let the target answer, and store the turn. A failed turn leaves no trace."""
        mark_handled(chat_log)
        target = resolve_target(self.hass, self._target)
        missing_target(self.hass, self._agent, self.device_name, is_missing=self._target_agent() is None)
        if self._target_agent() is None:
            raise HomeAssistantError(
                translation_domain=DOMAIN,
                translation_key="target_missing",
                translation_placeholders={"target": target},
            )
        owner = owner_of(
            self.hass, self._options, user_input.context, user_input.device_id, user_input.satellite_id
        )
        name = conversation_name(
            user_input, chat_log.conversation_id, self._agent, auto_create=self._options.auto_create
        )
        before = list(chat_log.content)
        await self._seed(chat_log, owner, name)
        start = len(chat_log.content) - 1
        is_done = False
        try:
            result = await self._ask(target, user_input, chat_log)
            is_done = result.response.response_type is not intent.IntentResponseType.ERROR
        finally:
            if not is_done:
                chat_log.content[:] = before
        if is_done:
            await self._store(user_input, chat_log, start, owner, name)
        # The caller continues with the name: unlike the core's id it does not expire.
        result.conversation_id = name
        return result

    @property
    def device_name(self) -> str:
        """The name that the user gave this agent."""
        return str((self._attr_device_info or {}).get("name") or "")

    async def _seed(self, chat_log: conversation.ChatLog, owner: str, name: str) -> None:
        window = await self._entry.runtime_data.history.window(owner, name, self._options.policy)
        seed(chat_log, window, owner=owner, agent_id=self.entity_id)

    async def _ask(
        self, target: str, user_input: conversation.ConversationInput, chat_log: conversation.ChatLog
    ) -> conversation.ConversationResult:
        """Let the target answer in the same session and log, so that its deltas pass through."""
        result = await conversation.async_converse(
            self.hass,
            text=user_input.text,
            conversation_id=chat_log.conversation_id,
            context=user_input.context,
            language=user_input.language,
            agent_id=target,
            device_id=user_input.device_id,
            satellite_id=user_input.satellite_id,
            extra_system_prompt=user_input.extra_system_prompt,
        )
        is_error = result.response.response_type is intent.IntentResponseType.ERROR
        if not is_error and isinstance(chat_log.content[-1], conversation.UserContent):
            # An agent of the older kind, which does not write to the log.
            speech = result.response.speech.get("plain", {}).get("speech", "")
            chat_log.async_add_assistant_content_without_tools(
                conversation.AssistantContent(agent_id=target, content=speech)
            )
        return result

    async def _store(
        self,
        user_input: conversation.ConversationInput,
        chat_log: conversation.ChatLog,
        start: int,
        owner: str,
        name: str,
    ) -> None:
        turn = chat_log.content[start:]
        messages = messages_of(turn, chat_log.conversation_id)
        is_voice = user_input.device_id is not None or user_input.satellite_id is not None
        await self._entry.runtime_data.history.store(owner, name, messages, "voice" if is_voice else "text")
        mark_stored(turn, owner)
