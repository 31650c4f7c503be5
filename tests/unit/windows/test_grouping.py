"""Groups: what a window holds whole or not at all."""

from aforesaid.contracts import Entry
from aforesaid.windows import INTERRUPTED
from aforesaid.windows.groups import group_log
from tests.unit.windows.logs import (
    assistant,
    blocks,
    calls,
    found,
    item,
    log,
    result,
    said,
    system,
    text,
    use,
    user,
)


def groups(entries: list[Entry]) -> list[list[str]]:
    return [said(tuple(piece.message for piece in group.pieces)) for group in group_log(entries).groups]


def dropped(entries: list[Entry]) -> list[tuple[int, str]]:
    return [(part.entry.sequence, part.reason) for part in group_log(entries).dropped]


def test_messages_stand_alone_and_calls_stand_with_their_results() -> None:
    entries = log(system("be kind"), user("hi"), calls("a", "b"), result("a"), result("b"), assistant("done"))
    assert groups(entries) == [["be kind"], ["hi"], ["a? b?", "a!", "b!"], ["done"]]


def test_results_move_up_to_their_call_from_wherever_they_came_in() -> None:
    entries = log(
        user("q"),
        calls("a", "b"),
        user("and hurry"),
        result("b"),
        assistant("wait"),
        user("another"),
        result("a"),
    )
    assert groups(entries) == [["q"], ["a? b?", "a!", "b!"], ["and hurry"], ["wait"], ["another"]]
    assert dropped(entries) == []


def test_a_result_that_came_before_its_call_by_a_clock_that_was_off_is_found() -> None:
    assert groups(log(user("q"), result("a"), calls("a"))) == [["q"], ["a?", "a!"]]


def test_second_results_and_results_without_a_call_are_dropped_and_named() -> None:
    entries = log(user("q"), calls("a"), result("a"), result("a", "again"), result("x"), assistant("done"))
    assert groups(entries) == [["q"], ["a?", "a!"], ["done"]]
    assert dropped(entries) == [(4, "duplicate"), (5, "orphan")]


def test_a_call_id_that_is_used_again_in_the_next_turn_meets_its_own_result() -> None:
    entries = log(
        user("q1"), calls("a"), result("a", "one"), user("q2"), calls("a"), result("a", "two"), result("a")
    )
    pieces = [piece for group in group_log(entries).groups for piece in group.pieces]
    assert [piece.message.content for piece in pieces if piece.message.role == "tool"] == ["one", "two"]
    assert dropped(entries) == [(7, "duplicate")]


def test_calls_of_one_message_with_one_id_get_a_result_each_in_their_order() -> None:
    entries = log(user("q"), calls("a", "a"), result("a", "one"), result("a", "two"), result("a", "three"))
    (group,) = group_log(entries).groups[1:]
    assert [piece.message.content for piece in group.pieces[1:]] == ["one", "two"]
    assert group.interrupted == ()
    assert dropped(entries) == [(5, "duplicate")]


def test_of_calls_with_one_id_the_first_is_answered_and_the_others_are_interrupted() -> None:
    entries = log(user("q"), calls("a", "a"), user("and hurry"), result("a", "one"))
    group = group_log(entries).groups[1]
    assert [piece.message.content for piece in group.pieces[1:]] == ["one", INTERRUPTED]
    assert group.interrupted == ("a",)


def test_a_call_without_a_result_gets_one_that_says_so_and_the_log_stays_as_it_is() -> None:
    entries = log(user("q"), calls("a", "b"), result("b"))
    group = group_log(entries).groups[1]
    assert group.interrupted == ("a",)
    made = [piece.message for piece in group.pieces if piece.synthetic]
    assert [(message.content, message.extra["tool_call_id"]) for message in made] == [(INTERRUPTED, "a")]
    assert made[0].extra["is_error"] is True


def test_what_a_user_says_beside_results_starts_a_turn_of_its_own() -> None:
    entries = log(
        blocks("user", text("q")),
        blocks("assistant", use("a")),
        blocks("user", found("a"), text("and hurry")),
    )
    grouping = group_log(entries)
    assert groups(entries) == [["q"], ["a?", "a!"], ["and hurry"]]
    assert [group.turn for group in grouping.groups] == [1, 1, 2]


def test_one_message_may_bring_results_to_several_steps() -> None:
    entries = log(
        blocks("user", text("q")),
        blocks("assistant", use("a")),
        blocks("assistant", use("b")),
        blocks("user", found("b"), found("a"), found("a", "again"), found("x")),
    )
    assert groups(entries) == [["q"], ["a?", "a!"], ["b?", "b!"]]
    assert sorted(dropped(entries)) == [(4, "duplicate"), (4, "orphan")]


def test_reasoning_items_stay_with_what_they_led_to() -> None:
    entries = log(
        user("q"),
        item(type="reasoning", id="rs_1", summary=[]),
        item(type="function_call", call_id="a", name="lookup", arguments="{}"),
        item(type="function_call", call_id="b", name="lookup", arguments="{}"),
        item(type="function_call_output", call_id="b", output="found"),
        item(type="function_call_output", call_id="a", output="found"),
        item(type="reasoning", id="rs_2", summary=[]),
    )
    assert groups(entries) == [["q"], ["", "a?", "b?", "a!", "b!"]]
    assert dropped(entries) == [(7, "orphan")]
