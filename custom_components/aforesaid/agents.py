"""The agents that remembering agents wrap."""

from homeassistant.components.conversation import HOME_ASSISTANT_AGENT
from homeassistant.components.conversation.agent_manager import async_get_agent
from homeassistant.core import HomeAssistant, callback
from homeassistant.helpers import entity_registry as er
from homeassistant.helpers import issue_registry as ir

from .const import DOMAIN


@callback
def target_id(hass: HomeAssistant, agent_id: str) -> str:
    """Return the id to store for an agent: that of its registry entry, which survives a new entity id."""
    entry = er.async_get(hass).async_get(agent_id)
    return agent_id if entry is None else entry.id


@callback
def resolve_target(hass: HomeAssistant, target: str) -> str:
    """Return the agent's current id."""
    entry = er.async_get(hass).async_get(target)
    return target if entry is None else entry.entity_id


@callback
def missing_target(hass: HomeAssistant, agent: str, name: str, *, is_missing: bool) -> None:
    """Open or close the repair issue about an agent whose target does not exist."""
    issue = f"target_missing_{agent}"
    if not is_missing:
        ir.async_delete_issue(hass, DOMAIN, issue)
        return
    ir.async_create_issue(
        hass,
        DOMAIN,
        issue,
        is_fixable=False,
        severity=ir.IssueSeverity.ERROR,
        translation_key="target_missing",
        translation_placeholders={"agent": name},
    )


@callback
def target_exists(hass: HomeAssistant, target: str) -> bool:
    """Return whether the agent is registered. It may load later than this integration."""
    if target == HOME_ASSISTANT_AGENT or er.async_get(hass).async_get(target) is not None:
        return True
    return async_get_agent(hass, target) is not None
