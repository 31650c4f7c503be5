"""Set up the memory in the user interface, and the agents that remember."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import probatio as vol
from homeassistant.components.conversation import async_get_agent_info
from homeassistant.config_entries import (
    ConfigFlow,
    ConfigFlowResult,
    ConfigSubentryFlow,
    OptionsFlow,
    SubentryFlowResult,
)
from homeassistant.core import callback
from homeassistant.helpers import entity_registry as er

from aforesaid.errors import (
    AforesaidError,
    InvalidSetting,
    NotAllowed,
    NotAuthenticated,
    StoreDamaged,
    StoreForeign,
)

from . import memory_folder, schemas
from .agents import resolve_target, target_id
from .const import (
    CONF_KEY,
    CONF_MODE,
    CONF_PLAIN_HTTP,
    CONF_TARGET,
    CONF_URL,
    DEFAULT_TITLE,
    DOMAIN,
    MODE_EMBEDDED,
    MODE_SERVER,
    SUBENTRY_AGENT,
)
from .link import Embedded, Opener, Server, check_access, is_disk_full
from .options import imported
from .runtime import AforesaidConfigEntry

log = logging.getLogger(__name__)


async def try_open(opener: Opener) -> dict[str, str]:
    """Open a memory, check the access, and close it; return the errors of the form."""
    try:
        memory = await opener()
        try:
            await check_access(memory)
        finally:
            await memory.close()
    except (AforesaidError, OSError) as error:
        log.info("the memory cannot be used: %s", error)
        return {"base": error_key(error)}
    except Exception:
        log.exception("unexpected error")
        return {"base": "unknown"}
    return {}


def error_key(error: Exception) -> str:
    """Return the translation key of an error."""
    if isinstance(error, NotAuthenticated):
        return "invalid_auth"
    if isinstance(error, NotAllowed):
        return "not_allowed"
    if isinstance(error, StoreForeign):
        return "not_aforesaid"
    if isinstance(error, StoreDamaged):
        return "damaged"
    if isinstance(error, InvalidSetting):
        return "plain_http" if "unencrypted" in str(error) else "invalid_url"
    return "disk_full" if is_disk_full(error) else "cannot_connect"


class AforesaidConfigFlow(ConfigFlow, domain=DOMAIN):
    """The setup, the new key, and the change of place."""

    VERSION = 1
    MINOR_VERSION = 1

    @staticmethod
    @callback
    def async_get_options_flow(config_entry: AforesaidConfigEntry) -> OptionsFlow:
        return AforesaidOptionsFlow()

    @classmethod
    @callback
    def async_get_supported_subentry_types(
        cls, config_entry: AforesaidConfigEntry
    ) -> dict[str, type[ConfigSubentryFlow]]:
        return {SUBENTRY_AGENT: AgentSubentryFlow}

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Ask where the memory is kept."""
        return self.async_show_menu(step_id="user", menu_options=[MODE_EMBEDDED, MODE_SERVER])

    async def async_step_reconfigure(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Ask where the memory is kept from now on."""
        return self.async_show_menu(step_id="reconfigure", menu_options=[MODE_EMBEDDED, MODE_SERVER])

    async def async_step_embedded(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Keep the memory in Home Assistant's configuration folder."""
        errors: dict[str, str] = {}
        folder = memory_folder(self.hass)
        if user_input is not None:
            if not self._is_open(MODE_EMBEDDED):
                errors = await try_open(Embedded(folder, None))
            if not errors:
                return self._finish({CONF_MODE: MODE_EMBEDDED})
        return self.async_show_form(
            step_id=MODE_EMBEDDED,
            data_schema=vol.Schema({}),
            errors=errors,
            description_placeholders={"folder": _shown(self.hass.config.config_dir, folder)},
        )

    async def async_step_server(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Keep the memory on a server."""
        errors: dict[str, str] = {}
        if user_input is not None:
            errors = await try_open(_server(user_input))
            if not errors:
                return self._finish({CONF_MODE: MODE_SERVER, **user_input})
        current = self._get_reconfigure_entry().data if self.source == "reconfigure" else {}
        schema = self.add_suggested_values_to_schema(schemas.SERVER, user_input or current)
        return self.async_show_form(
            step_id=MODE_SERVER,
            data_schema=schema,
            errors=errors,
            # Translations must not contain addresses.
            description_placeholders={"example": "https://memory.example.org"},
        )

    def _is_open(self, mode: str) -> bool:
        """Return whether the entry to reconfigure has this place open already."""
        return self.source == "reconfigure" and self._get_reconfigure_entry().data[CONF_MODE] == mode

    def _finish(self, data: dict[str, Any]) -> ConfigFlowResult:
        if self.source == "reconfigure":
            return self.async_update_and_abort(self._get_reconfigure_entry(), data=data)
        return self.async_create_entry(title=DEFAULT_TITLE, data=data)

    async def async_step_import(self, import_data: dict[str, Any]) -> ConfigFlowResult:
        """Take over a block of configuration.yaml."""
        data: dict[str, Any] = {CONF_MODE: MODE_EMBEDDED}
        opener: Opener = Embedded(memory_folder(self.hass), None)
        if CONF_URL in import_data:
            data = {key: import_data[key] for key in (CONF_URL, CONF_KEY) if key in import_data}
            data[CONF_MODE] = MODE_SERVER
            opener = _server(data)
        if errors := await try_open(opener):
            return self.async_abort(reason=errors["base"])
        return self.async_create_entry(title=DEFAULT_TITLE, data=data, options=imported(import_data))

    async def async_step_reauth(self, entry_data: Mapping[str, Any]) -> ConfigFlowResult:
        """Ask for a new key."""
        return await self.async_step_reauth_confirm()

    async def async_step_reauth_confirm(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Check the new key."""
        entry = self._get_reauth_entry()
        errors: dict[str, str] = {}
        if user_input is not None:
            data = {**entry.data, **user_input}
            errors = await try_open(_server(data))
            if not errors:
                return self.async_update_and_abort(entry, data=data)
        return self.async_show_form(
            step_id="reauth_confirm",
            data_schema=schemas.KEY,
            errors=errors,
            description_placeholders={"url": entry.data.get(CONF_URL, "")},
        )


class AforesaidOptionsFlow(OptionsFlow):
    """The options, in three forms."""

    async def async_step_init(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Choose a form."""
        return self.async_show_menu(step_id="init", menu_options=["window", "recording", "owners"])

    async def async_step_window(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Change the window and the lifetime."""
        return self._step("window", schemas.window(self.config_entry.options), user_input)

    async def async_step_recording(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Change what is recorded."""
        return self._step("recording", schemas.recording(self.config_entry.options), user_input)

    async def async_step_owners(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Change whose memory a device uses."""
        return self._step("owners", schemas.owners(self.config_entry.options), user_input)

    def _step(self, step: str, schema: vol.Schema, user_input: dict[str, Any] | None) -> ConfigFlowResult:
        if user_input is None:
            return self.async_show_form(step_id=step, data_schema=schema)
        return self.async_create_entry(data={**self.config_entry.options, **user_input})


class AgentSubentryFlow(ConfigSubentryFlow):
    """A remembering agent: the agent it wraps, and its window."""

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> SubentryFlowResult:
        """Add an agent."""
        errors: dict[str, str] = {}
        if user_input is not None:
            target = user_input[CONF_TARGET]
            errors = self._check(target)
            if not errors:
                state = self.hass.states.get(target)
                return self.async_create_entry(
                    title=f"{state.name if state else target} + {DEFAULT_TITLE}",
                    data={**user_input, CONF_TARGET: target_id(self.hass, target)},
                )
        schema = self.add_suggested_values_to_schema(schemas.agent(self._get_entry().options), user_input)
        return self.async_show_form(step_id="user", data_schema=schema, errors=errors)

    async def async_step_reconfigure(self, user_input: dict[str, Any] | None = None) -> SubentryFlowResult:
        """Change an agent."""
        subentry = self._get_reconfigure_subentry()
        errors: dict[str, str] = {}
        if user_input is not None:
            target = user_input[CONF_TARGET]
            errors = self._check(target)
            if not errors:
                data = {**user_input, CONF_TARGET: target_id(self.hass, target)}
                return self.async_update_and_abort(self._get_entry(), subentry, data=data)
        target = resolve_target(self.hass, subentry.data[CONF_TARGET])
        schema = schemas.agent({**self._get_entry().options, **subentry.data}, target)
        return self.async_show_form(step_id="reconfigure", data_schema=schema, errors=errors)

    def _check(self, target: str) -> dict[str, str]:
        """Refuse an agent that is not there, and one that remembers already."""
        entry = er.async_get(self.hass).async_get(target)
        if entry is not None and entry.platform == DOMAIN:
            return {CONF_TARGET: "remembers_already"}
        return {} if async_get_agent_info(self.hass, target) else {CONF_TARGET: "target_missing"}


def _server(data: Mapping[str, Any]) -> Server:
    return Server(
        data[CONF_URL], data.get(CONF_KEY), plain_http=data.get(CONF_PLAIN_HTTP, False), known=False
    )


def _shown(config_folder: str, folder: Path) -> str:
    """Return the folder as people know it, whatever the installation calls the configuration folder."""
    return str(Path("/config") / folder.relative_to(config_folder))
