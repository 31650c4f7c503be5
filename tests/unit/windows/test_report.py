"""A window says how it came about, to its caller and to the log."""

import logging

import pytest

from aforesaid.windows import WindowPolicy, build_window, stats_of
from tests.unit.windows.logs import (
    assistant,
    blocks,
    calls,
    found,
    log,
    result,
    said,
    system,
    text,
    use,
    user,
    words,
)

ENTRIES = log(system("be kind"), user("one two"), assistant("three"), user("four"), calls("a"))


def test_tokens_by_kind_and_utilisation() -> None:
    policy = WindowPolicy(max_tokens=100, prompt_tokens=20, tools_tokens=10)
    context = build_window(ENTRIES, policy, cost=words, counter="words")
    report = context.report
    assert (report.tokens.prompt, report.tokens.tools, report.tokens.system) == (20, 10, 3)
    assert report.tokens.history == sum(words(message) for message in context.messages[1:])
    assert report.utilization == report.tokens.total
    assert (report.max_tokens, report.counter, report.message_count) == (100, "words", 5)


def test_words_of_others_weigh_as_much_as_in_the_narrated_form() -> None:
    entries = log(user("one"), assistant("two", agent="garden"), assistant("three", agent="kitchen"))
    plain = build_window(entries, WindowPolicy(), cost=words).report.tokens.history
    describe = build_window(entries, WindowPolicy(told_to="kitchen"), cost=words).report.tokens.history
    assert describe == plain + len(("[garden", "answered:]"))


def test_an_interrupted_call_is_named_and_not_part_of_the_stable_prefix() -> None:
    report = build_window(ENTRIES, WindowPolicy(), cost=words).report
    assert report.interrupted == ("a",)
    assert report.stable_prefix == 5


def test_it_says_how_many_messages_stand_before_the_window() -> None:
    """The place of the newest that a limit left out, whatever of the older ones stays or goes for a reason of
    its own."""
    entries = log(
        system("be kind"),
        *(user(f"{n}", "ephemeral") for n in range(3)),
        *(user(f"{n}", "important") for n in range(3, 5)),
        *(user(f"{n}") for n in range(5, 20)),
    )
    context = build_window(entries, WindowPolicy(for_request=True, max_messages=10), cost=words)
    assert said(context.messages) == ["be kind", "3", "4", *(f"{n}" for n in range(12, 20))]
    assert context.report.before_window == 13
    whole = build_window(entries, WindowPolicy(for_request=True, max_messages=18), cost=words)
    assert [one.reason for one in whole.report.left_out] == ["ephemeral"] * 3
    assert whole.report.before_window == 0


def test_what_is_out_of_reach_stands_before_the_window() -> None:
    entries = log(system("be kind"), *(user(f"{n}") for n in range(9)))
    context = build_window(entries, WindowPolicy(for_request=True, max_messages=8, reach=4), cost=words)
    assert said(context.messages) == ["be kind", "5", "6", "7", "8"]
    assert (context.report.before_window, context.report.not_read) == (6, 5)


def test_a_budget_that_is_nearly_used_up_is_a_warning() -> None:
    entries = log(user("one two three"), assistant("four five six"))
    assert build_window(entries, WindowPolicy(max_tokens=8), cost=words).report.warnings == (
        "100 % of the token budget is in use",
    )
    assert build_window(entries, WindowPolicy(max_tokens=9), cost=words).report.warnings == ()


def test_evictions_are_logged_by_reason_and_without_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="aforesaid.windows"):
        build_window(ENTRIES, WindowPolicy(max_turns=1), cost=words)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "left_out=2" in record.getMessage()
    assert "turns:2" in record.getMessage()
    assert "three" not in record.getMessage()


def test_a_fixed_part_that_does_not_fit_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    build_window(ENTRIES, WindowPolicy(max_tokens=5, prompt_tokens=9), cost=words)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "alone need 12 tokens" in record.getMessage()


def test_a_message_with_results_and_words_goes_out_as_it_came_in() -> None:
    both = blocks("user", found("a"), text("and hurry"))
    entries = log(blocks("user", text("q")), blocks("assistant", use("a")), both)
    context = build_window(entries, WindowPolicy(), cost=words)
    assert context.messages[-1].content == both.content
    assert len(context) == 3
    assert said(build_window(entries, WindowPolicy(max_turns=1), cost=words).messages) == ["and hurry"]


def test_stats_in_the_documented_form() -> None:
    entries = log(user("one", "greeting"), assistant("two"), user("three"), calls("a"), result("a"))
    stats = stats_of(build_window(entries, WindowPolicy(max_tokens=200), cost=words))
    assert stats == {
        "exists": True,
        "message_count": 5,
        "current_tokens": sum(words(entry.message) for entry in entries),
        "max_tokens": 200,
        "utilization": sum(words(entry.message) for entry in entries) / 2,
        "tag_distribution": {"greeting": 1, "input": 2, "output": 2},
    }
    assert stats_of(None)["exists"] is False
