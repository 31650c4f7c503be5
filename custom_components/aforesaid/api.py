"""An LLM API that gives history to an agent without wrapping it: tick "Aforesaid" in the agent's options."""

from homeassistant.components import conversation
from homeassistant.components.conversation.chat_log import current_chat_log
from homeassistant.core import HomeAssistant
from homeassistant.helpers import llm

from .const import DEFAULT_TITLE, DOMAIN
from .contents import seed
from .names import is_generated, rolling_name
from .owners import owner_of
from .recorder import is_handled, mark_continues
from .runtime import AforesaidConfigEntry

PROMPT = "The messages before the last one may be from earlier conversations with this user."


class HistoryAPI(llm.API):
    """Inserts the window of the stored conversation into the chat log. Assist offers the tools."""

    def __init__(self, hass: HomeAssistant, entry: AforesaidConfigEntry) -> None:
        super().__init__(hass=hass, id=DOMAIN, name=DEFAULT_TITLE)
        self._entry = entry

    async def async_get_api_instance(self, llm_context: llm.LLMContext) -> llm.APIInstance:
        """Seed the log of the current turn. The core awaits this before it asks the model."""
        chat_log = current_chat_log.get()
        if chat_log is not None and not is_handled(chat_log):
            await self._seed(chat_log, llm_context)
        return llm.APIInstance(api=self, api_prompt=PROMPT, llm_context=llm_context, tools=[])

    async def _seed(self, chat_log: conversation.ChatLog, llm_context: llm.LLMContext) -> None:
        if not isinstance(chat_log.content[-1], conversation.UserContent):
            return  # an AI task, which adds its instructions later
        runtime = self._entry.runtime_data
        owner = owner_of(self.hass, runtime.options, llm_context.context, llm_context.device_id)
        name = chat_log.conversation_id
        if is_generated(name):
            name = rolling_name(llm_context.device_id, llm_context.platform)
        mark_continues(chat_log, name)
        window = await runtime.history.window(owner, name, runtime.options.policy)
        seed(chat_log, window, owner=owner, agent_id=llm_context.platform)
