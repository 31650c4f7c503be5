"""Participants: names beside messages, roles, presence, read markers, notifications, assignment."""

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opening, Starting
from tests.console.serving import say, shared_store, turn


@pytest.fixture
def meeting(api: httpx.Client) -> str:
    """A conversation with Ann, who manages it, and Bob."""
    one = turn(api, "one", say("user", "Shall we meet?"), say("assistant", "When?"))
    join(api, one, "ann", name="Ann Baker", role="manager")
    join(api, one, "bob", name="Bob Cook")
    assert api.patch(f"/v1/conversations/{one}", json={"subject": "Meeting"}).is_success
    wrote = say("user", "On Friday, @bob?", author="ann")
    assert api.post(f"/v1/conversations/{one}/turns", json={"messages": [wrote]}).is_success
    return one


def join(api: httpx.Client, conversation: str, participant: str, **fields: object) -> None:
    path = f"/v1/conversations/{conversation}/participants/{participant}"
    assert api.put(path, json=fields).is_success


def people_row(page: Any, name: str) -> Any:
    return page.get_by_role("region", name="Participants").get_by_role("listitem").filter(has_text=name)


def participants(api: httpx.Client, conversation: str) -> dict[str, dict[str, object]]:
    found = api.get(f"/v1/conversations/{conversation}/participants").json()["participants"]
    return {each["id"]: each for each in found}


def test_participants_are_added_changed_and_removed(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    console = opening(f"/thread/{one}")
    # Opening a thread marks it as read, which moves the revision: the console then saves once more.
    console.watcher.expect("412")
    page = console.page
    people = page.get_by_role("region", name="Participants")
    expect(people).to_contain_text("Only the owner and the assistant.")
    people.get_by_role("button", name="Add").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Id").fill("ann")
    dialog.get_by_label("Name").fill("Ann Baker")
    dialog.get_by_label("Role").select_option("manager")
    dialog.get_by_label("Sees").select_option("from_now")
    dialog.get_by_label("Notify of").select_option("mentions")
    dialog.get_by_role("button", name="Add").click()
    expect(people.get_by_role("listitem")).to_contain_text("Ann Baker")
    expect(people.get_by_role("listitem")).to_contain_text("manager")
    ann = participants(api, one)["ann"]
    assert (ann["role"], ann["kind"]) == ("manager", "person")
    assert ann["visible_from"] is not None
    people.get_by_role("button", name="Change Ann Baker").click()
    expect(dialog.get_by_label("Notify of")).to_have_value("mentions")
    dialog.get_by_label("Role").select_option("guest")
    dialog.get_by_label("May write").check()
    dialog.get_by_label("Notify of").select_option("none")
    dialog.get_by_role("button", name="Save").click()
    expect(people.get_by_role("listitem")).to_contain_text("guest, may write")
    rule = api.get(f"/v1/conversations/{one}/notification-rule", params={"participant_id": "ann"})
    assert rule.json()["rule"] == "none"
    people.get_by_role("button", name="Change Ann Baker").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(people.get_by_role("listitem")).to_contain_text("has left")
    page.get_by_role("button", name="Undo").click()
    expect(people.get_by_role("listitem")).to_contain_text("guest, may write")


def test_a_change_by_someone_else_is_not_overwritten(
    opening: Opening, api: httpx.Client, meeting: str
) -> None:
    console = opening(f"/thread/{meeting}")
    console.watcher.expect("412")
    page = console.page
    page.get_by_role("button", name="Change Bob Cook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Robert")
    join(api, meeting, "bob", role="guest")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Someone changed this participant meanwhile.")
    assert participants(api, meeting)["bob"]["name"] == "Bob Cook"


def test_two_people_see_each_other_type_write_and_read(
    opening: Opening, api: httpx.Client, meeting: str
) -> None:
    """Ann and Bob write in one thread; each sees the other's name, typing and read marker."""
    ann, bob = (opening(f"/thread/{meeting}").page for _ in range(2))
    for page, name in ((ann, "ann"), (bob, "bob")):
        expect(page.locator(".message", has_text="On Friday").locator(".speaker")).to_have_text("Ann Baker")
        page.get_by_label("Write as").select_option(name)
    row = people_row(ann, "Bob Cook")
    expect(row).to_contain_text("here")
    expect(row).to_contain_text("read everything")
    bob.get_by_role("textbox", name="Message").type("Fri", delay=20)
    expect(ann.get_by_text("Bob Cook is typing")).to_be_visible()
    bob.get_by_role("textbox", name="Message").fill("Friday is fine.")
    bob.keyboard.press("Enter")
    said = ann.locator(".message.user", has_text="Friday is fine")
    expect(said.locator(".speaker")).to_have_text("Bob Cook")
    last = ann.locator(".messages > .message").last
    expect(last).to_have_class(re.compile("assistant"))
    for name in ("Ann Baker", "Bob Cook"):
        expect(last.locator(".read-by")).to_contain_text(name)
    bob.context.close()
    expect(row).not_to_contain_text("here")
    entries = api.get(f"/v1/conversations/{meeting}/messages").json()["entries"]
    assert [each["message"].get("author") for each in entries][2:4] == ["ann", "bob"]


def test_notifications_are_listed_cleared_and_follow_the_rule(
    opening: Opening, api: httpx.Client, meeting: str
) -> None:
    console = opening("/notifications?for=bob")
    page = console.page
    first = page.locator(".notification", has_text="Ann Baker wrote in Meeting")
    expect(first).to_contain_text("mentioned")
    expect(first).to_contain_text("On Friday, @bob?")
    expect(page.locator(".notification", has_text="Shall we meet?")).to_contain_text("The owner wrote in")
    expect(page.locator(".notification", has_text="When?")).to_contain_text("The assistant wrote in")
    page.get_by_role("button", name="Clear all").click()
    expect(page.get_by_text("Nothing new")).to_be_visible()
    body = {"rule": "mentions", "participant_id": "bob"}
    assert api.put(f"/v1/conversations/{meeting}/notification-rule", json=body).is_success
    for text in ("Never mind.", "Or @Bob Cook decides."):
        message = say("user", text, author="ann")
        assert api.post(f"/v1/conversations/{meeting}/turns", json={"messages": [message]}).is_success
    expect(page.locator(".notification")).to_have_count(1)
    page.locator(".notification").get_by_role("link", name="Meeting").click()
    expect(page.locator(".message.target")).to_contain_text("Or @Bob Cook decides.")
    page.get_by_label("Write as").select_option("bob")
    expect(page.locator(".message").last.locator(".read-by")).to_contain_text("Bob Cook")
    page.get_by_role("region", name="Participants").get_by_role("link", name="Notifications").click()
    expect(page.get_by_text("Nothing new")).to_be_visible()


def test_an_assignment_conflict_is_shown(opening: Opening, api: httpx.Client, meeting: str) -> None:
    console = opening(f"/thread/{meeting}")
    console.watcher.expect("409")
    page = console.page
    field = page.get_by_role("combobox", name="Assigned to")
    field.fill("ann")
    assert api.post(f"/v1/conversations/{meeting}/assignment", json={"assignee": "bob"}).is_success
    page.get_by_role("button", name="Assign", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Bob Cook has it meanwhile. Nothing was changed.")
    assert api.get(f"/v1/conversations/{meeting}").json()["assigned_to"] == "bob"
    page.get_by_role("button", name="Assign to Ann Baker").click()
    expect(page.get_by_text("Assigned to Ann Baker.")).to_be_visible()
    assert api.get(f"/v1/conversations/{meeting}").json()["assigned_to"] == "ann"


def test_a_persons_words_are_erased_everywhere(opening: Opening, api: httpx.Client, meeting: str) -> None:
    page = opening(f"/thread/{meeting}").page
    page.get_by_role("button", name="Change Ann Baker").click()
    page.get_by_role("button", name="Erase this person").click()
    page.get_by_role("dialog").get_by_label("Type “ann” to confirm").fill("ann")
    page.get_by_role("dialog").get_by_role("button", name="Erase for good").click()
    expect(page.get_by_text("Receipt of the erasure")).to_be_visible()
    assert "On Friday" not in api.get(f"/v1/conversations/{meeting}/messages").text


def test_a_guest_reads_with_a_key_and_cannot_write(opening: Opening, starting: Starting) -> None:
    served = starting()
    admin = served.key("--owner", "*", "--scope", "admin", "--name", "root")
    with served.api("erin", Authorization=f"Bearer {admin}") as api:
        one = turn(api, "one", say("user", "For all"), say("assistant", "Yes."))
        two = turn(api, "two", say("user", "Not for guests"), say("assistant", "No."))
        join(api, one, "gus", name="Gus", role="guest")
        body = {"owners": ["erin"], "scope": "write", "participant": "gus"}
        key = api.post("/v1/keys", json=body).json()["text"]
    page = opening(address=served.address, whose=None, key=key).page
    expect(page.get_by_text("Yes.")).to_be_visible()
    expect(page.get_by_text("No.")).to_have_count(0)
    page.locator(".conversation-link").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_disabled()
    assert two


def test_people_of_two_server_processes_see_each_other(opening: Opening, starting: Starting) -> None:
    with shared_store() as url:
        first, second = starting(store=url), starting(store=url)
        with first.api("erin") as api:
            one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
            for person, name in (("ann", "Ann Baker"), ("bob", "Bob Cook")):
                join(api, one, person, name=name)
        consoles = [opening(f"/thread/{one}", address=each.address, whose="erin") for each in (first, second)]
        ann, bob = (console.page for console in consoles)
        ann.get_by_label("Write as").select_option("ann")
        bob.get_by_label("Write as").select_option("bob")
        for page, name in ((ann, "Bob Cook"), (bob, "Ann Baker")):
            expect(people_row(page, name)).to_contain_text("here")
        bob.get_by_role("textbox", name="Message").type("Good", delay=20)
        expect(ann.get_by_text("Bob Cook is typing")).to_be_visible()
        bob.get_by_role("textbox", name="Message").fill("Good evening")
        bob.keyboard.press("Enter")
        said = ann.locator(".message.user", has_text="Good evening")
        expect(said.locator(".speaker")).to_have_text("Bob Cook")
        expect(ann.locator(".messages > .message").last.locator(".read-by")).to_contain_text("Bob Cook")
        bob.close()
        expect(people_row(ann, "Bob Cook")).to_contain_text("last seen")
        for console in consoles:
            console.watcher.expect("WebSocket", "ERR_", "Failed to load")
        first.stop()
        second.stop()
