"""Every page in both schemes and both widths: accessible, in one column on a phone, and kept as a picture."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.household import furnish
from tests.console.serving import Served, store_call_centre

PAGES = {
    "conversations": ("/", "Dinner with Ann"),
    "thread": ("/thread/{dinner}", "No walnuts in the salad"),
    "tools": ("/thread/{weather}", "Calls forecast"),
    "context": ("/context/{dinner}", "Stable start"),
    "search": ("/search?query=roof", "Why:"),
    "memory": ("/memory", "I like leeks"),
    "clients": ("/clients", "Miller Roofing"),
    "client": ("/clients/{client}", "ann@example.org"),
    "participants": ("/thread/{roof}", "Read by"),
    "notifications": ("/notifications?for=miller", "wrote in"),
    "compare": ("/compare/{dinner}?with={branch}", "in both"),
    "insights": ("/insights", "Percentiles"),
    "privacy": ("/privacy", "What would go"),
    "health": ("/health", "Latency of requests"),
}
OWNERS = {"insights": "practice"}
"""Whose data a page shows; by default the household's."""
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}

DIALOGS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "redact": ("/thread/{dinner}", lambda page: act_on_first_message(page, "Redact")),
    "differently": ("/thread/{dinner}", lambda page: act_on_first_message(page, "Ask differently")),
    "person": ("/thread/{roof}", lambda page: press(page, "Change Sam Okafor")),
    "merge": ("/compare/{dinner}?with={branch}", lambda page: press(page, "Merge")),
    "note": ("/memory", lambda page: press(page, "Add a note")),
    "client-form": ("/clients", lambda page: press(page, "Add a client")),
    "erase": ("/privacy", lambda page: press(page, "Erase everything")),
    "key": ("/health", lambda page: press(page, "Create a key")),
    "shortcuts": ("/", lambda page: press(page, "Keyboard shortcuts")),
    "topic": ("/insights", lambda page: press(page, "Name a topic")),
}
"""Dialogs, and how to open them."""

SMALL_TARGETS = """() => [...document.querySelectorAll("button, select, input, textarea")]
  .filter((each) => each.offsetParent && !each.closest(".message-actions, .small"))
  .filter((each) => !["checkbox", "range", "file"].includes(each.type))
  .filter((each) => each.getBoundingClientRect().height < 43.5)
  .map((each) => each.outerHTML.slice(0, 120))"""
"""Controls lower than 44 pixels. Actions inside a line of a message may be smaller (WCAG 2.5.8)."""
SMALL_FOR_FINGERS = """() => [...document.querySelectorAll("button, .button, .why, select, textarea, input")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.matches(".nav-veil"))
  .filter((each) => !["checkbox", "radio", "range", "file"].includes(each.type))
  .filter((each) => each.getBoundingClientRect().height < 43.5)
  .map((each) => each.outerHTML.slice(0, 120))"""
"""Everything that a finger touches, lower than 44 pixels."""


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def act_on_first_message(page: Any, action: str) -> None:
    message = page.locator(".message.user").first
    message.hover()
    message.get_by_role("button", name=action).click()


@pytest.fixture(scope="module")
def places(server: Served) -> dict[str, str]:
    with server.api("household") as api:
        made = furnish(api)
        store_call_centre(server)
        client = api.post("/v1/clients/find", json={"query": "Ann Baker"}).json()["contacts"][0]["id"]
    return {
        "dinner": made["Dinner with Ann"],
        "weather": made["Weather for Saturday"],
        "roof": made["Roof repair"],
        "branch": made["branch"],
        "client": client,
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("page_name", PAGES)
def test_a_page_is_accessible_and_fits(
    page_name: str, width: int, scheme: str, opening: Opening, places: dict[str, str]
) -> None:
    place, text = PAGES[page_name]
    size = {"width": width, "height": 800 if width > 500 else 740}
    console = opening(
        place.format(**places),
        whose=OWNERS.get(page_name, "household"),
        viewport=size,
        color_scheme=scheme,
        locale="en-GB",
    )
    page = console.page
    expect(page.get_by_text(text).first).to_be_visible()
    if page_name == "participants" and width > 500:
        page.get_by_role("region", name="Participants").scroll_into_view_if_needed()
    console.screenshot(f"{page_name}-{width}-{scheme}")
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, f"the page is {overflow} pixels too wide"
    found = Axe().run(page, options=RULES).response["violations"]
    assert not found, [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found]


@pytest.mark.parametrize("width", [1280, 360])
def test_targets_are_large_enough_for_fingers(width: int, opening: Opening, places: dict[str, str]) -> None:
    for place, text in PAGES.values():
        console = opening(place.format(**places), whose="household", viewport={"width": width, "height": 800})
        expect(console.page.get_by_text(text).first).to_be_visible()
        small = console.page.evaluate(SMALL_TARGETS)
        assert not small, f"{place}: {small}"


@pytest.mark.parametrize("page_name", PAGES)
def test_a_finger_hits_every_control_on_a_phone(
    page_name: str, opening: Opening, places: dict[str, str]
) -> None:
    place, text = PAGES[page_name]
    size = {"width": 360, "height": 740}
    whose = OWNERS.get(page_name, "household")
    console = opening(place.format(**places), whose=whose, viewport=size, has_touch=True, is_mobile=True)
    expect(console.page.get_by_text(text).first).to_be_visible()
    assert not console.page.evaluate(SMALL_FOR_FINGERS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("dialog", DIALOGS)
def test_a_dialog_is_accessible_and_fits_a_phone(
    dialog: str, scheme: str, opening: Opening, places: dict[str, str]
) -> None:
    place, open_dialog = DIALOGS[dialog]
    size = {"width": 360, "height": 740}
    console = opening(place.format(**places), whose="household", viewport=size, color_scheme=scheme)
    page = console.page
    if dialog == "person":
        press(page, "Details")
    if dialog == "shortcuts":
        press(page, "Menu")
    open_dialog(page)
    shown = page.get_by_role("dialog")
    expect(shown).to_be_visible()
    expect(shown.locator(".spinner")).to_have_count(0)
    console.screenshot(f"dialog-{dialog}-360-{scheme}")
    assert shown.evaluate("dialog => dialog.scrollWidth - dialog.clientWidth") <= 0
    found = Axe().run(page, options=RULES).response["violations"]
    assert not found, [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found]
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_reason_of_an_answer_is_accessible_and_fits(width: int, scheme: str, opening: Opening) -> None:
    size = {"width": width, "height": 800}
    console = opening(viewport=size, color_scheme=scheme)
    page = console.page
    press(page, "Start a conversation")
    for text in ("Remember that I like leeks.", "What do I like?"):
        page.get_by_role("textbox", name="Message").fill(text)
        page.keyboard.press("Enter")
        expect(
            page.locator(".message.assistant:not(.streaming)", has_text="I like leeks").last
        ).to_be_visible()
    page.locator(".message.assistant", has_text="From memory").get_by_role("link", name="Why?").click()
    expect(page.locator(".context-row.made")).to_contain_text("I like leeks")
    expect(page.locator(".token-bar .legend")).to_contain_text("Tools")
    console.screenshot(f"why-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert not Axe().run(page, options=RULES).response["violations"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_sign_in_page_is_accessible(width: int, scheme: str, opening: Opening, api: httpx.Client) -> None:
    console = opening(viewport={"width": width, "height": 800}, color_scheme=scheme)
    console.watcher.expect("401")
    page = console.page
    page.goto(f"{console.address}/console/#key=wrong")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    console.screenshot(f"sign-in-{width}-{scheme}")
    assert not Axe().run(page, options=RULES).response["violations"]
