"""A real core: set it up through its API, talk, restart, ask what was said; its dialogs in Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.homeassistant.headless import Core, spoken
from tests.homeassistant.model_server import ModelServer

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("socket_enabled")]


@pytest.fixture
def model_server(socket_enabled: None) -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def real_core(tmp_path: Path, socket_enabled: None) -> Iterator[Core]:
    core = Core(tmp_path / "config")
    try:
        core.start()
        core.onboard()
        yield core
    finally:
        core.stop()


def test_a_real_core_remembers(real_core: Core, model_server: ModelServer) -> None:
    core = real_core
    ollama = core.flow("ollama", {"url": model_server.url})["result"]
    core.flow([ollama["entry_id"], "conversation"], {"name": "Small model", "model": "small:latest"})
    memory = core.flow("aforesaid", {"next_step_id": "embedded"}, {})["result"]
    agents = [memory["entry_id"], "conversation"]
    core.flow(agents, {"target": "conversation.small_model", "auto_create_conversation_id": True})
    core.flow(agents, {"target": "conversation.home_assistant"})
    remembering = "conversation.small_model_aforesaid"
    built_in = "conversation.home_assistant_aforesaid"
    core.wait_for(remembering, built_in)

    assert spoken(core.say("Is the washing machine done?", remembering)) == "I will remember that."
    first = core.say("What time is it?", built_in, "hall")
    assert first["response"]["response_type"] != "error"
    core.say("What is on the shopping list?", "conversation.small_model")  # recorded, not wrapped

    core.stop()
    core.start()
    core.wait_for(remembering, built_in)

    answer = core.say("What did I ask you yesterday?", remembering)
    assert spoken(answer) == "You asked: Is the washing machine done?"
    for words in ("washing machine", "shopping list", "what time"):
        found = core.action("search_history", query=words)["passages"]
        assert any(words in passage["text"].lower() for passage in found)
    states = {state["entity_id"]: state["state"] for state in core.command("get_states")}
    assert states["sensor.aforesaid_status"] == "ok"
    issues = core.command("repairs/list_issues")["issues"]
    assert [issue for issue in issues if issue["domain"] == "aforesaid"] == []
    assert core.action("clear_history")["erased"]["messages"] >= 6
    assert spoken(core.say("What did I ask you yesterday?", remembering)) == "You asked me nothing."

    core.stop()
    ours = [line for line in core.log().splitlines() if "aforesaid" in line]
    assert not [line for line in ours if "blocking call" in line or "ERROR" in line or "Traceback" in line]
