"""Context, search, clients, memory, privacy, health: every action of each page."""

import json
import re
from pathlib import Path

import httpx
from playwright.sync_api import expect

from tests.console.browsing import until
from tests.console.conftest import Opening, Starting
from tests.console.household import furnish
from tests.console.serving import say, turn


def number_of(page: object, name: str) -> int:
    text = page.locator(".numbers div", has_text=name).locator("dd").inner_text()  # type: ignore[attr-defined]
    return int(text.split()[0].replace(",", ""))


# Context


def test_limits_change_the_context_and_say_what_is_left_out(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(10))
    one = turn(api, "one", *(message for pair in pairs for message in pair))
    page = opening(f"/context/{one}").page
    expect(page.locator(".context-row")).to_have_count(20)
    assert (number_of(page, "Sent"), number_of(page, "Left out")) == (20, 0)
    page.get_by_role("slider", name="Messages").fill("4")
    expect(page.locator(".context-row.omitted").first).to_contain_text("over the limit of messages")
    sent, left = number_of(page, "Sent"), number_of(page, "Left out")
    assert sent <= 4
    assert sent + left == 20
    rows = page.locator(".context-row .context-text").all_inner_texts()
    assert rows == sorted(rows, key=lambda text: (int(text.split()[1]), text.startswith("answer")))
    page.get_by_text("The raw request").click()
    expect(page.locator(".raw pre")).to_contain_text('"role": "user"')
    page.get_by_label("Dialect").select_option("openai_chat")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert [each["role"] for each in copied["messages"]][-1] == "assistant"


def test_each_slider_limits_the_request(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n} " * 40), say("assistant", f"answer {n} " * 40)) for n in range(10))
    one = turn(api, "one", *(message for pair in pairs for message in pair))
    page = opening(f"/context/{one}").page
    expect(page.locator(".context-row")).to_have_count(20)
    why = page.locator(".context-row.omitted").first
    for name, value, reason in (
        ("Turns", "3", "over the limit of turns"),
        ("Tokens", "500", "over the limit of tokens"),
    ):
        slider = page.get_by_role("slider", name=name)
        slider.fill(value)
        expect(why).to_contain_text(reason)
        expect(slider).to_have_attribute("aria-valuetext", value)
        assert number_of(page, "Sent") <= 6
        slider.press("End")
        expect(slider).to_have_attribute("aria-valuetext", "no limit")
        expect(page.locator(".context-row.omitted")).to_have_count(0)


def test_the_token_bar_shows_each_kind_and_what_is_free(opening: Opening, api: httpx.Client) -> None:
    assert api.post("/v1/notes", json={"text": "I like leeks"}).is_success
    one = turn(api, "one", say("system", "Be brief."), say("user", "hello"), say("assistant", "Hi."))
    page = opening(f"/context/{one}").page
    page.get_by_role("slider", name="Tokens").fill("2000")
    bar = page.locator(".token-bar")
    expect(bar).to_contain_text("of 2,000")
    legend = [each.rpartition(" ") for each in bar.locator(".legend li").all_inner_texts()]
    tokens = {name: int(value.replace(",", "")) for name, _, value in legend}
    assert list(tokens) == ["System messages", "Notes", "History", "Free"]
    assert sum(tokens.values()) == 2000
    assert number_of(page, "Tokens") == 2000 - tokens["Free"]
    widths = bar.locator(".bar span").evaluate_all("all => all.map(each => Number(each.style.flexGrow))")
    assert widths == list(tokens.values())


def test_the_stable_start_is_marked_and_counted(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(3))
    one = turn(api, "one", *(message for pair in pairs for message in pair))
    page = opening(f"/context/{one}").page
    expect(page.locator(".context-row")).to_have_count(6)
    report = api.post(f"/v1/conversations/{one}/context", json={"for_request": True}).json()["report"]
    assert report["stable_prefix"] > 0
    assert number_of(page, "Stable start") == report["stable_prefix"]
    stable = page.locator(".context-row", has_text="stable")
    expect(stable).to_have_count(report["stable_prefix"])
    page.get_by_role("slider", name="Messages").fill("2")
    expect(page.locator(".context-row.omitted").first).to_be_visible()
    expect(page.locator(".context-row.omitted.stable")).to_have_count(0)


def test_two_policies_stand_side_by_side(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(10))
    one = turn(api, "one", *(message for pair in pairs for message in pair))
    page = opening(f"/context/{one}").page
    page.get_by_role("button", name="Compare two").click()
    first, second = (page.get_by_role("region", name=f"Policy {name}") for name in "AB")
    expect(first.locator(".context-row.omitted")).to_have_count(0)
    expect(second.locator(".context-row.omitted").first).to_be_visible()


def test_an_answer_shows_the_request_that_was_sent(opening: Opening, api: httpx.Client) -> None:
    page = opening().page
    page.get_by_role("button", name="Start a conversation").click()
    for text in ("Remember that I like leeks.", "What do I like?"):
        page.get_by_role("textbox", name="Message").fill(text)
        page.keyboard.press("Enter")
        expect(page.locator(".streaming")).to_have_count(0)
        expect(page.locator(".message.assistant", has_text="I like leeks").last).to_be_visible()
    api.post("/v1/notes", json={"text": "I moved to Oslo"})
    answer = page.locator(".message.assistant", has_text="From memory")
    answer.get_by_role("link", name="Why?").click()
    expect(page.get_by_role("heading", name="Why this answer?")).to_be_visible()
    expect(page.get_by_text("Sent to recall")).to_be_visible()
    made = page.locator(".context-row.made .context-text")
    expect(made).to_have_text(re.compile(r"^Notes about this user .*\n- I like leeks \(\d{4}-\d\d-\d\d\)$"))
    expect(page.locator(".context-row", has_text="I moved to Oslo")).to_have_count(0)
    expect(page.locator(".context-row", has_text="From memory")).to_have_count(0)


def test_the_request_of_an_answer_far_back_has_its_words(opening: Opening, api: httpx.Client) -> None:
    page = opening().page
    page.get_by_role("button", name="Start a conversation").click()
    page.get_by_role("textbox", name="Message").fill("What did I say about leeks?")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant:not(.streaming)")).to_contain_text("leeks")
    one = page.evaluate("location.hash").rpartition("/")[2]
    answer = api.get(f"/v1/conversations/{one}/messages").json()["entries"][-1]["message"]["message_id"]
    for start in range(0, 1050, 350):
        said = [say("assistant", f"later {start + n}") for n in range(350)]
        assert api.post(f"/v1/conversations/{one}/turns", json={"messages": said}).is_success
    console = opening(f"/context/{one}?answer={answer}")
    expect(console.page.get_by_text("Sent to recall")).to_be_visible()
    question = console.page.locator(".context-row", has_text="What did I say about leeks?")
    expect(question).to_have_count(1)
    expect(console.page.get_by_text("no longer in the log")).to_have_count(0)


def test_an_answer_without_its_request_says_so_within_a_phone(opening: Opening, api: httpx.Client) -> None:
    one = furnish(api)["Dinner with Ann"]
    console = opening(f"/context/{one}?answer=unknown", viewport={"width": 360, "height": 740})
    console.watcher.expect("404")
    expect(console.page.get_by_role("heading", name="was not kept")).to_be_visible()
    width = console.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360, f"the page is {width} pixels wide"
    console.screenshot("not-kept-360-light")


# Search


def test_search_finds_words_and_says_why(opening: Opening, api: httpx.Client) -> None:
    furnish(api)
    page = opening("/search").page
    expect(page.get_by_text("Everything that was said can be found")).to_be_visible()
    page.get_by_role("searchbox").fill("lemon chicken")
    first = page.locator(".passage").first
    expect(first.locator("mark").first).to_be_visible()
    expect(first).to_contain_text("Why: it contains")
    expect(page.locator(".neighbour").first).to_be_visible()
    first.get_by_text("Why:").click()
    expect(first.get_by_text("Score", exact=True)).to_be_visible()
    shown = first.locator(".facts dd").all_text_contents()
    names = first.locator(".facts dt").all_text_contents()
    end = names.index("Score")
    assert abs(sum(map(float, shown[:end])) - float(shown[end])) < 0.01, "the page does not show all parts"
    page.get_by_label("Said by").select_option("user")
    expect(page.locator(".passage header strong").first).to_have_text("You")
    page.get_by_label("From").fill("2099-01-01")
    expect(page.get_by_text("Nothing was found")).to_be_visible()
    page.get_by_label("From").fill("")
    page.get_by_role("searchbox").fill("zyzzyva qwertz")
    page.get_by_label("Said by").select_option("")
    expect(page).to_have_url(re.compile("zyzzyva.*qwertz"))
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("zyzzyva qwertz")


# Clients


def test_clients_are_added_edited_imported_and_removed(
    opening: Opening, api: httpx.Client, tmp_path: Path
) -> None:
    page = opening("/clients").page
    page.get_by_role("button", name="Add a client").click()
    page.get_by_label("Name", exact=True).fill("Ann Baker")
    page.get_by_label("Nicknames").fill("Annie, Anna")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Ann Baker")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Email").fill("ann@example.org")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".facts").get_by_text("ann@example.org")).to_be_visible()
    file = tmp_path / "clients.csv"
    file.write_text(f"name,company\nJonas Berg,Berg Ltd\n{'x' * 600},Long Ltd\n")
    page.get_by_role("link", name="Back").click()
    page.set_input_files("input[type=file]", file)
    expect(page.get_by_role("dialog")).to_contain_text("1 client added")
    expect(page.get_by_role("dialog")).to_contain_text("Line")
    page.get_by_role("button", name="Done").click()
    page.get_by_label("Find a client").fill("jonnas")
    expect(page.get_by_text("Jonas Berg")).to_be_visible()
    expect(page.get_by_text("Ann Baker")).to_have_count(0)
    page.get_by_text("Jonas Berg").click()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Removed. Its conversations stay.")).to_be_visible()
    assert [each["name"] for each in api.get("/v1/clients").json()["contacts"]] == ["Ann Baker"]


def test_ambiguous_mentions_are_resolved_and_links_removed(opening: Opening, api: httpx.Client) -> None:
    for name in ("Ann Baker", "Ann Miller"):
        api.post("/v1/clients", json={"name": name})
    one = turn(api, "one", say("user", "Ann wants the roof done"), say("assistant", "Which Ann?"))
    page = opening("/clients").page
    expect(page.get_by_text("1 mention to resolve")).to_be_visible()
    page.get_by_role("button", name="Ann Miller").click()
    expect(page.get_by_text("Linked to Ann Miller.")).to_be_visible()
    expect(page.get_by_text("to resolve")).to_have_count(0)
    assert api.get(f"/v1/conversations/{one}").json()["client_name"] == "Ann Miller"
    page.locator(".client-card", has_text="Ann Miller").click()
    page.locator(".lines a").first.click()
    page.get_by_role("button", name="Unlink").click()
    expect(page.get_by_text("Unlinked.")).to_be_visible()
    page.get_by_role("button", name="Link", exact=True).click()
    page.get_by_label("Find a client").fill("Baker")
    page.locator(".picker-list").get_by_role("button", name="Ann Baker").click()
    expect(page.get_by_text("Linked to Ann Baker.")).to_be_visible()


# Memory


def test_notes_are_added_changed_and_forgotten(opening: Opening, api: httpx.Client) -> None:
    page = opening("/memory").page
    page.get_by_role("button", name="Add a note").click()
    page.get_by_label("Note", exact=True).fill("My favourite colour is green")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("My favourite colour is green")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Note", exact=True).fill("My favourite colour is blue")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("My favourite colour is blue")).to_be_visible()
    expect(page.get_by_text("green")).to_have_count(0)
    page.get_by_label("Show replaced notes").check()
    expect(page.locator(".replaced")).to_contain_text("green")
    page.get_by_label("Show replaced notes").uncheck()
    expect(page.locator(".replaced")).to_have_count(0)
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("Forgotten. No message repeats it.")).to_be_visible()
    expect(page.get_by_text("Nothing is noted yet")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("My favourite colour is blue")).to_be_visible()


def test_a_note_is_forgotten_with_what_repeats_it(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "the locker code is 4711"), say("assistant", "Fine."))
    turn(api, "two", say("user", "hello"), say("assistant", "Hi."))
    assert api.post("/v1/notes", json={"text": "The locker code is 4711"}).is_success
    page = opening("/memory").page
    page.get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("checkbox", name="the locker code is 4711")).to_be_checked()
    dialog.get_by_role("button", name="Forget this and 1 repetition").click()
    expect(page.get_by_role("dialog", name="Forgotten")).to_contain_text("1 note and the words of 1 message")
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("Nothing is noted yet")).to_be_visible()
    assert api.get("/v1/notes").json()["notes"] == []
    assert "4711" not in api.get(f"/v1/conversations/{one}/messages").text


def test_a_summary_shows_its_range(opening: Opening, starting: Starting) -> None:
    text = "The boiler in the cellar was repaired by Jonas. "
    pairs = ((say("user", f"{n} {text * 3}"), say("assistant", f"Noted {n}.")) for n in range(20))
    served = starting(CONVERSATION_SUMMARIES="extract")
    with served.api("erin") as api:
        one = turn(api, "one", *(message for pair in pairs for message in pair))
        made = api.post(f"/v1/conversations/{one}/summary", json={"policy": {"max_messages": 6}}).json()
    page = opening("/memory", address=served.address, whose="erin").page
    expect(page.get_by_text(f"Covers the first {made['summary']['messages']} of 40 messages")).to_be_visible()
    page.get_by_text("Read the summary").click()
    expect(page.locator(".fold-body")).to_contain_text("boiler")


# Privacy


def test_rules_are_tried_saved_and_undone(opening: Opening, api: httpx.Client) -> None:
    turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    page = opening("/privacy").page
    page.get_by_label("Conversations stay").select_option("86400")
    page.get_by_role("button", name="Save rules").click()
    expect(page.get_by_text("1 conversation got another lifetime.")).to_be_visible()
    page.get_by_label("Look ahead").select_option("604800")
    expect(page.get_by_text("2 messages, last used")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_label("Conversations stay")).to_have_value("")
    assert "owner" not in api.get("/v1/retention").json()


def test_data_is_exported_archived_restored_and_erased(opening: Opening, starting: Starting) -> None:
    served = starting(AFORESAID_ARCHIVE_FOLDER="archives", AFORESAID_AUDIT_FILE="audit.jsonl")
    with served.api("erin") as api:
        made = furnish(api)
        console = opening(f"/thread/{made['Roof repair']}", address=served.address, whose="erin")
        page = console.page
        # The details may be read once more while the conversation leaves.
        console.watcher.expect("404")
        place = f"/v1/conversations/{made['Roof repair']}"
        # The page marks it as read, which changes it; an archive of what changes meanwhile is refused.
        until(page, lambda: api.get(place).json()["unread_count"] == 0)
        page.get_by_role("button", name="Archive").click()
        expect(page.get_by_text("Archived. Restore it on the Privacy page.")).to_be_visible()
        console.go("/privacy")
        page.get_by_role("button", name="Restore").click()
        expect(page.get_by_text("Restored.")).to_be_visible()
        with page.expect_download() as downloading:
            page.get_by_role("button", name="Export everything").click()
        assert downloading.value.suggested_filename == "aforesaid-export.zip"
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_text("Sound:")).to_be_visible()
        page.get_by_role("button", name="Earlier events").click()
        expect(page.get_by_role("cell", name="export").first).to_be_visible()
        expect(page.get_by_role("region", name="Events").get_by_role("row").nth(40)).to_be_attached()
        console.screenshot("audit-1280-light", full_page=True)
        page.get_by_role("button", name="Erase everything").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Erase for good")).to_be_disabled()
        dialog.get_by_label("Type “erin” to confirm").fill("erin")
        dialog.get_by_role("button", name="Erase for good").click()
        expect(page.get_by_text("Receipt of the erasure")).to_be_visible()
        expect(page.get_by_role("row", name="Conversations 6")).to_be_visible()
        console.screenshot("receipt-1280-light")
        past = page.get_by_role("list", name="Past erasures").get_by_role("listitem")
        expect(past).to_contain_text("Everything")
        assert api.get("/v1/stats").json()["conversations"] == 0


def test_one_conversation_is_erased_with_a_receipt(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    console = opening(f"/thread/{one}")
    # The details may be read once more while the conversation goes.
    console.watcher.expect("404")
    page = console.page
    page.get_by_role("button", name="Erase", exact=True).click()
    page.get_by_role("dialog").get_by_label("Type “erase” to confirm").fill("erase")
    page.get_by_role("dialog").get_by_role("button", name="Erase for good").click()
    expect(page.get_by_text("Erased. The receipt is on the Privacy page.")).to_be_visible()
    console.go("/privacy")
    expect(page.get_by_role("row", name="Messages 2")).to_be_visible()
    assert api.get(f"/v1/conversations/{one}").status_code == 404


# Health

_COLOURS = """() => [...document.querySelectorAll(".plot canvas")].map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join());
  return [...seen].sort();
})"""
"""The opaque colours of each chart."""


def test_health_shows_state_charts_and_tables(opening: Opening, api: httpx.Client) -> None:
    turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    page = opening("/health").page
    expect(page.get_by_text("Everything works")).to_be_visible()
    expect(page.get_by_text("No alert would fire.")).to_be_visible()
    expect(page.locator("figure.chart")).to_have_count(6)
    expect(page.locator(".plot canvas")).to_have_count(6)
    colours = page.evaluate(_COLOURS)
    page.get_by_role("button", name=re.compile("dark", re.IGNORECASE)).click()
    expect(page.locator(".plot canvas")).to_have_count(6)
    other = f"(before) => JSON.stringify(({_COLOURS})()) !== JSON.stringify(before)"
    page.wait_for_function(other, arg=colours)
    page.get_by_label("As tables").check()
    expect(page.get_by_role("region", name="Latency of requests").get_by_role("columnheader")).to_have_count(
        4
    )
