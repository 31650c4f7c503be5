"""The insights page: numbers of a period, charts and their tables, groups, files."""

import csv
import io
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import Served, say, store_call_centre, turn


@pytest.fixture(scope="module")
def practice(server: Served) -> str:
    return store_call_centre(server)


def test_a_manager_reads_volumes_waits_and_outcomes(opening: Opening, server: Served, practice: str) -> None:
    with server.api(practice) as api:
        total = api.get("/v1/analytics").json()["total"]
    page = opening("/insights", whose=practice).page
    headline = page.locator(".headline")
    for name, text in (
        ("Opened", f"{total['counts']['opened']}"),
        ("Closed", f"{total['counts']['reopened']} reopened"),
        ("Closed without a person", f"{total['shares']['automation']:.0%}".replace("%", " %")),
        ("First response", "9 of 10 within"),
        ("Reply time", "9 of 10 within"),
    ):
        expect(headline.locator("div", has=page.get_by_text(name, exact=True))).to_contain_text(text)
    expect(page.locator(".plot canvas")).to_have_count(4)
    bars = page.get_by_role("list", name="First response", exact=True)
    counted = sum(int(each) for each in bars.locator("strong").all_inner_texts())
    assert counted == total["distributions"]["first_response"]["count"]
    page.get_by_label("Charts as tables").check()
    expect(page.locator(".plot")).to_have_count(0)
    rows = page.get_by_role("region", name="Conversations per day").locator("tbody tr")
    opened = sum(int(row.split()[-3]) for row in rows.all_inner_texts())
    assert opened == total["counts"]["opened"]
    percentiles = page.get_by_role("region", name="Percentiles").get_by_role("row", name="Reply time")
    expect(percentiles.get_by_role("cell")).to_have_count(6)


def test_groups_narrow_the_page_and_stay_in_the_address(opening: Opening, practice: str) -> None:
    page = opening("/insights", whose=practice).page
    channels = page.get_by_role("region", name="Numbers by channel")
    expect(channels.locator("tbody tr")).to_have_count(4)
    page.get_by_label("Compare by").select_option("agent")
    agents = page.get_by_role("region", name="Numbers by agent")
    opened = page.locator(".headline div", has=page.get_by_text("Opened", exact=True))
    everything = opened.inner_text()
    agents.get_by_role("button", name="billing").click()
    expect(page.get_by_text("Only agent billing")).to_be_visible()
    expect(opened).not_to_have_text(everything, use_inner_text=True)
    expect(agents.locator(".chosen-row")).to_contain_text("billing")
    expect(agents.locator("tbody tr")).to_have_count(3)
    page.reload()
    expect(page.get_by_text("Only agent billing")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(opened).to_have_text(everything, use_inner_text=True)
    page.get_by_label("Channel", exact=True).select_option("phone")
    expect(opened).not_to_have_text(everything, use_inner_text=True)


def test_numbers_are_saved_as_csv(opening: Opening, practice: str, tmp_path: Path) -> None:
    page = opening("/insights?by=agent&days=90", whose=practice).page
    for name, first in (("CSV by day", "day"), ("CSV by agent", "agent")):
        with page.expect_download() as downloading:
            page.get_by_role("button", name=name).click()
        file = tmp_path / downloading.value.suggested_filename
        downloading.value.save_as(file)
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
        assert next(iter(rows[0])) == first
        assert sum(int(row["opened"]) for row in rows) >= 50


def test_topics_are_named_counted_and_removed(opening: Opening, practice: str) -> None:
    page = opening("/insights", whose=practice).page
    topics = page.get_by_role("region", name="Topics")
    expect(topics).to_contain_text("Name a topic with a few example sentences.")
    topics.get_by_role("button", name="Name a topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("Invoices")
    dialog.get_by_label("Example sentences").fill("My invoice shows the cleaning twice.")
    dialog.get_by_role("button", name="Save").click()
    expect(topics.locator(".bars li", has_text="Invoices").locator("strong")).not_to_have_text("0 %")
    topics.get_by_role("button", name="Invoices").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(topics.locator(".bars li")).to_have_count(0)


def test_a_client_is_shown_by_name_and_an_empty_period_says_so(opening: Opening, api: httpx.Client) -> None:
    page = opening("/insights").page
    expect(page.get_by_text("Nothing happened in this period")).to_be_visible()
    client = api.post("/v1/clients", json={"name": "Ann Baker"}).json()
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    body = {"client_id": client["id"], "client_name": "Ann Baker"}
    assert api.put(f"/v1/conversations/{one}/client", json=body).is_success
    page.reload()
    page.get_by_label("Compare by").select_option("client")
    page.get_by_role("button", name="Ann Baker").click()
    expect(page.get_by_text("Only client Ann Baker")).to_be_visible()
