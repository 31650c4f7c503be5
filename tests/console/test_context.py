"""The context inspector: the order of its rows, long logs, agents, the parts of the token bar."""

from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import expect

from tests.console.conftest import Opening, Starting
from tests.console.serving import say, turn


def test_rows_follow_the_log_where_a_turn_was_said_earlier_than_it_was_stored(
    opening: Opening, api: httpx.Client
) -> None:
    said_at = datetime.now(UTC) - timedelta(hours=2)
    turn(api, "one", say("user", "third"), say("assistant", "fourth"))
    earlier = [
        say(role, text, timestamp=(said_at + timedelta(minutes=number)).isoformat())
        for number, (role, text) in enumerate((("user", "first"), ("assistant", "second")))
    ]
    one = turn(api, "one", *earlier)
    words = ["first", "second", "third", "fourth"]
    entries = api.get(f"/v1/conversations/{one}/messages").json()["entries"]
    assert [each["message"]["content"] for each in entries] == words
    assert [each["sequence"] for each in entries] == [3, 4, 1, 2]
    page = opening(f"/context/{one}").page
    rows = page.locator(".context-row .context-text")
    expect(rows).to_have_text(words)
    page.get_by_role("slider", name="Messages").fill("2")
    expect(page.locator(".context-row.omitted")).to_have_count(2)
    expect(rows).to_have_text(words)
    expect(page.locator(".context-row.omitted .context-text")).to_have_text(["first", "second"])


def test_messages_beyond_the_newest_thousand_are_in_their_places(opening: Opening, api: httpx.Client) -> None:
    for start in range(0, 1100, 550):
        said = [say("assistant" if n % 2 else "user", f"line {n}") for n in range(start, start + 550)]
        one = turn(api, "long", *said)
    page = opening(f"/context/{one}").page
    page.get_by_role("slider", name="Tokens").fill("16000")
    rows = page.locator(".context-row .context-text")
    expect(rows).to_have_count(1100)
    expect(rows.first).to_have_text("line 0")
    expect(page.locator(".context-row").first).to_contain_text("#1")
    expect(rows.last).to_have_text("line 1099")
    expect(page.get_by_text("Not on this page of the log")).to_have_count(0)


def test_the_context_of_one_agent_leaves_the_others_out(opening: Opening, api: httpx.Client) -> None:
    one = turn(
        api,
        "one",
        say("user", "What shall we cook?"),
        say("assistant", "Leeks.", agent_name="cook"),
        say("user", "Will it rain?"),
        say("assistant", "Tomorrow.", agent_name="weather"),
    )
    page = opening(f"/context/{one}").page
    expect(page.locator(".context-row")).to_have_count(4)
    expect(page.locator(".context-row.omitted")).to_have_count(0)
    page.get_by_label("Agent").fill("cook")
    expect(page.locator(".context-row.omitted", has_text="Tomorrow.")).to_contain_text("for another agent")
    expect(page.locator(".context-row:not(.omitted)", has_text="Leeks.")).to_be_visible()


def test_a_summary_has_its_part_of_the_bar_and_its_row(opening: Opening, starting: Starting) -> None:
    text = "The boiler in the cellar was repaired by Jonas. "
    pairs = ((say("user", f"{n} {text * 3}"), say("assistant", f"Noted {n}.")) for n in range(20))
    served = starting(CONVERSATION_SUMMARIES="extract")
    with served.api("erin") as api:
        one = turn(api, "one", *(message for pair in pairs for message in pair))
        assert api.post(f"/v1/conversations/{one}/summary", json={"policy": {"max_messages": 6}}).is_success
    page = opening(f"/context/{one}", address=served.address, whose="erin").page
    page.get_by_role("slider", name="Messages").fill("6")
    summary = page.locator(".context-row.made", has_text="Summary")
    expect(summary).to_contain_text("boiler")
    expect(summary).to_contain_text("stable")
    expect(page.locator(".token-bar .legend")).to_contain_text("Summary")


def test_rows_show_calls_and_results_and_have_the_colours_of_the_token_bar(
    opening: Opening, api: httpx.Client
) -> None:
    function = {"name": "forecast", "arguments": '{"place": "Oslo"}'}
    call = {"id": "c1", "type": "function", "function": function}
    one = turn(
        api,
        "one",
        say("user", "Will it rain?"),
        say("assistant", "Let me look.", tool_calls=[call]),
        say("tool", "Sun until four", tool_call_id="c1"),
        say("assistant", "No."),
    )
    assert api.post("/v1/notes", json={"text": "I live in Oslo"}).is_success
    page = opening(f"/context/{one}").page
    rows = page.locator(".context-row")
    expect(rows.locator(".context-text").nth(2)).to_have_text(
        'Let me look.\nCalls forecast { "place": "Oslo" }'
    )
    expect(rows.locator(".context-text").nth(3)).to_have_text("Tool result Sun until four")
    stripe = "row => getComputedStyle(row).borderInlineStartColor"
    fill = "one => getComputedStyle(one).backgroundColor"
    for kind, row in (("notes", rows.first), ("history", rows.nth(1)), ("history", rows.nth(2))):
        assert row.evaluate(stripe) == page.locator(f".legend .kind-{kind}").evaluate(fill), kind
