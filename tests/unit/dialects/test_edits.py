"""Taking results and thinking out of messages, and making results: what windows are cut with."""

from typing import Any

import pytest

from aforesaid.dialects import (
    DIALECTS,
    meaning_of,
    only_results,
    read,
    tool_result,
    with_result_text,
    without_results,
    without_thinking,
    write,
)
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems


def anthropic_results(*, extra_text: bool) -> Message:
    blocks: list[dict[str, Any]] = [
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": "long " * 9,
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "tool_result", "tool_use_id": "b", "content": "short"},
    ]
    if extra_text:
        blocks.append({"type": "text", "text": "and now?"})
    return read({"role": "user", "content": blocks, "x": 1})[0]


def chat_result() -> Message:
    return read({"role": "tool", "tool_call_id": "a", "content": "long", "x": 1})[0]


def responses_result() -> Message:
    return read({"type": "function_call_output", "call_id": "a", "output": "long", "x": 1})[0]


def plain_result() -> Message:
    return read({"role": "tool", "tool_call_id": "a", "content": "long", "x": 1}, dialect="plain")[0]


WHOLE = [chat_result(), responses_result(), plain_result()]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_error", [False, True])
def test_a_result_that_was_made_is_read_as_one(dialect: str, is_error: bool) -> None:
    message = tool_result(dialect, call_id="a", name="look", text="it broke", is_error=is_error)
    (result,) = meaning_of(message).results
    assert message.dialect == dialect
    assert result.call_id == "a"
    assert "it broke" in str(result.content)
    assert result.is_error is is_error or result.content == "Error: it broke"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_result_that_was_made_completes_a_request(dialect: str) -> None:
    question = read({"role": "user", "content": "hi"})
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}
    made = tool_result(dialect, call_id="a", name="look", text="interrupted", is_error=True)
    for target in DIALECTS:
        assert problems(write([*question, *read(call), made], target), target) == []


def test_results_are_taken_out_of_anthropic_messages() -> None:
    message = anthropic_results(extra_text=True)
    left = without_results(message, {"a"})
    assert left is not None
    assert [result.call_id for result in meaning_of(left).results] == ["b"]
    assert left.extra == {"x": 1}
    words = without_results(message, ["a", "b"])
    assert words is not None
    assert words.content == [{"type": "text", "text": "and now?"}]


def test_nothing_left_is_none() -> None:
    assert without_results(anthropic_results(extra_text=False), {"a", "b"}) is None


@pytest.mark.parametrize("message", WHOLE)
def test_a_message_that_is_a_result_goes_whole(message: Message) -> None:
    assert without_results(message, {"a"}) is None
    assert without_results(message, {"b"}) is message
    assert only_results(message, {"a"}) is message
    assert only_results(message, {"b"}) is None


def test_a_message_without_such_a_result_stays_the_same_object() -> None:
    message = anthropic_results(extra_text=True)
    assert without_results(message, {"z"}) is message
    words = Message(role="user", content="hi")
    assert without_results(words, {"a"}) is words
    assert only_results(words, {"a"}) is None


def test_only_results_leaves_the_rest_behind() -> None:
    chosen = only_results(anthropic_results(extra_text=True), {"b"})
    assert chosen is not None
    assert chosen.content == [{"type": "tool_result", "tool_use_id": "b", "content": "short"}]


@pytest.mark.parametrize("message", WHOLE)
def test_a_result_is_replaced_by_text(message: Message) -> None:
    shortened = with_result_text(message, "a", "cut")
    assert meaning_of(shortened).results[0].content == "cut"
    assert shortened.extra["x"] == 1
    assert with_result_text(message, "b", "cut") is message


def test_one_result_of_several_is_replaced_by_text() -> None:
    message = anthropic_results(extra_text=True).with_(tokens={"o200k": 99})
    shortened = with_result_text(message, "a", "cut")
    assert [result.content for result in meaning_of(shortened).results] == ["cut", "short"]
    assert shortened.content[0]["cache_control"] == {"type": "ephemeral"}
    assert shortened.tokens == {}, "what was counted is no longer true"
    assert with_result_text(message, "z", "cut") is message


def test_an_output_that_may_not_be_text_stays() -> None:
    item = {
        "type": "computer_call_output",
        "call_id": "a",
        "output": {"type": "computer_screenshot", "file_id": "f"},
    }
    (message,) = read(item)
    assert with_result_text(message, "a", "cut") is message


def test_thinking_is_taken_out() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    redacted = {"type": "redacted_thinking", "data": "e"}
    words = {"type": "text", "text": "hi"}
    (message,) = read({"role": "assistant", "content": [thinking, redacted, words]})
    left = without_thinking(message)
    assert left is not None
    assert left.content == [words]
    assert without_thinking(left) is left
    (only,) = read({"role": "assistant", "content": [thinking]})
    assert without_thinking(only) is None


def test_thinking_is_taken_out_of_openai_messages() -> None:
    (item,) = read({"type": "reasoning", "id": "rs", "summary": []})
    assert without_thinking(item) is None
    (message,) = read(
        {"role": "assistant", "content": "hi", "reasoning_content": "hm"}, dialect="openai_chat"
    )
    left = without_thinking(message)
    assert left is not None
    assert not meaning_of(left).thinking
    assert left.content == "hi"
