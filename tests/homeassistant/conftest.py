"""Home Assistant's own test core with its Ollama integration and built-in agent.

`Model` answers in place of an Ollama server: everything from the integration to the wire format is real.
"""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from homeassistant.config_entries import ConfigSubentryData
from homeassistant.core import HomeAssistant
from homeassistant.setup import async_setup_component
from homeassistant.util import slugify
from pytest_homeassistant_custom_component.common import MockConfigEntry

# Before the harness adds its own folder of components.
import custom_components.aforesaid  # noqa: F401
from tests.homeassistant.server import ServerProcess
from tests.homeassistant.world import Model


@pytest.fixture(autouse=True)
def _custom(enable_custom_integrations: None) -> None:
    """Let the core load this integration."""


@pytest.fixture
def server(tmp_path: Path, socket_enabled: None) -> Iterator[ServerProcess]:
    """A real Aforesaid server."""
    process = ServerProcess(tmp_path)
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture
async def core(hass: HomeAssistant, tmp_path: Path) -> HomeAssistant:
    """A core with conversations, and its configuration in a folder of the test's own."""
    hass.config.config_dir = str(tmp_path)
    assert await async_setup_component(hass, "homeassistant", {})
    assert await async_setup_component(hass, "conversation", {})
    return hass


@pytest.fixture
def model() -> Iterator[Model]:
    answering = Model()
    with (
        patch("ollama.AsyncClient.list", return_value={"models": []}),
        patch("ollama.AsyncClient.chat", side_effect=answering.chat),
    ):
        yield answering


async def _ollama(core: HomeAssistant, title: str, apis: list[str]) -> str:
    entry = MockConfigEntry(
        domain="ollama",
        data={"url": "http://localhost:11434"},
        version=3,
        minor_version=3,
        subentries_data=[
            ConfigSubentryData(
                data={"model": "test", "llm_hass_api": apis, "max_history": 0},
                subentry_type="conversation",
                title=title,
                unique_id=None,
            )
        ],
    )
    entry.add_to_hass(core)
    assert await core.config_entries.async_setup(entry.entry_id)
    await core.async_block_till_done()
    return f"conversation.{slugify(title)}"


@pytest.fixture
async def ollama(core: HomeAssistant, model: Model) -> str:
    """Home Assistant's Ollama agent; return its entity id."""
    return await _ollama(core, "Local model", ["assist"])


@pytest.fixture
async def ollama_with_history(core: HomeAssistant, model: Model) -> str:
    """The same with Aforesaid ticked beside Assist."""
    return await _ollama(core, "Model with history", ["assist", "aforesaid"])
