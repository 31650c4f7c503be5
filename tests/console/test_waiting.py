"""Waiting and times: no spinner for a short wait, local times, and what may take long says so."""

from datetime import UTC, datetime
from typing import Any

import httpx
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import say, turn


def test_a_wait_shows_a_spinner_after_200_milliseconds_only(opening: Opening, api: httpx.Client) -> None:
    """The page's clock stands still, so a busy machine cannot change the result."""
    page = opening("/memory").page
    expect(page.get_by_text("Nothing is noted yet")).to_be_visible()
    page.get_by_role("link", name="Conversations").click()
    expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/v1/notes*", hold)
    page.clock.install()
    page.clock.pause_at(datetime.now(UTC))
    page.get_by_role("link", name="Memory").click()
    while not held:
        # Rendering needs the clock, too.
        page.clock.run_for(20)
        page.wait_for_timeout(300)
    page.clock.run_for(120)
    expect(page.get_by_role("heading", name="Memory", exact=True)).to_be_visible()
    expect(page.locator(".spinner")).to_have_count(0)
    page.clock.run_for(200)
    expect(page.locator(".spinner").first).to_be_visible()
    for route in held:
        route.continue_()
    page.unroute("**/v1/notes*")
    page.clock.resume()
    expect(page.get_by_text("Nothing is noted yet")).to_be_visible()
    expect(page.locator(".spinner")).to_have_count(0)


def test_times_are_local_and_relative_ones_have_the_exact_time(opening: Opening, api: httpx.Client) -> None:
    said_at = "2026-01-05T12:00:00+00:00"
    one = turn(api, "one", say("user", "happy new year", timestamp=said_at), say("assistant", "You too."))
    console = opening(f"/thread/{one}", timezone_id="Asia/Tokyo", locale="en-GB")
    time = console.page.locator(".message.user time")
    expect(time).to_have_text("21:00")
    expect(time).to_have_attribute("title", "Monday, 5 January 2026 at 21:00:00")
    console.go("/")
    listed = console.page.locator(".conversation-meta time")
    expect(listed).to_have_text("just now")
    assert "2026" in str(listed.get_attribute("title"))
