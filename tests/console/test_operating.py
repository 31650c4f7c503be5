"""What an operator sees when something is wrong: alerts that fire, an audit trail that was changed."""

from pathlib import Path

from playwright.sync_api import expect

from tests.console.browsing import until
from tests.console.conftest import Opening, Starting
from tests.console.serving import say, shared_store, turn


def test_an_alert_fires_when_callers_are_refused(opening: Opening, starting: Starting) -> None:
    served = starting()
    key = served.key("--owner", "*", "--scope", "admin", "--name", "root")
    page = opening("/health", address=served.address, whose="erin", key=key).page
    expect(page.get_by_text("Everything works")).to_be_visible()
    alert = page.get_by_role("alert").filter(has_text="Many requests are refused")
    expect(alert).to_have_count(0)
    with served.api("erin", Authorization="Bearer ak_wrong") as api:

        def is_refused_and_shown() -> bool:
            assert all(api.get("/v1/stats").is_client_error for _ in range(20))
            shown: bool = alert.is_visible()
            return shown

        until(page, is_refused_and_shown)
    expect(alert).to_contain_text("A key has expired, a client guesses keys, or it exceeds its rate.")


def test_the_page_says_that_the_store_is_away(opening: Opening, starting: Starting) -> None:
    with shared_store() as url:
        served = starting(store=url)
        with served.api("erin") as api:
            turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
        console = opening("/health", address=served.address, whose="erin")
        page = console.page
        expect(page.get_by_text("Everything works")).to_be_visible()
        console.watcher.expect("503")
    with served.api("erin") as api:
        assert api.get("/v1/stats").is_server_error
    state = page.get_by_role("region", name="State")
    expect(state).to_contain_text("Works with limits", timeout=60_000)
    expect(state).to_contain_text("the spool accepts turns")
    expect(page.get_by_text("access cannot be verified until it is back").first).to_be_visible()


def test_a_changed_audit_trail_is_noticed_and_events_are_filtered(
    opening: Opening, starting: Starting, tmp_path: Path
) -> None:
    served = starting(AFORESAID_AUDIT_FILE="audit.jsonl")
    with served.api("erin") as api:
        for name in ("one", "two"):
            made = turn(api, name, say("user", "hello"), say("assistant", "Hi."))
        assert api.delete(f"/v1/conversations/{made}").is_success
    page = opening("/privacy", address=served.address, whose="erin").page
    events = page.get_by_role("region", name="Events")
    page.get_by_label("Show", exact=True).select_option("delete")
    expect(events.get_by_role("cell", name="delete")).to_have_count(1)
    expect(events.get_by_role("cell", name="append")).to_have_count(0)
    page.get_by_label("Show", exact=True).select_option("purge")
    expect(page.get_by_text("No such event yet.")).to_be_visible()
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("Sound:")).to_be_visible()
    trail = tmp_path / "audit.jsonl"
    trail.write_text(trail.read_text().replace('"action":"delete"', '"action":"look"', 1))
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("The trail was changed or is damaged.")).to_be_visible()
