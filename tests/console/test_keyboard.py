"""Everything without a mouse."""

import httpx
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import say, turn


def focused(page: object) -> str:
    text: str = page.evaluate(  # type: ignore[attr-defined]
        "document.activeElement?.innerText || document.activeElement?.getAttribute('aria-label') || ''"
    )
    return text


def test_a_walk_with_the_keyboard_alone(opening: Opening, api: httpx.Client) -> None:
    for name in ("one", "two", "three"):
        made = turn(api, name, say("user", f"this is {name}"), say("assistant", "Fine."))
        api.patch(f"/v1/conversations/{made}", json={"subject": f"Number {name}"})
    page = opening().page
    expect(page.get_by_text("Number three")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("j")
    assert "Number three" in focused(page)
    page.keyboard.press("j")
    assert "Number two" in focused(page)
    page.keyboard.press("k")
    assert "Number three" in focused(page)
    page.keyboard.press("e")
    page.get_by_role("textbox", name="Subject").press("Control+a")
    page.keyboard.type("Renamed")
    page.keyboard.press("Enter")
    expect(page.locator(".conversation-title", has_text="Renamed")).to_be_visible()
    page.locator(".conversation-link").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Renamed")).to_be_focused()
    page.keyboard.press("r")
    page.keyboard.type("What is three?")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_have_count(2)
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("three")
    expect(page.get_by_role("list", name="Results")).to_contain_text("this is three")
    page.evaluate("document.activeElement.blur()")
    for key, title in (
        ("3", "Memory"),
        ("4", "Clients"),
        ("5", "Notifications"),
        ("6", "Insights"),
        ("7", "Privacy"),
        ("8", "Health"),
        ("1", "Conversations"),
    ):
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_focused()


def test_tab_reaches_every_control_in_order_and_focus_is_visible(opening: Opening) -> None:
    page = opening("/memory").page
    expect(page.get_by_text("Nothing is noted yet")).to_be_visible()
    page.locator(".skip").focus()
    reached = [focused(page)]
    while "Add a note" not in reached and len(reached) < 30:
        page.keyboard.press("Tab")
        reached.append(focused(page))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached
    assert reached[0] == "Skip to the content"
    assert reached[2:10] == [
        "Conversations",
        "Search",
        "Memory",
        "Clients",
        "Notifications",
        "Insights",
        "Privacy",
        "Health",
    ]
    assert reached[-1] == "Add a note"
