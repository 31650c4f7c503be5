"""What a message means, in every dialect; and that reading it never fails."""

from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from aforesaid.dialects import (
    DIALECTS,
    Meaning,
    ToolCall,
    ToolResult,
    meaning_of,
    read,
    rehydrate,
    split_images,
    with_result_text,
    without_images,
    without_results,
    without_thinking,
    write,
)
from aforesaid.model.messages import Message, Role
from aforesaid.testing.validity import problems
from tests.examples import examples
from tests.unit.dialects.histories import json_values

CALL = ToolCall(id="c1", name="look", arguments={"at": "sky"})
TEXT_CALL = ToolCall(id="c1", name="look", arguments='{"at": "sky"}')


def one(document: dict[str, Any], dialect: str | None = None) -> Meaning:
    (message,) = read(document, dialect=dialect)
    return meaning_of(message)


def test_anthropic_blocks() -> None:
    document = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I will "},
            {"type": "text", "text": "look."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
        ],
    }
    assert one(document) == Meaning(text="I will look.", calls=(CALL,), thinking=True)


def test_anthropic_results() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True},
        {"type": "text", "text": "well?"},
        {"type": "text", "text": "hurry"},
    ]
    expected = Meaning(text="well?\nhurry", results=(ToolResult(call_id="c1", content="no", is_error=True),))
    assert one({"role": "user", "content": content}) == expected


def test_chat_calls_and_results() -> None:
    function = {"name": "look", "arguments": '{"at": "sky"}'}
    document = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": function},
            {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
        ],
    }
    assert one(document).calls == (TEXT_CALL, ToolCall(id="c2", name="shell", arguments="ls"))
    answer = {"role": "tool", "tool_call_id": "c1", "content": "blue"}
    assert one(answer).results == (ToolResult(call_id="c1", content="blue"),)


def test_chat_deprecated_function_calls_are_tied_by_name() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    assert one(call).calls == (ToolCall(id="look", name="look", arguments="{}"),)
    answer = {"role": "function", "name": "look", "content": "blue"}
    assert one(answer).results == (ToolResult(call_id="look", content="blue"),)


def test_chat_refusal_reasoning_and_spoken_words() -> None:
    assert one({"role": "assistant", "content": None, "refusal": "I won't"}).text == "I won't"
    assert one({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hi"}}).text == "hi"
    assert one({"role": "assistant", "content": "x", "reasoning_content": "hm"}, "openai_chat").thinking


def test_responses_items() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "sky"}'}
    assert one(call).calls == (TEXT_CALL,)
    output = {"type": "function_call_output", "call_id": "c1", "output": "blue"}
    assert one(output).results == (ToolResult(call_id="c1", content="blue"),)
    assert one({"type": "reasoning", "id": "rs", "summary": []}) == Meaning(thinking=True)
    shell = {"type": "local_shell_call", "call_id": "c2", "id": "x", "action": {"command": ["ls"]}}
    assert one(shell).calls == (ToolCall(id="c2", name="local_shell_call", arguments={"command": ["ls"]}),)
    assert one({"type": "local_shell_call_output", "id": "c2", "output": "a b"}).results[0].call_id == "c2"
    spoken = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "hi", "annotations": []},
            {"type": "refusal", "refusal": "!"},
        ],
    }
    assert one(spoken).text == "hi!"


def test_calls_answered_by_the_provider_itself_wait_for_no_result() -> None:
    searched = {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            {"type": "text", "text": "found"},
        ],
    }
    assert one(searched) == Meaning(text="found", opens=("s1",), closes=("s1",))
    assert one({"type": "web_search_call", "id": "ws_1", "status": "completed"}) == Meaning()


def test_plain_calls_and_results() -> None:
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "name": "look", "arguments": {"at": "sky"}}],
    }
    assert one(call) == Meaning(calls=(CALL,))
    answer = Message(role="tool", content="x", extra={"tool_call_id": "c1", "is_error": True})
    assert meaning_of(answer).results == (ToolResult(call_id="c1", content="x", is_error=True),)


def test_blocks_are_understood_whatever_the_label() -> None:
    blocks = [
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
    ]
    for label in ("plain", "some_future_dialect"):
        assert meaning_of(Message(role="assistant", content=blocks, dialect=label)).calls == (CALL,)


def test_content_that_is_just_json_reads_as_json() -> None:
    assert meaning_of(Message(role="user", content={"lux": 5})).text == '{"lux": 5}'
    assert meaning_of(Message(role="user", content=None)).text == ""


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


def test_content_nested_deeper_than_python_goes_is_survived() -> None:
    message = Message(role="user", content=deep(100_000))
    assert meaning_of(message) == Meaning(text="")


kinds = st.sampled_from(
    [
        "text",
        "input_text",
        "output_text",
        "refusal",
        "image",
        "image_url",
        "input_image",
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "document",
        "search_result",
        "function_call",
        "function_call_output",
        "reasoning",
        "custom_tool_call",
        "computer_call_output",
        "computer_screenshot",
        "image_generation_call",
        "aforesaid_blob",
    ]
)
fields = st.sampled_from(
    [
        "text",
        "refusal",
        "source",
        "image_url",
        "url",
        "data",
        "media_type",
        "mimeType",
        "detail",
        "id",
        "name",
        "input",
        "tool_use_id",
        "content",
        "is_error",
        "call_id",
        "output",
        "arguments",
        "status",
        "result",
        "sha256",
        "block",
        "tool_calls",
        "tool_call_id",
        "function",
        "function_call",
        "audio",
        "transcript",
        "reasoning",
        "role",
    ]
)
almost_blocks = st.recursive(
    json_values,
    lambda inner: (
        st.builds(
            lambda kind, rest: {**rest, "type": kind},
            kinds | json_values,
            st.dictionaries(fields, inner, max_size=4),
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)
any_message = st.builds(
    lambda role, content, dialect, extra: Message(role=role, content=content, dialect=dialect, extra=extra),
    st.sampled_from(get_args(Role)),
    almost_blocks,
    st.sampled_from([*DIALECTS, "unheard_of"]),
    st.dictionaries(fields | st.just("type"), almost_blocks | kinds, max_size=4),
)
any_item = st.builds(
    lambda role, dialect, kind, extra: Message(
        role=role, content=UNSET, dialect=dialect, extra={"type": kind, **extra}
    ),
    st.sampled_from(get_args(Role)),
    st.sampled_from(sorted(DIALECTS)),
    kinds | json_values,
    st.dictionaries(fields, almost_blocks, max_size=4),
)


@examples(300)
@given(message=any_message | any_item)
def test_reading_the_meaning_never_raises(message: Message) -> None:
    meaning = meaning_of(message)
    assert isinstance(meaning.text, str)
    assert all(isinstance(call.id, str) and isinstance(call.name, str) for call in meaning.calls)
    assert all(isinstance(result.call_id, str) for result in meaning.results)


@examples(200)
@given(message=any_message | any_item)
def test_edits_and_images_never_raise_either(message: Message) -> None:
    without_images(message)
    without_thinking(message)
    ids = [result.call_id for result in meaning_of(message).results]
    for call_id in ids:
        with_result_text(message, call_id, "short")
    rest = without_results(message, ids)
    assert rest is None or not set(ids) & {result.call_id for result in meaning_of(rest).results}
    if "aforesaid_blob" not in repr(message):
        split, blobs = split_images(message)
        assert rehydrate(split, blobs) == message


def with_content_beside(content: object) -> Message:
    """Made by hand: a second content, among the fields that are not ours."""
    return Message(role="user", content=[], dialect="anthropic", extra={"content": content})


@examples(300)
@given(messages=st.lists(any_message | any_item, max_size=4), target=st.sampled_from(sorted(DIALECTS)))
@example(messages=[with_content_beside([None])], target="anthropic")
@example(messages=[with_content_beside(None)] * 2, target="anthropic")
@example(messages=[with_content_beside({"type": "text"})] * 2, target="anthropic")
def test_writing_and_judging_never_raise(messages: list[Message], target: str) -> None:
    """Garbage may come out as garbage, and is then found to be so; it is never a crash."""
    assert isinstance(problems(write(messages, target), target), list)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_empty_history_is_an_empty_request(dialect: str) -> None:
    assert write([], dialect).messages == []
