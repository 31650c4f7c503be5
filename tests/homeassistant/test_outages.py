"""The store is away: agents answer, turns wait in the spool, and the user sees why."""

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from unittest.mock import patch

from homeassistant.core import HomeAssistant
from homeassistant.helpers import entity_registry as er
from homeassistant.helpers import issue_registry as ir
from pytest_homeassistant_custom_component.common import MockConfigEntry

from aforesaid.errors import StoreUnavailable
from custom_components.aforesaid.const import CONF_KEY, CONF_MODE, CONF_URL, DOMAIN, MODE_SERVER
from custom_components.aforesaid.link import Link
from tests.homeassistant.server import ServerProcess
from tests.homeassistant.world import Model, agent, load, memory_entry, recorded, restart, say, speech


def issues(core: HomeAssistant) -> set[str]:
    return {issue for domain, issue in ir.async_get(core).issues if domain == DOMAIN}


def server_entry(server: ServerProcess, target: str) -> MockConfigEntry:
    data = {CONF_MODE: MODE_SERVER, CONF_URL: server.url, CONF_KEY: server.keys["admin"]}
    return memory_entry(agent(target), data=data)


async def check(core: HomeAssistant, entry: MockConfigEntry) -> None:
    await entry.runtime_data.coordinator.async_refresh()
    await core.async_block_till_done()


async def test_a_server_that_goes_and_comes_back(
    core: HomeAssistant, ollama: str, model: Model, server: ServerProcess
) -> None:
    entry = await load(core, server_entry(server, ollama))
    await say(core, "one")
    server.stop()
    await check(core, entry)
    assert issues(core) == {"store_unavailable"}
    assert speech(await say(core, "two")) == "answer 2"
    assert speech(await say(core, "three", conversation_id="hall")) == "answer 3"
    assert len(entry.runtime_data.spool) == 2
    await restart(core, entry)  # the spool survives, and a missing server does not stop the setup
    assert speech(await say(core, "four")) == "answer 4"
    assert len(entry.runtime_data.spool) == 3
    server.start()
    await check(core, entry)
    assert issues(core) == set()
    assert len(entry.runtime_data.spool) == 0
    assert await recorded(entry) == ["one", "answer 1", "two", "answer 2", "four", "answer 4"]
    await say(core, "five")
    assert model.said()[0] == "one"


async def test_a_database_that_fails(core: HomeAssistant, ollama: str, model: Model, tmp_path: Path) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    await say(core, "one")
    real = Link.of

    def fail(*_: object) -> None:
        raise StoreUnavailable("the card is gone")

    with patch.object(Link, "of", fail):
        assert speech(await say(core, "two")) == "answer 2"
        assert model.said() == ["one", "answer 1", "two"]  # the session's own log
    await core.async_block_till_done()
    assert issues(core) == {"store_unavailable"}
    assert (tmp_path / DOMAIN / "spool.jsonl").exists()
    assert Link.of is real
    await check(core, entry)
    assert await recorded(entry) == ["one", "answer 1", "two", "answer 2"]
    assert not (tmp_path / DOMAIN / "spool.jsonl").exists()


async def test_users_do_not_mix_during_an_outage(core: HomeAssistant, ollama: str, model: Model) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    with patch("custom_components.aforesaid.link.shutil.disk_usage", return_value=SimpleNamespace(free=1)):
        await check(core, entry)
        await say(core, "my cat is Momo", user="erin")
        await say(core, "what is my cat called", user="bob")
        assert model.said() == ["what is my cat called"]


async def test_a_full_disk(core: HomeAssistant, ollama: str) -> None:
    entry = await load(core, memory_entry(agent(ollama)))
    with patch("custom_components.aforesaid.link.shutil.disk_usage", return_value=SimpleNamespace(free=1)):
        await check(core, entry)
        assert issues(core) == {"disk_full"}
        assert speech(await say(core, "one")) == "answer 1"
    await check(core, entry)
    assert issues(core) == set()
    assert await recorded(entry) == ["one", "answer 1"]


async def test_a_damaged_database(core: HomeAssistant, ollama: str, tmp_path: Path) -> None:
    (tmp_path / DOMAIN).mkdir()
    (tmp_path / DOMAIN / "memory.db").write_bytes(b"not a database" * 1000)
    entry = await load(core, memory_entry(agent(ollama)))
    assert issues(core) == {"store_damaged"}
    assert speech(await say(core, "one")) == "answer 1"
    (tmp_path / DOMAIN / "memory.db").unlink()
    await check(core, entry)
    assert issues(core) == set()
    assert await recorded(entry) == ["one", "answer 1"]


async def test_a_refused_key(core: HomeAssistant, ollama: str, server: ServerProcess) -> None:
    entry = server_entry(server, ollama)
    await load(core, memory_entry(agent(ollama), data={**entry.data, CONF_KEY: "revoked"}))
    assert issues(core) == {"key_refused"}
    assert speech(await say(core, "one")) == "answer 1"
    (flow,) = core.config_entries.flow.async_progress()
    assert flow["context"]["source"] == "reauth"


async def test_a_missing_target(core: HomeAssistant, ollama: str) -> None:
    entry = await load(core, memory_entry(agent("conversation.nothing")))
    (issue,) = issues(core)
    assert issue.startswith("target_missing_")
    result = await say(core, "hello")
    assert "not available" in speech(result)
    assert await recorded(entry) == []
    (subentry,) = entry.subentries.values()
    core.config_entries.async_update_subentry(entry, subentry, data={"target": ollama})
    await core.async_block_till_done()
    assert issues(core) == set()


async def test_a_renamed_target(core: HomeAssistant, ollama: str) -> None:
    registry = er.async_get(core)
    target = registry.async_get(ollama)
    assert target is not None
    await load(core, memory_entry(agent(target.id)))
    registry.async_update_entity(ollama, new_entity_id="conversation.renamed")
    await core.async_block_till_done()
    assert speech(await say(core, "hello")) == "answer 1"


async def test_a_turn_costs_little(core: HomeAssistant, ollama: str) -> None:
    """Counted in function calls on the event loop, which do not depend on the machine."""
    await load(core, memory_entry(agent(ollama), options={"record_all_agents": False}))

    async def fewest_calls(agent_id: str) -> int:
        counts = []
        for _ in range(10):
            calls = 0

            def count(_frame: FrameType, event: str, _argument: object) -> None:
                nonlocal calls
                calls += event == "call"

            sys.setprofile(count)
            try:
                await say(core, "hello", agent_id=agent_id)
            finally:
                sys.setprofile(None)
            counts.append(calls)
        return min(counts)

    plain = await fewest_calls(ollama)
    assert await fewest_calls("conversation.remembering") < 4 * plain
