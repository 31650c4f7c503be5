"""How much the browser loads for the first page."""

from typing import Any

import httpx
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.household import furnish

MOST_BYTES = 100_000


def test_the_first_page_is_below_100_kilobytes(opening: Opening, api: httpx.Client) -> None:
    """Everything counts: the page, modules, styles, headers and the data of the list."""
    furnish(api)
    page = opening().page
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send("Network.setCacheDisabled", {"cacheDisabled": True})
    loaded: dict[str, int] = {}
    addresses: dict[str, str] = {}

    def began(event: dict[str, Any]) -> None:
        addresses[event["requestId"]] = event["request"]["url"]

    def ended(event: dict[str, Any]) -> None:
        # A request of the page before the reload may end now.
        if event["requestId"] in addresses:
            loaded[addresses[event["requestId"]]] = event["encodedDataLength"]

    network.on("Network.requestWillBeSent", began)
    network.on("Network.loadingFinished", ended)
    page.reload()
    expect(page.get_by_text("Dinner with Ann").first).to_be_visible()
    names = {address.partition("?")[0].rpartition("/")[2] for address in loaded}
    assert {"", "app.js", "preact.js", "conversations.js", "base.css", "conversations", "access"} <= names
    assert "uplot.js" not in names, "charts are loaded on the pages that have them"
    total = sum(loaded.values())
    assert total < MOST_BYTES, sorted(loaded.items(), key=lambda one: -one[1])[:8]
