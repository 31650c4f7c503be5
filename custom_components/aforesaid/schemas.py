"""The forms of the flows."""

from collections.abc import Mapping
from typing import Any

import probatio as vol
from homeassistant.components.conversation import HOME_ASSISTANT_AGENT
from homeassistant.helpers import selector as sel

from .const import (
    CONF_AUTO_CREATE,
    CONF_DEVICE,
    CONF_DEVICES,
    CONF_KEY,
    CONF_LIFETIME,
    CONF_MAX_TOKENS,
    CONF_MAX_TURNS,
    CONF_PERSON,
    CONF_PLAIN_HTTP,
    CONF_PRESERVE_SYSTEM,
    CONF_RECORD,
    CONF_TARGET,
    CONF_TOOLS,
    CONF_UNMAPPED,
    CONF_URL,
    CONF_WINDOW,
    UNMAPPED_DEVICE,
    UNMAPPED_SHARED,
)
from .options import DEFAULTS

PASSWORD = sel.TextSelector(sel.TextSelectorConfig(type=sel.TextSelectorType.PASSWORD))

SERVER = vol.Schema(
    {
        vol.Required(CONF_URL): sel.TextSelector(sel.TextSelectorConfig(type=sel.TextSelectorType.URL)),
        vol.Optional(CONF_KEY): PASSWORD,
        vol.Optional(CONF_PLAIN_HTTP, default=False): sel.BooleanSelector(),
    }
)
KEY = vol.Schema({vol.Required(CONF_KEY): PASSWORD})


def _number(least: int, most: int, unit: str) -> sel.NumberSelector:
    return sel.NumberSelector(
        sel.NumberSelectorConfig(
            min=least, max=most, step=1, mode=sel.NumberSelectorMode.BOX, unit_of_measurement=unit
        )
    )


def _defaults(fields: Mapping[str, Any], current: Mapping[str, Any]) -> vol.Schema:
    """Return a schema that proposes the current values."""
    values = {**DEFAULTS, **current}
    return vol.Schema({vol.Required(key, default=values[key]): field for key, field in fields.items()})


def _window_fields() -> dict[str, Any]:
    return {
        CONF_WINDOW: sel.BooleanSelector(),
        CONF_MAX_TOKENS: _number(100, 1_000_000, "tokens"),
        CONF_PRESERVE_SYSTEM: sel.BooleanSelector(),
        CONF_MAX_TURNS: _number(0, 10_000, "turns"),
        CONF_AUTO_CREATE: sel.BooleanSelector(),
    }


def window(current: Mapping[str, Any]) -> vol.Schema:
    """Return the form of the window and the lifetime."""
    lifetime = sel.DurationSelector(sel.DurationSelectorConfig(enable_day=True, allow_negative=False))
    return _defaults({**_window_fields(), CONF_LIFETIME: lifetime}, current)


def recording(current: Mapping[str, Any]) -> vol.Schema:
    """Return the form of what is recorded and offered to agents."""
    return _defaults({CONF_RECORD: sel.BooleanSelector(), CONF_TOOLS: sel.BooleanSelector()}, current)


def owners(current: Mapping[str, Any]) -> vol.Schema:
    """Return the form of the owners of devices."""
    fields: dict[str, Any] = {
        CONF_DEVICE: {"selector": {"device": {}}, "required": True},
        CONF_PERSON: {"selector": {"entity": {"filter": {"domain": "person"}}}},
    }
    config = sel.ObjectSelectorConfig(
        fields=fields, multiple=True, label_field=CONF_DEVICE, translation_key=CONF_DEVICES
    )
    choice = sel.SelectSelectorConfig(
        options=[UNMAPPED_DEVICE, UNMAPPED_SHARED], translation_key=CONF_UNMAPPED
    )
    return _defaults(
        {CONF_UNMAPPED: sel.SelectSelector(choice), CONF_DEVICES: sel.ObjectSelector(config)}, current
    )


def agent(current: Mapping[str, Any], target: str = HOME_ASSISTANT_AGENT) -> vol.Schema:
    """Return the form of a remembering agent.

    The target has a default, because the user interface cannot show a required agent without one.
    """
    required = vol.Required(CONF_TARGET, default=target)
    return vol.Schema({required: sel.ConversationAgentSelector()}).extend(
        _defaults(_window_fields(), current).schema
    )
