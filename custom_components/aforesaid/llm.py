"""Memory tools for every agent with access to Assist. Home Assistant loads this module by its name."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import probatio as vol
from homeassistant.components.llm import LLMTools
from homeassistant.core import HomeAssistant, callback
from homeassistant.exceptions import HomeAssistantError
from homeassistant.helpers import llm
from homeassistant.util import dt as dt_util

from aforesaid.errors import AforesaidError, InvalidInput
from aforesaid.memory.interface import ManagerProtocol

from .const import DOMAIN
from .owners import owner_of
from .runtime import AforesaidConfigEntry, loaded_entry

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that a tool waits for the memory; a search of years takes longer than a turn may."""

# The same at every turn, so that providers can cache the prompt. What is remembered goes into messages.
PROMPT = (
    "You have a memory of earlier conversations with this user. "
    f"When the user refers to something said before, call {DOMAIN}__search_history. "
    f"When the user asks you to remember or forget something, call {DOMAIN}__remember or {DOMAIN}__forget. "
    f"Call {DOMAIN}__recall for the facts and preferences that the user asked you to remember."
)


@callback
def async_get_tools(hass: HomeAssistant, llm_context: llm.LLMContext, api_id: str) -> LLMTools | None:
    """Return the tools for Assist; None if the user has switched them off."""
    entry = loaded_entry(hass)
    if api_id != llm.LLM_API_ASSIST or entry is None or not entry.runtime_data.options.tools:
        return None
    return LLMTools(
        tools=[SearchHistory(entry), Remember(entry), Recall(entry), Forget(entry)], prompt=PROMPT
    )


class MemoryTool(llm.Tool):
    """A tool that works in the memory of the user who speaks."""

    integration = DOMAIN

    def __init__(self, entry: AforesaidConfigEntry) -> None:
        self._entry = entry

    async def async_call(
        self, hass: HomeAssistant, tool_input: llm.ToolInput, llm_context: llm.LLMContext
    ) -> llm.ToolResult:
        """Run the tool for the owner of the request. A model cannot choose another one."""
        arguments = self.parameters(tool_input.tool_args)
        runtime = self._entry.runtime_data
        owner = owner_of(hass, runtime.options, llm_context.context, llm_context.device_id)

        async def work() -> dict[str, Any]:
            return await self.run(runtime.link.of(owner), **arguments)

        return await _result(runtime.link.call, work)

    @abstractmethod
    async def run(self, manager: ManagerProtocol, **arguments: Any) -> dict[str, Any]:
        """Return the data of the result."""


async def _result(
    call: Callable[..., Awaitable[dict[str, Any]]], work: Callable[[], Awaitable[dict[str, Any]]]
) -> llm.ToolResult:
    try:
        return llm.ToolResult(data=await call(work, patience=PATIENCE))
    except InvalidInput as error:
        return llm.ToolResult(data={"error": str(error)}, error=True)
    except AforesaidError as error:
        raise HomeAssistantError(
            translation_domain=DOMAIN,
            translation_key="store_failed",
            translation_placeholders={"reason": str(error)},
        ) from error


# Of one search: a small local model has a context of a few thousand.
_MAX_TOKENS = 2_000
_READS = llm.ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)


class SearchHistory(MemoryTool):
    """Search what was said."""

    name = f"{DOMAIN}__search_history"
    title = "Search history"
    description = (
        "Search earlier conversations with this user. Returns quotations with speaker and time. "
        "Without a query it returns the latest ones; with dates only those of that time."
    )
    parameters = vol.Schema(
        {
            vol.Optional("query", description="Words to look for"): str,
            vol.Optional("date_from", description="Earliest date, as 2026-01-31"): str,
            vol.Optional("date_to", description="Latest date, as 2026-01-31"): str,
            vol.Optional("max_results", default=5): vol.All(vol.Coerce(int), vol.Range(min=1, max=20)),
        }
    )
    annotations = _READS

    async def run(self, manager: ManagerProtocol, **arguments: Any) -> dict[str, Any]:
        zone = dt_util.get_default_time_zone()
        found = await manager.search(**arguments, max_tokens=_MAX_TOKENS, timezone=zone)
        remark = found.remark(asked=bool(arguments.get("query", "").strip()))
        return {"passages": found.render()} | ({"remark": remark} if remark else {})


class Remember(MemoryTool):
    """Store a note."""

    name = f"{DOMAIN}__remember"
    title = "Remember"
    description = "Remember a fact or preference of this user beyond this conversation."
    parameters = vol.Schema(
        {
            vol.Required("text", description="The fact, as a sentence"): str,
            vol.Optional("subject", description="What it is about; replaces an earlier fact about it"): str,
        }
    )
    annotations = llm.ToolAnnotations(destructive=False, idempotent=True, open_world=False)

    async def run(self, manager: ManagerProtocol, **arguments: Any) -> dict[str, Any]:
        note = await manager.remember(**arguments)
        return {"remembered": note.text}


class Recall(MemoryTool):
    """Read notes."""

    name = f"{DOMAIN}__recall"
    title = "Recall"
    description = "Return facts and preferences that this user asked to remember, the best matching first."
    parameters = vol.Schema(
        {
            vol.Optional("query", description="Words to look for; without it the latest facts"): str,
            vol.Optional("limit", default=10): vol.All(vol.Coerce(int), vol.Range(min=1, max=50)),
        }
    )
    annotations = _READS

    async def run(self, manager: ManagerProtocol, **arguments: Any) -> dict[str, Any]:
        return {"facts": [note.text for note in await manager.recall(**arguments)]}


class Forget(MemoryTool):
    """Remove notes."""

    name = f"{DOMAIN}__forget"
    title = "Forget"
    description = "Forget remembered facts of this user: those on a subject, or with all of these words."
    parameters = vol.Schema({vol.Required("what", description="The subject or the words"): str})
    annotations = llm.ToolAnnotations(idempotent=True, open_world=False)

    async def run(self, manager: ManagerProtocol, **arguments: Any) -> dict[str, Any]:
        return {"forgotten": [note.text for note in await manager.forget(**arguments)]}
