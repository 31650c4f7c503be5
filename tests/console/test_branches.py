"""Branches in the thread: ask a question differently, look at both answers, and move between them."""

import httpx
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

    tree.locator("a:not([aria-current])").click()
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
    expect(page.get_by_text("question 0", exact=True)).to_be_attached()
    expect(page.get_by_role("button", name="Show earlier messages")).to_have_count(0)
    console.screenshot("branches-1280-light")
