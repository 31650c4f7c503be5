"""A real core: set it up through its API, talk, restart, ask what was said; its dialogs in Chromium."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

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


def test_the_dialogs_in_a_browser(real_core: Core, tmp_path: Path) -> None:
    """Set the integration up with the mouse. With AFORESAID_SCREENSHOTS, renew the pictures of the how-to."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the dialogs were NOT shown in a browser: there is no chromium")
    pictures = Path(os.environ.get("AFORESAID_SCREENSHOTS", tmp_path))
    tokens = {**real_core.tokens, "hassUrl": real_core.url, "clientId": f"{real_core.url}/", "expires": 2**53}
    real_core.remove("google_translate")  # the onboarding adds it, and without a network it fails
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 760})
        page.set_default_timeout(180_000)
        page.add_init_script(f"localStorage.setItem('hassTokens', {json.dumps(json.dumps(tokens))})")
        page.goto(f"{real_core.url}/config/integrations/dashboard/add?domain=aforesaid")
        page.get_by_role("button", name="OK").click()
        page.get_by_text("Where should conversations be kept?").wait_for()
        page.get_by_text("On an Aforesaid server").wait_for()
        page.wait_for_timeout(500)  # the animation of the dialog
        page.screenshot(path=pictures / "home-assistant-place.png")
        page.get_by_text("In Home Assistant", exact=True).click()
        page.get_by_text("They are part of your backups").wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=pictures / "home-assistant-embedded.png")
        page.get_by_role("button", name="Submit").click()
        page.get_by_role("button", name="Finish").or_(
            page.get_by_role("button", name="Skip and finish")
        ).click()
        page.goto(f"{real_core.url}/config/integrations/integration/aforesaid")
        page.get_by_role("button", name="Add remembering agent").click()
        page.get_by_text("together with your earlier conversation").wait_for()
        page.get_by_text("Limit the tokens", exact=True).first.wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=pictures / "home-assistant-agent.png")
        page.get_by_role("button", name="Submit").click()
        page.get_by_role("button", name="Finish").or_(
            page.get_by_role("button", name="Skip and finish")
        ).click()
        browser.close()
    real_core.wait_for("conversation.home_assistant_aforesaid")
    assert len(list(pictures.glob("home-assistant-*.png"))) == 3
