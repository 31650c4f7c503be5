"""A person who has never seen the console: what does it know, why did it answer, how does it forget?"""

import httpx
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import say, turn


def test_what_was_said_is_found_from_the_memory_page_and_redacted(
    opening: Opening, api: httpx.Client
) -> None:
    one = turn(api, "one", say("user", "the locker code is 4711"), say("assistant", "Fine."))
    turn(api, "two", say("user", "hello"), say("assistant", "Hi."))
    page = opening().page
    page.get_by_role("link", name="Memory").click()
    page.get_by_role("link", name="Search for it, then Redact").click()
    page.get_by_role("searchbox").fill("locker code")
    page.locator(".passage", has_text="4711").get_by_role("link", name="Redact").click()
    dialog = page.get_by_role("dialog", name="Redact this message?")
    expect(dialog).to_contain_text("the locker code is 4711")
    dialog.get_by_role("button", name="Redact", exact=True).click()
    page.get_by_role("dialog", name="Forgotten").get_by_role("button", name="Done").click()
    expect(page.locator(".message.user")).to_contain_text("[redacted]")
    assert "4711" not in api.get(f"/v1/conversations/{one}/messages").text
    page.reload()
    expect(page.locator(".message.user")).to_contain_text("[redacted]")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_note_leads_to_where_it_was_said(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "I cannot eat walnuts"), say("assistant", "Noted."))
    entries = api.get(f"/v1/conversations/{one}/messages").json()["entries"]
    source = {"conversation_id": one, "message_id": entries[0]["message"]["message_id"]}
    assert api.post("/v1/notes", json={"text": "I cannot eat walnuts", **source}).is_success
    page = opening("/memory").page
    page.get_by_role("link", name="Where it comes from").click()
    expect(page.locator(".message.user")).to_contain_text("I cannot eat walnuts")
    expect(page.locator(".message.user")).to_be_in_viewport()


def test_one_of_many_notes_is_found_by_words_and_tags(opening: Opening, api: httpx.Client) -> None:
    for number in range(12):
        body = {"text": f"The shelf {number} holds jars", "tags": ["cellar" if number % 2 else "attic"]}
        assert api.post("/v1/notes", json=body).is_success
    page = opening("/memory").page
    notes = page.locator(".note-item")
    expect(notes).to_have_count(12)
    page.get_by_label("Find a note").fill("shelf 7")
    expect(notes).to_have_count(1)
    page.get_by_label("Find a note").fill("ATTIC")
    expect(notes).to_have_count(6)
    page.get_by_label("Find a note").fill("zyzzyva")
    expect(page.get_by_text("No note contains “zyzzyva”.")).to_be_visible()


def test_a_long_note_is_shown_whole_while_it_is_edited(opening: Opening, api: httpx.Client) -> None:
    text = "The garage on Mill Road knows about the noise in the rear wheel when braking downhill"
    assert api.post("/v1/notes", json={"text": text}).is_success
    page = opening("/memory", viewport={"width": 360, "height": 740}).page
    page.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Note", exact=True)
    expect(field).to_have_value(text)
    hidden = field.evaluate("field => field.scrollWidth - field.clientWidth")
    assert hidden <= 0
