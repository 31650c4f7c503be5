"""Whose memory a turn belongs to, and that nobody reads another's."""

from homeassistant.core import HomeAssistant
from homeassistant.helpers import device_registry as dr
from pytest_homeassistant_custom_component.common import MockConfigEntry

from custom_components.aforesaid.options import Options
from custom_components.aforesaid.owners import owner_of
from tests.homeassistant.test_tools import call
from tests.homeassistant.world import Model, agent, load, memory_entry, say


async def device(core: HomeAssistant, name: str) -> str:
    entry = MockConfigEntry()
    entry.add_to_hass(core)
    registry = dr.async_get(core)
    return registry.async_get_or_create(config_entry_id=entry.entry_id, identifiers={("test", name)}).id


async def test_the_same_id_is_another_conversation_for_another_user(
    core: HomeAssistant, ollama: str, model: Model
) -> None:
    await load(core, memory_entry(agent(ollama)))
    await say(core, "my cat is Momo", user="erin")
    core.data.pop("conversation_chat_logs")
    await say(core, "what is my cat called", user="bob")
    assert model.said() == ["what is my cat called"]
    core.data.pop("conversation_chat_logs")
    await say(core, "what is it called", user="erin")
    assert "my cat is Momo" in model.said()
    assert "what is my cat called" not in model.said()


async def test_another_user_in_the_same_session_sees_nothing(
    core: HomeAssistant, ollama: str, model: Model
) -> None:
    """The core's own log of a session has no owner; what is stored of it must not reach another one."""
    await load(core, memory_entry(agent(ollama)))
    await say(core, "my cat is Momo", user="erin")
    await say(core, "what is my cat called", user="bob")
    assert model.said() == ["what is my cat called"]


async def test_tools_find_the_own_history_only(core: HomeAssistant, ollama: str) -> None:
    await load(core, memory_entry(agent(ollama)))
    await say(core, "my cat is Momo", user="erin")
    nothing = (await call(core, "search_history", user="bob", query="cat")).data
    assert nothing["passages"] == []
    assert "Nothing about this was said" in nothing["remark"]
    assert len((await call(core, "search_history", user="erin", query="cat")).data["passages"]) == 1


async def test_devices_have_memories_of_their_own(core: HomeAssistant, ollama: str, model: Model) -> None:
    await load(core, memory_entry(agent(ollama)))
    kitchen, hall = await device(core, "kitchen"), await device(core, "hall")
    await say(core, "my cat is Momo", user=None, device_id=kitchen)
    core.data.pop("conversation_chat_logs")
    await say(core, "what is my cat called", user=None, device_id=hall)
    assert model.said() == ["what is my cat called"]


async def test_the_user_maps_devices(core: HomeAssistant, ollama: str, model: Model) -> None:
    kitchen, hall, attic = [await device(core, name) for name in ("kitchen", "hall", "attic")]
    core.states.async_set("person.erin", "home", {"user_id": "erin"})
    options = {"device_owners": [{"device": kitchen, "person": "person.erin"}, {"device": hall}]}
    await load(core, memory_entry(agent(ollama), options=options))
    await say(core, "my cat is Momo", user="erin")
    core.data.pop("conversation_chat_logs")
    await say(core, "what is my cat called", user=None, device_id=kitchen)
    assert "my cat is Momo" in model.said()
    await say(core, "who lives here", user=None, device_id=hall, conversation_id="house")
    core.data.pop("conversation_chat_logs")
    await say(core, "and who else", user=None, conversation_id="house")
    assert "who lives here" in model.said()
    core.data.pop("conversation_chat_logs")
    await say(core, "and who else", user=None, device_id=attic, conversation_id="house")
    assert model.said() == ["and who else"]


async def test_owners(core: HomeAssistant) -> None:
    core.states.async_set("person.guest", "home", {})
    own = Options()
    shared = Options(unmapped="shared", devices={"bed": "person.guest"})
    assert owner_of(core, own, None, None) == "shared"
    assert owner_of(core, own, None, None, "assist_satellite.hall") == "satellite:assist_satellite.hall"
    assert owner_of(core, shared, None, None, "assist_satellite.hall") == "shared"
    assert owner_of(core, own, None, "bed") == "device:bed"
    assert owner_of(core, shared, None, "desk") == "shared"
    assert owner_of(core, shared, None, "bed") == "person:person.guest"
