"""Every page in both schemes and both widths: accessible, in one column on a phone, and kept as a picture."""

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

SMALL_TARGETS = """() => [...document.querySelectorAll("button, select, input, textarea")]
  .filter((each) => each.offsetParent && !each.closest(".message-actions, .small"))
  .filter((each) => !["checkbox", "range", "file"].includes(each.type))
  .filter((each) => each.getBoundingClientRect().height < 43.5)
  .map((each) => each.outerHTML.slice(0, 120))"""
"""Controls lower than 44 pixels. Actions inside a line of a message may be smaller (WCAG 2.5.8)."""


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


def test_the_sign_in_page_is_accessible(opening: Opening, api: httpx.Client) -> None:
    console = opening()
    console.watcher.expect("401")
    page = console.page
    page.goto(f"{console.address}/console/#key=wrong")
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    console.screenshot("sign-in-1280-light")
    assert not Axe().run(page, options=RULES).response["violations"]
