"""Branches in the thread: ask a question differently, look at both answers, and move between them."""

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opening
from tests.console.serving import say, turn


def test_a_question_is_asked_differently_in_a_branch(opening: Opening, api: httpx.Client) -> None:
    turn(api, "one", say("user", "Remember that I like leeks."), say("assistant", "I will."))
    one = turn(api, "one", say("user", "What do I  like?\nTell me."), say("assistant", "Carrots."))
    page = opening(f"/thread/{one}").page
    expect(page.get_by_text("Carrots.")).to_be_visible()
    expect(page.get_by_role("navigation", name="Branches")).to_have_count(0)
    question = page.locator(".message.user").last
    question.hover()
    question.get_by_role("button", name="Ask differently").click()
    field = page.get_by_role("dialog").get_by_label("Question")
    expect(field).to_have_value("What do I  like?\nTell me.")
    field.fill("Remember that I like walnuts.")
    page.get_by_role("button", name="Ask in a branch").click()

    expect(page.locator(".message.assistant", has_text="I will remember: I like walnuts")).to_be_visible()
    expect(page.locator(".pending-turn")).to_have_count(0)
    expect(page.locator(".message.user").first).to_contain_text("Remember that I like leeks.")
    expect(page.locator(".message.user")).to_have_count(2)
    expect(page.get_by_text("Carrots.")).to_have_count(0)
    tree = page.get_by_role("navigation", name="Branches")
    expect(tree.locator("li li a[aria-current=page]")).to_have_text("Remember that I like walnuts.")
    expect(tree.locator("li li")).to_contain_text("messages after 2 shared")

    tree.locator("li > a:not([aria-current])").click()
    expect(page.get_by_text("Carrots.")).to_be_visible()
    expect(page.get_by_text("I will remember: I like walnuts")).to_have_count(0)
    expect(tree.locator("a[aria-current=page]")).to_have_count(1)
    entries = api.get(f"/v1/conversations/{one}/messages").json()["entries"]
    assert [each["message"]["content"] for each in entries][-1] == "Carrots."


def test_the_first_question_can_be_asked_again_unchanged(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "Remember that I like figs."), say("assistant", "Hm."))
    page = opening(f"/thread/{one}").page
    page.locator(".message.user").hover()
    page.get_by_role("button", name="Ask differently").click()
    page.get_by_role("button", name="Ask in a branch").click()
    expect(page.get_by_text("I will remember: I like figs")).to_be_visible()
    expect(page.locator(".message.user")).to_have_count(1)
    page.reload()
    expect(page.get_by_text("I will remember: I like figs")).to_be_visible()
    expect(page.locator(".message.user")).to_have_count(1)
    tree = api.get(f"/v1/conversations/{one}/branches").json()["branches"]
    assert [each["shared_messages"] for each in tree] == [0, 0]


def test_a_refused_branch_says_why_and_keeps_the_words(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "hello"), say("assistant", "Hi."))
    console = opening(f"/thread/{one}")
    console.watcher.expect("404")
    page = console.page
    page.locator(".message.user").hover()
    page.get_by_role("button", name="Ask differently").click()
    field = page.get_by_role("dialog").get_by_label("Question")
    field.fill("good evening")
    page.route("**/branches", lambda route: route.continue_(url=route.request.url.replace(one, "gone")))
    page.get_by_role("button", name="Ask in a branch").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    expect(field).to_have_value("good evening")
    page.unroute("**/branches")
    page.get_by_role("button", name="Ask in a branch").click()
    expect(page.locator(".message.user", has_text="good evening")).to_have_count(1)
    assert len(api.get(f"/v1/conversations/{one}/branches").json()["branches"]) == 2


def test_a_long_branch_loads_the_messages_that_it_shares(opening: Opening, api: httpx.Client) -> None:
    pairs = ((say("user", f"question {n}"), say("assistant", f"answer {n}")) for n in range(60))
    one = turn(api, "long", *(message for pair in pairs for message in pair))
    branch = api.post(f"/v1/conversations/{one}/branches", json={}).json()["id"]
    console = opening(f"/thread/{branch}")
    page = console.page
    expect(page.get_by_text("120 messages", exact=True)).to_be_visible()
    page.get_by_role("button", name="Show earlier messages").click()
    expect(page.locator(".log").get_by_text("question 0", exact=True)).to_be_attached()
    expect(page.get_by_role("button", name="Show earlier messages")).to_have_count(0)
    console.screenshot("branches-1280-light")


@pytest.fixture
def forked(api: httpx.Client) -> tuple[str, str]:
    """A conversation and its branch; each goes on alone."""
    one = turn(api, "one", say("user", "Where to?"), say("assistant", "To the sea."))
    assert api.patch(f"/v1/conversations/{one}", json={"subject": "Holiday"}).is_success
    body = {"subject": "Mountains instead"}
    branch: str = api.post(f"/v1/conversations/{one}/branches", json=body).json()["id"]
    for conversation, text in ((one, "By train."), (branch, "By bicycle.")):
        messages = [say("user", "How?"), say("assistant", text)]
        assert api.post(f"/v1/conversations/{conversation}/turns", json={"messages": messages}).is_success
    return one, branch


def test_branches_stand_side_by_side_and_are_merged(
    opening: Opening, api: httpx.Client, forked: tuple[str, str]
) -> None:
    one, _ = forked
    console = opening(f"/thread/{one}")
    console.watcher.expect("409")
    page = console.page
    page.get_by_role("link", name="Compare with Mountains instead").click()
    expect(page.get_by_text("2 messages in both")).to_be_visible()
    left, right = (page.get_by_role("region", name=name) for name in ("Holiday", "Mountains instead"))
    expect(left).to_contain_text("By train.")
    expect(left.get_by_text("By bicycle.")).to_have_count(0)
    expect(right).to_contain_text("By bicycle.")
    console.screenshot("compare-1280-light")
    page.get_by_role("button", name="Merge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Take the branch's course").check()
    dialog.get_by_role("button", name="Merge").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Conflict: nothing was stored.")
    assert "bicycle" not in api.get(f"/v1/conversations/{one}/messages").text
    dialog.get_by_label("At the end").check()
    dialog.get_by_label("Subject: Mountains instead").check()
    dialog.get_by_role("button", name="Merge").click()
    expect(page.get_by_role("dialog", name="Merged")).to_contain_text("2 messages added, 0 known already")
    page.get_by_role("link", name="Open the conversation").click()
    expect(page.get_by_role("heading", name="Mountains instead")).to_be_visible()
    expect(page.locator(".message", has_text="By bicycle.")).to_be_visible()


@pytest.mark.parametrize("how", ["By time", "As a summary"])
def test_other_ways_to_merge(how: str, opening: Opening, api: httpx.Client, forked: tuple[str, str]) -> None:
    one, branch = forked
    page = opening(f"/compare/{one}?with={branch}").page
    page.get_by_role("button", name="Merge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(how).check()
    if how == "As a summary":
        dialog.get_by_label("Summary", exact=True).fill("We looked at bicycles.")
    dialog.get_by_role("button", name="Merge").click()
    expect(page.get_by_role("dialog", name="Merged")).to_contain_text("added")
    entries = api.get(f"/v1/conversations/{one}/messages").json()["entries"]
    words = [each["message"]["content"] for each in entries]
    wanted = "We looked at bicycles." if how == "As a summary" else "By bicycle."
    assert any(wanted in str(each) for each in words)


def test_a_conversation_that_rested_since_the_fork_adopts_its_branch(
    opening: Opening, api: httpx.Client
) -> None:
    one = turn(api, "one", say("user", "Where to?"), say("assistant", "To the sea."))
    branch = api.post(f"/v1/conversations/{one}/branches", json={"subject": "Mountains"}).json()["id"]
    messages = [say("user", "How?"), say("assistant", "By bicycle.")]
    assert api.post(f"/v1/conversations/{branch}/turns", json={"messages": messages}).is_success
    page = opening(f"/compare/{one}?with={branch}").page
    page.get_by_role("button", name="Merge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Take the branch's course").check()
    dialog.get_by_role("button", name="Merge").click()
    expect(page.get_by_role("dialog", name="Merged")).to_contain_text("2 messages added")
    page.get_by_role("link", name="Open the conversation").click()
    expect(page.locator(".message").last).to_contain_text("By bicycle.")
    entries = api.get(f"/v1/conversations/{one}/messages").json()["entries"]
    said = [each["message"]["content"] for each in entries]
    assert said == ["Where to?", "To the sea.", "How?", "By bicycle."]


def test_related_conversations_are_linked_and_unlinked(opening: Opening, api: httpx.Client) -> None:
    one = turn(api, "one", say("user", "The roof leaks"), say("assistant", "Oh."))
    two = turn(api, "two", say("user", "A roofer called"), say("assistant", "Good."))
    assert api.patch(f"/v1/conversations/{two}", json={"subject": "Roofer"}).is_success
    page = opening(f"/thread/{one}").page
    links = page.get_by_role("region", name="Related conversations")
    links.get_by_role("button", name="Relate").click()
    links.get_by_label("Find a conversation").fill("roofer")
    links.get_by_role("button", name="Roofer", exact=True).click()
    expect(links.get_by_role("link", name="Roofer")).to_be_visible()
    links.get_by_role("button", name="Remove the link to Roofer").click()
    expect(links.get_by_role("link", name="Roofer")).to_have_count(0)
    page.get_by_role("button", name="Undo").last.click()
    expect(links.get_by_role("link", name="Roofer")).to_be_visible()
    [linked] = api.get(f"/v1/conversations/{one}/links").json()["conversations"]
    assert linked["id"] == two
