"""Diagnostics have numbers and no content; sensors show size and health."""

from typing import Any

import pytest
from homeassistant.core import HomeAssistant
from homeassistant.helpers import entity_registry as er

from custom_components.aforesaid.diagnostics import async_get_config_entry_diagnostics
from tests.homeassistant.server import ServerProcess
from tests.homeassistant.world import agent, load, memory_entry, say

EXPECTED: dict[str, Any] = {
    "version": "0.1.0",
    "data": {"mode": "embedded", "scheme": None},
    "options": {"device_owners": "**REDACTED**", "max_history_turns": 5},
    "mapped_devices": 1,
    "agents": [{"target": "conversation"}],
    "mode": "embedded",
    "status": "ok",
    "waiting_turns": 0,
    "stored": {"owners": 1, "conversations": 1, "messages": 2, "notes": 1},
}


async def test_diagnostics(core: HomeAssistant, ollama: str) -> None:
    options = {"device_owners": [{"device": "abc"}], "max_history_turns": 5}
    entry = await load(core, memory_entry(agent(ollama), options=options))
    await say(core, "my cat is Momo")
    await entry.runtime_data.link.of("user:erin").remember("I like tea")
    await core.async_block_till_done()
    found = await async_get_config_entry_diagnostics(core, entry)
    assert found.pop("size") > 0
    assert found == EXPECTED
    assert not any(word in str(found) for word in ("Momo", "tea", "erin"))


@pytest.mark.usefixtures("socket_enabled")
async def test_diagnostics_of_a_server(core: HomeAssistant, server: ServerProcess) -> None:
    data = {"mode": "server", "url": server.url, "key": server.keys["admin"]}
    entry = await load(core, memory_entry(data=data))
    found = await async_get_config_entry_diagnostics(core, entry)
    assert found["data"] == {"mode": "server", "url": "**REDACTED**", "key": "**REDACTED**", "scheme": "http"}
    assert found["stored"] == {"owners": 0, "conversations": 0, "messages": 0, "notes": 0}
    server.stop()
    found = await async_get_config_entry_diagnostics(core, entry)
    assert (found["stored"], found["status"]) == (None, "ok")
    await entry.runtime_data.coordinator.async_refresh()
    assert (await async_get_config_entry_diagnostics(core, entry))["status"] == "unavailable"


async def test_sensors(core: HomeAssistant, ollama: str) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    await say(core, "hello")
    await core.async_block_till_done()
    status, size = core.states.get("sensor.aforesaid_status"), core.states.get("sensor.aforesaid_size")
    assert status is not None
    assert status.state == "ok"
    assert size is not None
    assert float(size.state) > 0
    registry = er.async_get(core)
    waiting = registry.async_get("sensor.aforesaid_waiting_turns")
    assert waiting is not None
    assert waiting.disabled_by is er.RegistryEntryDisabler.INTEGRATION
    await entry.runtime_data.link.close()
    await entry.runtime_data.coordinator.async_refresh()
    status = core.states.get("sensor.aforesaid_status")
    assert status is not None
    assert status.state == "ok"  # it was opened again
