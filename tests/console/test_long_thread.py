"""Five thousand messages, and the first page."""

import sys
from statistics import median
from typing import Any

import httpx
from playwright.sync_api import expect

from tests.console.browsing import Console
from tests.console.conftest import Opening
from tests.console.serving import Served, say, turn

_SCROLL = """async () => {
  const log = document.querySelector(".log");
  for (let round = 0; round < 60; round += 1) {
    log.scrollTop = (log.scrollHeight * (60 - round)) / 60;
    await new Promise(requestAnimationFrame);
  }
}"""


def processor_time(page: Any, script: str) -> float:
    """Run a script; return the seconds that the page's main thread worked, whatever else the machine does."""
    protocol = page.context.new_cdp_session(page)
    protocol.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked() -> float:
        metrics = protocol.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    before = worked()
    page.evaluate(script)
    return worked() - before


def test_five_thousand_messages_stay_smooth(opening: Opening, api: httpx.Client) -> None:
    for start in range(0, 2500, 250):
        pairs = (
            (say("user", f"question {n}"), say("assistant", f"answer {n} " + "word " * 30))
            for n in range(start, start + 250)
        )
        one = turn(api, "long", *(message for pair in pairs for message in pair))
    page = opening(f"/thread/{one}").page
    expect(page.get_by_text("question 2499", exact=True)).to_be_visible()
    for loaded in range(150, 1200, 100):
        page.locator(".log").evaluate("log => { log.scrollTop = 0 }")
        page.get_by_role("button", name="Show earlier messages").click()
        expect(page.locator(".messages > .message")).to_have_count(loaded)
    used = processor_time(page, _SCROLL) / 60
    assert 0 < used < 0.100, f"{used * 1000:.0f} ms of processor time per frame"
    page.get_by_role("textbox", name="Message").fill("what was question 12?")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user", has_text="what was question 12?")).to_be_visible()


def test_a_found_message_far_up_is_shown_in_its_thread(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(400))
    messages = [message for pair in pairs for message in pair]
    messages[10] = say("user", "the aardvark sleeps in the cellar")
    turn(api, "long", *messages)
    page = opening("/search?query=aardvark").page
    expect(page.locator("mark", has_text="aardvark")).to_be_visible()
    page.get_by_role("link", name="Open in its thread").first.click()
    expect(page.locator(".message.target")).to_contain_text("aardvark")
    expect(page.locator(".message.target")).to_be_in_viewport()


def test_the_first_page_is_small_and_needs_nothing_else(server: Served, opening: Opening) -> None:
    sizes: dict[str, int] = {}
    console: Console = opening()
    console.page.on(
        "response",
        lambda response: sizes.update({response.url: int(response.headers.get("content-length", 0))}),
    )
    console.page.reload()
    expect(console.page.get_by_text("Nothing is stored yet")).to_be_visible()
    assert 0 < sum(sizes.values()) < 100_000, sizes
    assert all(url.startswith(server.address) for url in sizes)
    shift = console.page.evaluate(
        """() => new Promise((resolve) => new PerformanceObserver((list) =>
             resolve(list.getEntries().reduce((sum, entry) => sum + entry.value, 0)))
             .observe({ type: "layout-shift", buffered: true }) ?? setTimeout(() => resolve(0), 500))"""
    )
    assert shift < 0.1
    report_times(console.page)


def report_times(page: Any) -> None:
    """Print the median time of a load until the page shows its content. Load decides it, so nothing fails."""
    times = []
    for _ in range(5):
        page.reload()
        expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
        times.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    sys.stdout.write(f"first page: {median(times):.0f} ms, median of {len(times)} loads\n")
