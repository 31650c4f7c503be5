"""The integration's options as one value, and the window policy that follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from aforesaid.windows import WindowPolicy

from .const import (
    CONF_AUTO_CREATE,
    CONF_DEVICE,
    CONF_DEVICES,
    CONF_LIFETIME,
    CONF_MAX_TOKENS,
    CONF_MAX_TURNS,
    CONF_PERSON,
    CONF_PRESERVE_SYSTEM,
    CONF_RECORD,
    CONF_TOOLS,
    CONF_TTL_DAYS,
    CONF_UNMAPPED,
    CONF_WINDOW,
    UNMAPPED_DEVICE,
)

DEFAULT_MAX_TOKENS = 4000
DEFAULT_MAX_TURNS = 20
DEFAULT_DAYS = 30

DEFAULTS: dict[str, Any] = {
    CONF_WINDOW: True,
    CONF_MAX_TOKENS: DEFAULT_MAX_TOKENS,
    CONF_PRESERVE_SYSTEM: True,
    CONF_MAX_TURNS: DEFAULT_MAX_TURNS,
    CONF_AUTO_CREATE: False,
    CONF_LIFETIME: {"days": DEFAULT_DAYS},
    CONF_RECORD: True,
    CONF_TOOLS: True,
    CONF_UNMAPPED: UNMAPPED_DEVICE,
    CONF_DEVICES: [],
}

NOTES_TOKENS = 500
"""Tokens for notes in a window; they replace the library's budget only where the window is smaller."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user configured. `of` merges the entry's options with those of one agent."""

    window: bool = True
    max_tokens: int = DEFAULT_MAX_TOKENS
    preserve_system: bool = True
    max_turns: int = DEFAULT_MAX_TURNS
    auto_create: bool = False
    lifetime: timedelta | None = timedelta(days=DEFAULT_DAYS)
    record: bool = True
    tools: bool = True
    unmapped: str = UNMAPPED_DEVICE
    devices: Mapping[str, str | None] = field(default_factory=dict)
    """Persons by device id; None means the shared memory."""

    @classmethod
    def of(cls, *layers: Mapping[str, Any]) -> Self:
        """Return the options; a later mapping takes precedence."""
        values = dict(DEFAULTS)
        for layer in layers:
            values.update(layer)
        return cls(
            window=values[CONF_WINDOW],
            max_tokens=int(values[CONF_MAX_TOKENS]),
            preserve_system=values[CONF_PRESERVE_SYSTEM],
            max_turns=int(values[CONF_MAX_TURNS]),
            auto_create=values[CONF_AUTO_CREATE],
            lifetime=lifetime_of(values[CONF_LIFETIME]),
            record=values[CONF_RECORD],
            tools=values[CONF_TOOLS],
            unmapped=values[CONF_UNMAPPED],
            devices={one[CONF_DEVICE]: one.get(CONF_PERSON) for one in values[CONF_DEVICES]},
        )

    @property
    def policy(self) -> WindowPolicy:
        """The window that an agent receives before the user's new sentence."""
        return WindowPolicy(
            max_turns=self.max_turns,
            max_tokens=self.max_tokens if self.window else None,
            preserve_system=self.preserve_system,
            for_request=True,
        )


def lifetime_of(value: Mapping[str, float]) -> timedelta | None:
    """Return the lifetime of a duration selector's value; no time at all means forever."""
    return timedelta(**value) or None


def imported(yaml: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in a YAML block. `ttl_days` becomes the lifetime."""
    options = {key: yaml[key] for key in DEFAULTS if key in yaml}
    if CONF_TTL_DAYS in yaml:
        options[CONF_LIFETIME] = {"days": yaml[CONF_TTL_DAYS]}
    return options
