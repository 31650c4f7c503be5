"""The list of conversations: what is there, live, filtered, edited without overwriting."""

import httpx
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import say, turn


def change(api: httpx.Client, conversation: str, **fields: object) -> None:
    assert api.patch(f"/v1/conversations/{conversation}", json=fields).is_success


def test_an_empty_server_teaches_the_first_step(opening: Opening) -> None:
    page = opening().page
    expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
    page.get_by_role("button", name="Start a conversation").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()


def test_stored_conversations_are_listed_with_their_last_words(opening: Opening, api: httpx.Client) -> None:
    kitchen = turn(api, "kitchen", say("user", "Where are the leeks?"), say("assistant", "In the garden."))
    change(
        api, kitchen, subject="Leeks", status="pending", priority="urgent", tags=["garden"], assigned_to="Ann"
    )
    page = opening().page
    row = page.get_by_role("listitem").filter(has_text="Leeks")
    for text in ("Assistant: In the garden.", "pending", "urgent priority", "garden", "for Ann"):
        expect(row.get_by_text(text, exact=True)).to_be_visible()
    expect(row.get_by_label("unread")).to_be_visible()


def test_the_list_follows_what_others_store(opening: Opening, api: httpx.Client) -> None:
    page = opening().page
    expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
    office = turn(api, "office", say("user", "Buy paper"), say("assistant", "Noted."))
    expect(page.get_by_text("Assistant: Noted.")).to_be_visible()
    change(api, office, subject="Paper")
    expect(page.get_by_text("Paper", exact=True)).to_be_visible()
    api.delete(f"/v1/conversations/{office}")
    expect(page.get_by_text("Nothing is stored yet")).to_be_visible()


def test_every_filter_narrows_the_list(opening: Opening, api: httpx.Client) -> None:
    client = api.post("/v1/clients", json={"name": "Ann Baker"}).json()
    one = turn(api, "one", say("user", "the roof leaks"), say("assistant", "Call a roofer."))
    two = turn(api, "two", say("user", "dinner ideas"), say("assistant", "Soup."), channel="voice")
    change(api, one, subject="Roof", status="pending", priority="high", tags=["house"], assigned_to="Bob")
    change(api, two, subject="Dinner")
    api.put(f"/v1/conversations/{one}/client", json={"client_id": client["id"], "client_name": "Ann Baker"})
    page = opening().page
    roof, dinner = (page.locator(".conversation-title", has_text=name) for name in ("Roof", "Dinner"))
    expect(dinner).to_be_visible()
    page.get_by_role("button", name="Filters").click()
    filters = page.get_by_label("Filters", exact=True)
    for label, value in (
        ("Status", "pending"),
        ("Priority", "high"),
        ("Channel", "text"),
        ("Client", client["id"]),
        ("Tags", "house"),
        ("Assigned to", "Bob"),
        ("Find a conversation", "roof"),
    ):
        field = filters.get_by_label(label, exact=True)
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
        expect(roof).to_be_visible()
        expect(dinner).to_have_count(0)
        page.get_by_role("button", name="Remove all").click()
        expect(dinner).to_be_visible()
    filters.get_by_label("Active from").fill("2099-01-01")
    expect(page.get_by_text("No conversation matches these filters")).to_be_visible()
    page.get_by_role("button", name="Remove all filters").click()
    expect(dinner).to_be_visible()


def test_a_record_is_edited_in_place_and_changed_back(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    page = opening().page
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Subject", exact=True).fill("Greeting")
    page.get_by_label("Status").last.select_option("resolved")
    page.get_by_label("Priority").last.select_option("urgent")
    page.get_by_label("Assigned to").last.fill("Ann")
    page.get_by_label("Tags", exact=True).fill("small talk, short")
    page.get_by_label("Notes").fill("nothing to do")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".conversation-title", has_text="Greeting")).to_be_visible()
    record = api.get(f"/v1/conversations/{one}").json()
    assert (record["status"], record["tags"], record["notes"]) == (
        "resolved",
        ["small talk", "short"],
        "nothing to do",
    )
    assert (record["priority"], record["assigned_to"]) == ("urgent", "Ann")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Changed back.")).to_be_visible()
    record = api.get(f"/v1/conversations/{one}").json()
    assert (record["subject"], record["status"], record["tags"], record["notes"]) == (None, "open", [], None)
    assert (record["priority"], record["assigned_to"]) == ("normal", None)


def test_a_conflict_is_shown_and_nothing_is_overwritten(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    console = opening()
    console.watcher.expect("412")
    page = console.page
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Subject", exact=True).fill("Mine")
    change(api, one, subject="Theirs")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Someone changed this meanwhile.")).to_be_visible()
    assert api.get(f"/v1/conversations/{one}").json()["subject"] == "Theirs"
    page.get_by_role("button", name="Save mine").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert api.get(f"/v1/conversations/{one}").json()["subject"] == "Mine"


def test_new_messages_are_no_conflict(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    console = opening()
    console.watcher.expect("412")
    page = console.page
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Subject", exact=True).fill("Mine")
    turn(api, "one", say("user", "still there?"), say("assistant", "Yes."))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert api.get(f"/v1/conversations/{one}").json()["subject"] == "Mine"


def test_a_conversation_without_a_subject_shows_its_first_words(opening: Opening, api: httpx.Client) -> None:
    long = "Could you tell me whether the scaffold on the north side can stay until the end of March?"
    one = turn(api, "one", say("user", long), say("assistant", "It can."))
    turn(api, "two", say("assistant", "Welcome!"), say("user", "hello"), say("assistant", "Hi."))
    title = "Could you tell me whether the scaffold on the north side…"
    console = opening()
    page = console.page
    titles = page.locator(".conversation-title")
    expect(titles).to_have_text(["hello", title])
    page.get_by_text(title).click()
    expect(page.get_by_role("heading", name=title)).to_be_visible()
    assert api.get(f"/v1/conversations/{one}").json()["subject"] is None
    message = api.get(f"/v1/conversations/{one}/messages").json()["entries"][0]["message"]["message_id"]
    assert api.post(f"/v1/conversations/{one}/redactions", json={"message_id": message}).is_success
    expect(page.get_by_role("heading", name="Conversation of")).to_be_visible()
    console.go("/")
    expect(titles).to_contain_text(["hello", "Conversation of"])
    expect(page.get_by_text("scaffold")).to_have_count(0)


def test_the_title_of_a_long_conversation_is_its_beginning(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(40))
    one = turn(api, "long", *(message for pair in pairs for message in pair))
    page = opening(f"/thread/{one}").page
    expect(page.get_by_role("heading", name="question 0")).to_be_visible()
    expect(page.get_by_text("question 39", exact=True)).to_be_visible()


def test_more_conversations_are_shown_on_request(opening: Opening, api: httpx.Client) -> None:
    for number in range(45):
        turn(api, f"s{number}", say("user", f"hello {number}"), say("assistant", "Hi."))
    page = opening().page
    titles = page.locator(".conversation-title")
    expect(titles).to_have_count(40)
    expect(page.get_by_text("40+ conversations")).to_be_visible()
    page.get_by_role("button", name="Show more").click()
    expect(titles).to_have_count(45)
    expect(titles.last).to_have_text("hello 0")
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)


def test_the_last_words_name_their_speaker_in_one_line(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "Where is it?"), say("assistant", "**Here:**\n\n- a tile\n- a nail"))
    page = opening().page
    preview = page.locator(".conversation-preview")
    expect(preview).to_have_text("Assistant: Here: a tile · a nail")
    path = f"/v1/conversations/{one}"
    assert api.put(f"{path}/participants/sam", json={"name": "Sam Okafor"}).is_success
    wrote = say("user", "Thank you.", author="sam")
    assert api.post(f"{path}/turns", json={"messages": [wrote]}).is_success
    expect(preview).to_have_text("Sam Okafor: Thank you.")
    page.reload()
    expect(preview).to_have_text("Sam Okafor: Thank you.")


def test_a_conversation_without_messages_is_new(opening: Opening) -> None:
    page = opening().page
    page.get_by_role("button", name="Start a conversation").click()
    expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
