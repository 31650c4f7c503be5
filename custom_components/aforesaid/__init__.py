"""Aforesaid: memory for every conversation agent of Home Assistant."""

from functools import partial
from pathlib import Path

import probatio as vol
from homeassistant.config_entries import SOURCE_IMPORT
from homeassistant.const import EVENT_HOMEASSISTANT_STOP, Platform
from homeassistant.core import Event, HomeAssistant
from homeassistant.helpers import config_validation as cv
from homeassistant.helpers.llm import async_register_api
from homeassistant.helpers.typing import ConfigType

from .agents import missing_target, resolve_target, target_exists
from .api import HistoryAPI
from .const import (
    CONF_AUTO_CREATE,
    CONF_KEY,
    CONF_MAX_TOKENS,
    CONF_MAX_TURNS,
    CONF_PRESERVE_SYSTEM,
    CONF_TTL_DAYS,
    CONF_URL,
    CONF_WINDOW,
    DOMAIN,
    SPOOL,
    SUBENTRY_AGENT,
)
from .coordinator import HealthCoordinator
from .history import History
from .issues import clear_issues
from .link import Link, opener_for
from .options import Options
from .recorder import Recorder
from .runtime import AforesaidConfigEntry, Runtime
from .services import async_setup_services
from .spool import Spool

PLATFORMS = (Platform.CONVERSATION, Platform.SENSOR)

CONFIG_SCHEMA = vol.Schema(
    {
        DOMAIN: vol.Schema(
            {
                vol.Optional(CONF_URL): cv.string,
                vol.Optional(CONF_KEY): cv.string,
                vol.Optional(CONF_WINDOW): cv.boolean,
                vol.Optional(CONF_MAX_TOKENS): vol.All(int, vol.Range(min=1)),
                vol.Optional(CONF_PRESERVE_SYSTEM): cv.boolean,
                vol.Optional(CONF_MAX_TURNS): cv.positive_int,
                vol.Optional(CONF_AUTO_CREATE): cv.boolean,
                vol.Optional(CONF_TTL_DAYS): cv.positive_int,
            }
        )
    },
    extra=vol.ALLOW_EXTRA,
)


def memory_folder(hass: HomeAssistant) -> Path:
    """Return the folder with the database and the spool."""
    return Path(hass.config.path(DOMAIN))


async def async_setup(hass: HomeAssistant, config: ConfigType) -> bool:
    """Register the actions, and import the YAML block."""
    async_setup_services(hass)
    if DOMAIN in config:
        hass.async_create_task(
            hass.config_entries.flow.async_init(
                DOMAIN, context={"source": SOURCE_IMPORT}, data=dict(config[DOMAIN])
            )
        )
    return True


async def async_setup_entry(hass: HomeAssistant, entry: AforesaidConfigEntry) -> bool:
    """Open the memory. An outage does not fail it: the agents must answer."""
    options = Options.of(entry.options)
    folder = memory_folder(hass)
    link = Link(opener_for(entry.data, folder, options.lifetime))
    spool = Spool(folder / SPOOL)
    await spool.load()
    history = History(link, spool, options.lifetime)
    coordinator = HealthCoordinator(hass, entry, link, history)
    recorder = Recorder(hass, history, options)
    entry.runtime_data = Runtime(
        link=link, spool=spool, history=history, options=options, recorder=recorder, coordinator=coordinator
    )
    await coordinator.async_config_entry_first_refresh()
    coordinator.async_follow()
    entry.async_on_unload(recorder.start(partial(entry.async_create_background_task, hass)))
    entry.async_on_unload(async_register_api(hass, HistoryAPI(hass, entry)))
    entry.async_on_unload(hass.bus.async_listen_once(EVENT_HOMEASSISTANT_STOP, partial(_stop, entry)))
    _check_targets(hass, entry)
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)
    entry.async_on_unload(entry.add_update_listener(_reload))
    return True


async def _reload(hass: HomeAssistant, entry: AforesaidConfigEntry) -> None:
    """Reload after a change of options or agents."""
    await hass.config_entries.async_reload(entry.entry_id)


async def async_unload_entry(hass: HomeAssistant, entry: AforesaidConfigEntry) -> bool:
    """Store what is complete, and close the memory."""
    if not await hass.config_entries.async_unload_platforms(entry, PLATFORMS):
        return False
    await _close(entry)
    clear_issues(hass)
    return True


async def _stop(entry: AforesaidConfigEntry, event: Event) -> None:
    """Close the memory when the core stops, which unloads no entries."""
    await _close(entry)


async def _close(entry: AforesaidConfigEntry) -> None:
    await entry.runtime_data.recorder.close()
    await entry.runtime_data.link.close()


async def async_remove_entry(hass: HomeAssistant, entry: AforesaidConfigEntry) -> None:
    """Close the issues. The database stays: removing an integration must not delete memories."""
    for subentry in entry.subentries.values():
        missing_target(hass, subentry.subentry_id, subentry.title, is_missing=False)


def _check_targets(hass: HomeAssistant, entry: AforesaidConfigEntry) -> None:
    """Open an issue for each agent whose target was removed."""
    for subentry in entry.subentries.values():
        if subentry.subentry_type == SUBENTRY_AGENT:
            target = resolve_target(hass, subentry.data["target"])
            missing_target(
                hass, subentry.subentry_id, subentry.title, is_missing=not target_exists(hass, target)
            )
