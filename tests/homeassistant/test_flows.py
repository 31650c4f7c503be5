"""Setup, re-authentication, reconfiguration, options, agents and YAML, with every error of each form."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from homeassistant.config_entries import SOURCE_USER, ConfigEntryState
from homeassistant.core import HomeAssistant
from homeassistant.data_entry_flow import FlowResultType
from homeassistant.setup import async_setup_component

from custom_components.aforesaid.const import (
    CONF_KEY,
    CONF_MODE,
    CONF_TARGET,
    CONF_URL,
    DOMAIN,
    MODE_EMBEDDED,
    MODE_SERVER,
)
from custom_components.aforesaid.options import DEFAULTS
from tests.homeassistant.server import ServerProcess
from tests.homeassistant.world import agent, load, memory_entry

pytestmark = pytest.mark.usefixtures("socket_enabled")


async def choose(core: HomeAssistant, mode: str) -> str:
    """Start the setup and choose a place; return the flow."""
    flow = await core.config_entries.flow.async_init(DOMAIN, context={"source": SOURCE_USER})
    assert flow["type"] is FlowResultType.MENU
    form = await core.config_entries.flow.async_configure(flow["flow_id"], {"next_step_id": mode})
    assert form["type"] is FlowResultType.FORM
    return str(form["flow_id"])


async def answer(core: HomeAssistant, flow_id: str, values: dict[str, Any]) -> Any:
    result = await core.config_entries.flow.async_configure(flow_id, values)
    await core.async_block_till_done()
    return result


async def test_embedded(core: HomeAssistant, tmp_path: Path) -> None:
    result = await answer(core, await choose(core, MODE_EMBEDDED), {})
    assert result["type"] is FlowResultType.CREATE_ENTRY
    assert result["data"] == {CONF_MODE: MODE_EMBEDDED}
    assert result["result"].state is ConfigEntryState.LOADED
    assert (tmp_path / DOMAIN / "memory.db").exists()
    again = await core.config_entries.flow.async_init(DOMAIN, context={"source": SOURCE_USER})
    assert again["reason"] == "single_instance_allowed"


async def test_embedded_errors(core: HomeAssistant, tmp_path: Path) -> None:
    flow_id = await choose(core, MODE_EMBEDDED)
    (tmp_path / DOMAIN).mkdir()
    database = tmp_path / DOMAIN / "memory.db"
    database.write_bytes(b"not a database" * 1000)
    assert (await answer(core, flow_id, {}))["errors"] == {"base": "damaged"}
    database.unlink()
    with patch("custom_components.aforesaid.link.aforesaid.open", side_effect=OSError(28, "No space left")):
        assert (await answer(core, flow_id, {}))["errors"] == {"base": "disk_full"}
    with patch("custom_components.aforesaid.link.aforesaid.open", side_effect=RuntimeError("a bug")):
        assert (await answer(core, flow_id, {}))["errors"] == {"base": "unknown"}
    assert (await answer(core, flow_id, {}))["type"] is FlowResultType.CREATE_ENTRY


async def test_server(core: HomeAssistant, server: ServerProcess) -> None:
    flow_id = await choose(core, MODE_SERVER)
    values = {CONF_URL: server.url, CONF_KEY: "wrong", "plain_http": False}
    for changes, error in (
        ({}, "invalid_auth"),
        ({CONF_KEY: server.keys["one"]}, "not_allowed"),
        ({CONF_KEY: server.keys["read"]}, "not_allowed"),
        ({CONF_URL: "memory.example.org"}, "invalid_url"),
        ({CONF_URL: "http://memory.example.org"}, "plain_http"),
        ({CONF_URL: "http://127.0.0.1:9"}, "cannot_connect"),
    ):
        result = await answer(core, flow_id, {**values, **changes})
        assert result["errors"] == {"base": error}
    result = await answer(core, flow_id, {**values, CONF_KEY: server.keys["admin"]})
    assert result["type"] is FlowResultType.CREATE_ENTRY
    assert result["data"][CONF_MODE] == MODE_SERVER


async def test_another_service_is_refused(core: HomeAssistant) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"status": "ok"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = Thread(target=other.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{other.server_port}"
            result = await answer(core, await choose(core, MODE_SERVER), {CONF_URL: url})
        finally:
            other.shutdown()
            thread.join()
    assert result["errors"] == {"base": "not_aforesaid"}


async def test_a_new_key(core: HomeAssistant, server: ServerProcess) -> None:
    data = {CONF_MODE: MODE_SERVER, CONF_URL: server.url, CONF_KEY: server.keys["one"]}
    entry = await load(core, memory_entry(data=data))
    (flow,) = core.config_entries.flow.async_progress()
    assert flow["context"]["source"] == "reauth"
    refused = await answer(core, flow["flow_id"], {CONF_KEY: "wrong"})
    assert refused["errors"] == {"base": "invalid_auth"}
    done = await answer(core, flow["flow_id"], {CONF_KEY: server.keys["admin"]})
    assert done["reason"] == "reauth_successful"
    assert entry.data[CONF_KEY] == server.keys["admin"]
    assert entry.runtime_data.link.status == "ok"


async def test_another_place(core: HomeAssistant, server: ServerProcess) -> None:
    entry = await load(core, memory_entry())
    menu = await entry.start_reconfigure_flow(core)
    form = await core.config_entries.flow.async_configure(menu["flow_id"], {"next_step_id": MODE_SERVER})
    values = {CONF_URL: server.url, CONF_KEY: "wrong", "plain_http": False}
    assert (await answer(core, form["flow_id"], values))["errors"] == {"base": "invalid_auth"}
    done = await answer(core, form["flow_id"], {**values, CONF_KEY: server.keys["admin"]})
    assert done["reason"] == "reconfigure_successful"
    assert entry.data[CONF_URL] == server.url
    menu = await entry.start_reconfigure_flow(core)
    await core.config_entries.flow.async_configure(menu["flow_id"], {"next_step_id": MODE_EMBEDDED})
    done = await answer(core, menu["flow_id"], {})
    assert done["reason"] == "reconfigure_successful"
    assert entry.data == {CONF_MODE: MODE_EMBEDDED}
    assert entry.runtime_data.link.status == "ok"


async def test_options(core: HomeAssistant) -> None:
    entry = await load(core, memory_entry())
    for step, values in (
        ("window", {"sliding_window_max_tokens": 500, "lifetime": {"days": 7}}),
        ("recording", {"record_all_agents": False}),
        ("owners", {"unmapped_devices": "shared", "device_owners": [{"device": "abc"}]}),
    ):
        menu = await core.config_entries.options.async_init(entry.entry_id)
        form = await core.config_entries.options.async_configure(menu["flow_id"], {"next_step_id": step})
        proposed = {str(key): key.default() for key in form["data_schema"].schema}
        assert proposed == {key: DEFAULTS[key] for key in proposed}
        await core.config_entries.options.async_configure(form["flow_id"], values)
        await core.async_block_till_done()
    options = entry.runtime_data.options
    assert (options.max_tokens, options.record, options.unmapped) == (500, False, "shared")
    assert options.lifetime is not None
    assert options.lifetime.days == 7
    assert options.devices == {"abc": None}
    assert options.max_turns == 20


async def test_the_documented_window_options_are_in_the_form(core: HomeAssistant) -> None:
    documented = {
        "sliding_window_enable": True,
        "sliding_window_max_tokens": 4000,
        "sliding_window_preserve_system": True,
    }
    entry = await load(core, memory_entry())
    menu = await core.config_entries.options.async_init(entry.entry_id)
    form = await core.config_entries.options.async_configure(menu["flow_id"], {"next_step_id": "window"})
    proposed = {str(key): key.default() for key in form["data_schema"].schema}
    assert documented.items() <= proposed.items()
    chosen = {
        "sliding_window_enable": False,
        "sliding_window_max_tokens": 2000,
        "sliding_window_preserve_system": False,
    }
    await core.config_entries.options.async_configure(form["flow_id"], chosen)
    await core.async_block_till_done()
    options = entry.runtime_data.options
    assert (options.window, options.max_tokens, options.preserve_system) == (False, 2000, False)


async def test_a_remembering_agent(core: HomeAssistant, ollama: str) -> None:
    entry = await load(core, memory_entry())
    kind = (entry.entry_id, "conversation")
    form = await core.config_entries.subentries.async_init(kind, context={"source": SOURCE_USER})
    subentries = core.config_entries.subentries
    missing = await subentries.async_configure(form["flow_id"], {CONF_TARGET: "conversation.nothing"})
    assert missing["errors"] == {CONF_TARGET: "target_missing"}
    done = await subentries.async_configure(form["flow_id"], {CONF_TARGET: ollama, "max_history_turns": 3})
    await core.async_block_till_done()
    assert done["type"] is FlowResultType.CREATE_ENTRY
    (subentry,) = entry.subentries.values()
    assert subentry.title == "Local model + Aforesaid"
    (remembering,) = [
        each for each in core.states.async_entity_ids("conversation") if each.endswith("aforesaid")
    ]
    form = await subentries.async_init(kind, context={"source": SOURCE_USER})
    twice = await subentries.async_configure(form["flow_id"], {CONF_TARGET: remembering})
    assert twice["errors"] == {CONF_TARGET: "remembers_already"}

    form = await entry.start_subentry_reconfigure_flow(core, subentry.subentry_id)
    assert form["step_id"] == "reconfigure"
    again = await subentries.async_configure(form["flow_id"], {CONF_TARGET: "conversation.nothing"})
    assert again["errors"] == {CONF_TARGET: "target_missing"}
    changed = await subentries.async_configure(
        form["flow_id"], {CONF_TARGET: "conversation.home_assistant", "max_history_turns": 0}
    )
    assert changed["reason"] == "reconfigure_successful"
    await core.async_block_till_done()
    assert entry.subentries[subentry.subentry_id].data["max_history_turns"] == 0


async def test_yaml(core: HomeAssistant) -> None:
    block = {
        "sliding_window_enable": False,
        "sliding_window_max_tokens": 2000,
        "sliding_window_preserve_system": False,
        "max_history_turns": 5,
        "auto_create_conversation_id": True,
        "ttl_days": 0,
    }
    assert await async_setup_component(core, DOMAIN, {DOMAIN: block})
    await core.async_block_till_done()
    (entry,) = core.config_entries.async_entries(DOMAIN)
    options = entry.runtime_data.options
    assert (options.window, options.max_tokens, options.preserve_system) == (False, 2000, False)
    assert (options.max_turns, options.auto_create, options.lifetime) == (5, True, None)


async def test_yaml_with_a_server(core: HomeAssistant, server: ServerProcess) -> None:
    block = {CONF_URL: server.url, CONF_KEY: server.keys["one"]}
    assert await async_setup_component(core, DOMAIN, {DOMAIN: block})
    await core.async_block_till_done()
    assert not core.config_entries.async_entries(DOMAIN)
    done = await core.config_entries.flow.async_init(
        DOMAIN, context={"source": "import"}, data={**block, CONF_KEY: server.keys["admin"]}
    )
    assert done["type"] is FlowResultType.CREATE_ENTRY


@pytest.mark.parametrize("agents", [0, 1])
async def test_unload_leaves_nothing(core: HomeAssistant, agents: int) -> None:
    entry = await load(core, memory_entry(*[agent("conversation.home_assistant")] * agents))
    before = SimpleNamespace(states=set(core.states.async_entity_ids()))
    for _ in range(3):
        assert await core.config_entries.async_unload(entry.entry_id)
        assert not core.data.get("conversation_chat_log_subscriptions")
        assert await core.config_entries.async_setup(entry.entry_id)
        await core.async_block_till_done()
        assert set(core.states.async_entity_ids()) == before.states
        assert len(core.data["conversation_chat_log_subscriptions"]) == 1
