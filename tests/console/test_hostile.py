"""Messages that attack or burst a page are shown as text, everywhere."""

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import say, turn

SCRIPT = "<script>window.attacked = true</script><img src=x onerror='window.attacked=true'> aardvark"
RIGHT_TO_LEFT = "\u202eaardvark \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627"
EMOJI = "aardvark \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1f3\U0001f1f1 e\u0301"
LINE = "aardvark" + "a" * 1_000_000
ZALGO = "aardvark " + "a" + "\u0310" * 300
HOSTILE = (SCRIPT, RIGHT_TO_LEFT, EMOJI, LINE, ZALGO)


@pytest.fixture
def hostile(api: httpx.Client) -> dict[str, str]:
    """Fill every field that people or programs can write."""
    one = turn(
        api, "one", *(message for text in HOSTILE for message in (say("user", text), say("assistant", text)))
    )
    call = {"type": "tool_use", "id": "t", "name": SCRIPT, "input": {SCRIPT: LINE[:5000]}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": SCRIPT}
    tools = (
        say("user", SCRIPT),
        say("assistant", [call]),
        say("user", [result]),
        say("assistant", SCRIPT, agent_name=SCRIPT),
    )
    turn(api, "one", *tools, dialect="anthropic")
    fields = {"subject": SCRIPT, "tags": [SCRIPT, RIGHT_TO_LEFT], "assigned_to": EMOJI, "notes": SCRIPT}
    assert api.patch(f"/v1/conversations/{one}", json=fields).is_success
    client = api.post(
        "/v1/clients", json={"name": f"{SCRIPT} Baker", "notes": SCRIPT, "company": SCRIPT}
    ).json()
    api.put(
        f"/v1/conversations/{one}/client", json={"client_id": client["id"], "client_name": client["name"]}
    )
    assert api.post("/v1/notes", json={"text": SCRIPT, "tags": [SCRIPT]}).is_success
    person = {"name": SCRIPT, "role": "manager"}
    assert api.put(f"/v1/conversations/{one}/participants/eve", json=person).is_success
    branch = api.post(f"/v1/conversations/{one}/branches", json={"subject": SCRIPT}).json()["id"]
    turn(api, "one", say("user", SCRIPT))
    return {"conversation": one, "client": client["id"], "branch": branch}


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("/", "<script>"),
        ("/thread/{conversation}", "<script>"),
        ("/context/{conversation}", "<script>"),
        ("/search?query=aardvark", "<script>"),
        ("/clients", "<script>"),
        ("/clients/{client}", "<script>"),
        ("/memory", "<script>"),
        ("/compare/{conversation}?with={branch}", "<script>"),
        ("/notifications?for=eve", "<script>"),
        ("/insights?by=agent", "<script>"),
        ("/insights?by=client", "<script>"),
        ("/privacy", "What is stored"),
        ("/health", "Everything works"),
    ],
)
def test_a_hostile_message_stays_text(
    place: str, text: str, opening: Opening, hostile: dict[str, str]
) -> None:
    console = opening(place.format(**hostile), viewport={"width": 360, "height": 740})
    expect(console.page.get_by_text(text).filter(visible=True).first).to_be_visible()
    assert console.page.evaluate("window.attacked") is None
    assert console.page.locator("main script, main img").count() == 0
    overflow = console.page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0


def test_a_hostile_answer_streams_as_text(opening: Opening) -> None:
    page = opening().page
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("textbox", name="Message").fill(f"Remember that {SCRIPT}")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant").last).to_contain_text("<script>")
    assert page.evaluate("window.attacked") is None
