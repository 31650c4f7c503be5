"""What the limits, filters and marks of a policy keep and leave out, case by case."""

from collections.abc import Sequence
from typing import Any

import pytest

from aforesaid.contracts import Entry
from aforesaid.errors import BudgetExceeded, InvalidSetting, NothingToSend, WindowError
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy, build_window, write_request
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


def window(entries: Sequence[Entry], **policy: object) -> Context:
    return build_window(entries, WindowPolicy(for_request=True, **policy), cost=words)  # type: ignore[arg-type]


def kept(entries: Sequence[Entry], **policy: object) -> list[str]:
    return said(window(entries, **policy).messages)


def reasons(entries: Sequence[Entry], **policy: object) -> dict[int, str]:
    return {line.sequence: line.reason for line in window(entries, **policy).report.left_out}


CHAT = log(user("q1"), assistant("a1"), user("q2"), assistant("a2"), user("q3"), assistant("a3"))
LOOP = log(user("q1"), assistant("a1"), user("q2"), calls("a"), result("a"), calls("b"), result("b"))


class TestTurns:
    def test_a_turn_limit_counts_logical_turns(self) -> None:
        assert kept(LOOP, max_turns=1) == ["q2", "a?", "a!", "b?", "b!"]
        assert reasons(LOOP, max_turns=1) == {1: "turns", 2: "turns"}

    def test_zero_and_none_keep_everything(self) -> None:
        assert kept(CHAT, max_turns=0) == kept(CHAT) == ["q1", "a1", "q2", "a2", "q3", "a3"]

    def test_results_with_role_user_start_no_turn(self) -> None:
        entries = log(
            blocks("user", text("q1")),
            assistant("a1"),
            blocks("user", text("q2")),
            blocks("assistant", use("a")),
            blocks("user", found("a")),
            assistant("a2"),
        )
        assert kept(entries, max_turns=1) == ["q2", "a?", "a!", "a2"]

    def test_a_turn_that_is_all_ephemeral_goes_before_an_older_one(self) -> None:
        entries = log(
            user("q1"), assistant("a1"), user("q2", "ephemeral"), assistant("a2", "ephemeral"), user("q3")
        )
        assert kept(entries, max_turns=2) == ["q1", "a1", "q3"]


class TestMessages:
    def test_a_group_that_straddles_the_limit_is_left_out(self) -> None:
        entries = log(user("q"), calls("a"), result("a"), assistant("done"))
        assert kept(entries, max_messages=2) == ["done"]

    def test_the_newest_group_is_kept_whole_with_its_question(self) -> None:
        assert kept(LOOP, max_messages=1) == ["q2", "b?", "b!"]

    def test_older_system_messages_come_on_top(self) -> None:
        entries = log(system("be kind"), *(entry.message for entry in CHAT))
        assert kept(entries, max_messages=2) == ["be kind", "q3", "a3"]
        assert kept(entries, max_messages=2, preserve_system=False) == ["q3", "a3"]

    def test_ephemeral_messages_go_before_older_ones(self) -> None:
        entries = log(user("q1"), assistant("a1", "ephemeral"), user("q2"), assistant("a2"))
        assert kept(entries, max_messages=3) == ["q1", "q2", "a2"]
        assert reasons(entries, max_messages=3) == {2: "ephemeral"}

    def test_important_messages_stay_while_others_can_go(self) -> None:
        entries = log(user("q1", "important"), assistant("a1"), user("q2"), assistant("a2"))
        assert kept(entries, max_messages=2) == ["q1", "a2"]
        assert kept(entries, max_messages=1) == ["a2"]


class TestTokens:
    def test_a_window_starts_with_a_question(self) -> None:
        assert kept(CHAT, max_tokens=11, retention_ratio=1.0) == ["q2", "a2", "q3", "a3"]
        assert kept(CHAT, max_tokens=7, retention_ratio=1.0) == ["q3", "a3"]

    def test_a_long_turn_keeps_its_question_and_its_newest_steps(self) -> None:
        entries = log(user("q"), *(m for n in range(9) for m in (calls(f"c{n}"), result(f"c{n}"))))
        context = window(entries, max_tokens=60, retention_ratio=1.0)
        assert said(context.messages)[0] == "q"
        assert said(context.messages)[-1] == "c8!"
        assert 45 < context.report.tokens.total <= 60
        assert {line.reason for line in context.report.left_out} == {"tokens"}

    def test_after_a_long_turn_the_next_question_does_not_stand_alone(self) -> None:
        long = [m for n in range(9) for m in (calls(f"c{n}"), result(f"c{n}"))]
        entries = log(user("q1"), *long, assistant("a1"), user("q2"))
        shown = kept(entries, max_tokens=60, retention_ratio=1.0)
        assert shown[0] == "q1"
        assert shown[-4:] == ["c8?", "c8!", "a1", "q2"]

    def test_prompt_and_tools_take_their_part(self) -> None:
        context = window(CHAT, max_tokens=30, prompt_tokens=15, tools_tokens=8, retention_ratio=1.0)
        assert said(context.messages) == ["q3", "a3"]
        assert context.report.tokens.total == 15 + 8 + 4

    def test_at_rest_the_newest_answer_may_stand_without_its_question(self) -> None:
        entries = log(user("word " * 30), assistant("short"))
        assert kept(entries, max_tokens=10) == ["short"]

    def test_a_question_beside_results_counts_what_it_adds_to_them(self) -> None:
        """A cost that rounds down counts nothing for either half of a message, but one for both together."""

        def hundreds(message: Message) -> int:
            return len(str(message.content)) // 100

        entries = log(
            blocks("user", text("q1")),
            blocks("assistant", use("a")),
            blocks("user", found("a", "r" * 30), text("q" * 30)),
            assistant("x" * 100),
        )
        assert hundreds(entries[2].message) == 1
        tight = build_window(entries, WindowPolicy(for_request=True, max_tokens=1), cost=hundreds)
        assert tight.messages == (entries[3].message,)
        ample = build_window(entries, WindowPolicy(for_request=True, max_tokens=2), cost=hundreds)
        assert ample.messages == tuple(entry.message for entry in entries)
        assert ample.report.tokens.total == 2

    def test_important_messages_stay_within_the_budget(self) -> None:
        entries = log(user("q1", "important"), *(user(f"q{n}") for n in range(2, 20)))
        context = window(entries, max_tokens=20)
        assert said(context.messages)[0] == "q1"
        assert context.report.tokens.total <= 20


class TestOversize:
    LARGE = log(user("q"), calls("a", "b"), result("a", "one " * 500), result("b", "two " * 50))

    def test_the_oldest_results_are_shortened_until_the_window_fits(self) -> None:
        context = window(self.LARGE, max_tokens=100)
        assert context.report.shortened == ("a",)
        assert context.report.tokens.total <= 100
        assert "characters left out" in context.messages[2].content
        assert context.messages[3].content == "two " * 50

    def test_what_cannot_be_shortened_enough_is_said(self) -> None:
        context = window(self.LARGE, max_tokens=10)
        assert context.report.shortened == ("a", "b")
        assert "the budget is 10" in context.report.warnings[0]

    def test_or_it_is_an_error(self) -> None:
        with pytest.raises(BudgetExceeded) as caught:
            window(self.LARGE, max_tokens=100, oversize="error")
        assert caught.value.needed > caught.value.budget == 100

    def test_a_fixed_part_that_does_not_fit_is_an_error_or_a_warning(self) -> None:
        with pytest.raises(BudgetExceeded, match="prompt, tools and system messages alone need 50"):
            window(CHAT, max_tokens=40, prompt_tokens=50, oversize="error")
        context = window(CHAT, max_tokens=40, prompt_tokens=50)
        assert said(context.messages) == ["a3"]
        assert "alone need 50 tokens" in context.report.warnings[0]


class TestFilters:
    def test_tags_given_and_built_in_select_messages(self) -> None:
        entries = log(
            user("q1", "context:lights"), assistant("a1"), user("q2"), assistant("a2", "context:lights")
        )
        assert kept(entries, tags=("context:lights",)) == ["q1", "a2"]
        assert kept(entries, tags=("output",)) == ["a1", "a2"]
        assert reasons(entries, tags=("input",)) == {2: "tag", 4: "tag"}

    def test_the_question_of_a_loop_passes_with_it(self) -> None:
        entries = log(user("q1"), assistant("a1"), user("q2"), calls("a", tags=("x",)), result("a"))
        assert kept(entries, tags=("x",)) == ["q2", "a?", "a!"]

    def test_an_agents_view_holds_the_results_of_its_calls(self) -> None:
        entries = log(
            user("q"), calls("a", agent="kitchen"), calls("b", agent="garden"), result("b"), result("a")
        )
        assert kept(entries, agent_name="kitchen") == ["q", "a?", "a!"]
        assert reasons(entries, agent_name="kitchen") == {3: "agent", 4: "agent"}


class TestNothingToSend:
    """A window without anybody's words is empty, says why, and cannot be taken for a request."""

    ASKED = log(system("be kind"), user("q1"), assistant("a1", agent="garden"))

    @pytest.mark.parametrize(
        ("policy", "reason"),
        [
            ({"tags": ("rare", "odd")}, "passes the filter by the tags rare, odd"),
            ({"tags": ("output",), "agent_name": "kitchen"}, "the tags output and the agent kitchen"),
        ],
    )
    def test_a_filter_that_no_words_pass_is_named(self, policy: dict[str, Any], reason: str) -> None:
        context = window(self.ASKED, **policy)
        assert said(context.messages) == []
        assert reason in str(context.report.nothing_to_send)
        with pytest.raises(NothingToSend, match=reason):
            write_request(context, "anthropic")

    def test_system_messages_alone_are_no_request(self) -> None:
        context = window(self.ASKED, tags=("system",), max_messages=3)
        assert said(context.messages) == ["be kind"]
        with pytest.raises(WindowError, match="there is nothing to send"):
            write_request(context, "openai_chat")

    @pytest.mark.parametrize("entries", [log(), log(system("be kind")), log(result("nobody"))])
    def test_nor_is_a_conversation_without_messages(self, entries: list[Entry]) -> None:
        context = window(entries, max_messages=5)
        assert context.report.nothing_to_send == "the conversation has no message that a model could answer"

    def test_an_agent_always_gets_what_the_user_said(self) -> None:
        context = window(self.ASKED, agent_name="kitchen")
        assert context.report.nothing_to_send is None
        assert write_request(context, "plain").messages[-1]["content"] == "q1"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_turns", -1),
        ("max_messages", "20"),
        ("max_tokens", 0),
        ("retention_ratio", 0),
        ("count_retention_ratio", 1.5),
        ("oversize", "ignore"),
        ("reach", 0),
    ],
)
def test_a_policy_that_cannot_be_followed_names_the_field(field: str, value: object) -> None:
    with pytest.raises(InvalidSetting) as caught:
        WindowPolicy(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
