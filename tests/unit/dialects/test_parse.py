"""What goes in: dicts, lists, whole responses; guessed dialects; and what is refused, in which words."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import UNSET

from aforesaid.dialects import read, write
from aforesaid.errors import InvalidInput, InvalidMessage
from aforesaid.model.messages import Message


def only(given: Any, dialect: str | None = None) -> Message:
    (message,) = read(given, dialect=dialect)
    return message


@pytest.mark.parametrize(
    ("document", "dialect"),
    [
        ({"role": "user", "content": "hi"}, "plain"),
        ({"role": "system", "content": "be brief"}, "plain"),
        ({"role": "user", "content": {"lux": 5}}, "plain"),
        ({"role": "user", "content": ["not", "blocks"]}, "plain"),
        ({"role": "tool", "content": "22 °C"}, "plain"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "f"}]}, "plain"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "image", "source": {}}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}, "anthropic"),
        ({"role": "developer", "content": "be brief"}, "openai_chat"),
        ({"role": "assistant", "content": "x", "refusal": None}, "openai_chat"),
        ({"role": "tool", "tool_call_id": "a", "content": "x"}, "openai_chat"),
        ({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]}, "openai_chat"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}, "openai_chat"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}, "openai_chat"),
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, "openai_responses"),
        ({"type": "message", "role": "user", "content": "hi"}, "openai_responses"),
        ({"type": "hologram", "beam": 1}, "openai_responses"),
    ],
)
def test_the_dialect_is_guessed(document: dict[str, Any], dialect: str) -> None:
    assert only(document).dialect == dialect


def test_messages_that_could_be_anybodys_follow_those_that_show_a_dialect() -> None:
    messages = read(
        [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        ]
    )
    assert [message.dialect for message in messages] == ["openai_responses"] * 3


def test_a_role_that_the_others_dialect_lacks_is_read_on_its_own() -> None:
    blocks = [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]
    messages = read(
        [
            {"role": "assistant", "content": blocks},
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            {"role": "tool", "content": "22 °C"},
            {"role": "developer", "content": "be brief"},
        ]
    )
    assert [message.dialect for message in messages] == ["anthropic", "openai_chat", "plain", "openai_chat"]


def test_unknown_fields_are_kept_apart_from_role_and_content() -> None:
    message = only(
        {"role": "user", "content": [{"type": "text", "text": "hi", "y": 2}], "name": "erin", "x": [1]}
    )
    assert (message.role, message.extra) == ("user", {"name": "erin", "x": [1]})
    assert message.content == [{"type": "text", "text": "hi", "y": 2}]


def test_a_developer_is_our_system_and_stays_a_developer_for_openai() -> None:
    message = only({"role": "developer", "content": "be brief"})
    assert (message.role, message.extra) == ("system", {"role": "developer"})
    for dialect in ("openai_chat", "openai_responses"):
        assert write([message], dialect).messages == [{"role": "developer", "content": "be brief"}]


def test_a_message_of_calls_alone_has_no_content() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = only({"role": "assistant", "tool_calls": calls})
    assert message.content is UNSET
    assert write([message], "openai_chat").messages == [{"role": "assistant", "tool_calls": calls}]


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}, "assistant"),
        ({"type": "function_call_output", "call_id": "a", "output": "x"}, "tool"),
        ({"type": "reasoning", "id": "rs", "summary": [], "content": []}, "assistant"),
        ({"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}, "tool"),
        ({"type": "hologram", "beam": 1}, "assistant"),
        ({"type": "item_reference", "id": "msg_1"}, "assistant"),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "system"),
    ],
)
def test_items_without_content_are_kept_whole(item: dict[str, Any], role: str) -> None:
    message = only(item, "openai_responses")
    assert (message.role, message.content, message.extra) == (role, UNSET, item)
    assert message.dialect == "openai_responses"


def test_a_reference_without_a_type_is_an_item() -> None:
    assert only({"id": "msg_1"}, "openai_responses").extra == {"id": "msg_1"}


def test_whole_responses_as_dicts() -> None:
    anthropic = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    assert write(read(anthropic), "anthropic").messages[1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    ]
    chat = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "hi"}}]}
    assert (only(chat).dialect, only(chat).content) == ("openai_chat", "hi")
    output = [{"type": "reasoning", "id": "rs", "summary": []}, {"type": "function_call", "call_id": "a",
              "name": "f", "arguments": "{}"}]  # fmt: skip
    messages = read({"object": "response", "output": output})
    assert [message.extra for message in messages] == output


def test_a_list_may_mix_messages_and_responses() -> None:
    chat = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "hi"}}]}
    assert [message.role for message in read([{"role": "user", "content": "x"}, chat])] == [
        "user",
        "assistant",
    ]


def test_our_own_messages_pass_through() -> None:
    message = Message(role="user", content="hi", tags=("important",))
    assert read([message])[0] is message


def test_the_documented_form_keeps_its_labels() -> None:
    original = Message(
        role="user",
        content=[{"type": "text", "text": "hi"}],
        timestamp=datetime(2026, 3, 1, tzinfo=UTC),
        tags=("important",),
        dialect="anthropic",
    )
    assert only(original.to_dict()) == original
    assert only({"role": "user", "content": "hi", "timestamp": "2026-03-01T00:00:00+00:00"}).timestamp


def test_an_item_survives_the_documented_form() -> None:
    item = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    assert only(only(item).to_dict()) == only(item)


def test_a_named_dialect_takes_every_field_verbatim() -> None:
    document = {"role": "user", "content": "hi", "timestamp": "yesterday", "tags": 5}
    message = only(document, "openai_chat")
    assert message.timestamp is None
    assert write([message], "openai_chat").messages == [document]


def test_what_was_handed_in_may_change_afterwards() -> None:
    document: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    message = only(document)
    document["content"][0]["text"] = "changed"
    assert message.content == [{"type": "text", "text": "hi"}]


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("given", "dialect", "words"),
    [
        ("hi", None, "must be an object with a role; got 'hi'"),
        (5, None, "must be an object"),
        (None, None, "must be an object"),
        ({}, None, "needs a role"),
        ({"content": "hi"}, None, "needs a role"),
        ({"type": "text", "text": "hi"}, None, "a text block is content, not a message"),
        ({"role": "user"}, None, "needs content"),
        ({"role": "robot", "content": "hi"}, None, "role must be one of user, assistant, system, tool"),
        ({"role": ["user"], "content": "hi"}, None, "role must be one of"),
        (
            {"role": "tool", "content": "x"},
            "anthropic",
            "role must be one of user, assistant, system in dialect",
        ),
        ({"role": "user"}, "anthropic", "needs content"),
        ({"role": "user", "content": 5}, "anthropic", "text or a list of blocks"),
        ({"role": "user", "content": ["hi"]}, "anthropic", "block 0 must be an object with a type"),
        (
            {"role": "user", "content": [{"text": "hi"}]},
            "openai_chat",
            "block 0 must be an object with a type",
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]},
            None,
            "tool_use block needs id",
        ),
        ({"role": "user", "content": [{"type": "tool_result"}]}, None, "tool_result block needs tool_use_id"),
        ({"role": "tool", "content": "x"}, "openai_chat", "a tool message needs tool_call_id"),
        ({"role": "assistant", "tool_calls": 5}, "openai_chat", "tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": [5]}, "openai_chat", "a tool call must be an object"),
        (
            {"role": "assistant", "tool_calls": [{"id": 5}]},
            "openai_chat",
            "a tool call needs id, as text; got 5",
        ),
        ({"role": "assistant"}, "openai_chat", "needs content"),
        ({"type": "function_call", "call_id": "a", "name": "f"}, None, "function_call item needs arguments"),
        ({"type": "function_call_output", "output": "x"}, None, "needs call_id, as text; it has none"),
        ({"type": "message", "content": "x"}, None, "needs a role"),
        ({"x": 1}, "openai_responses", "an item needs"),
        ({"role": "tool", "content": "x"}, "openai_responses", "role must be one of"),
        ({"choices": []}, None, "needs a choice"),
        ({"object": "response", "output": ["x"]}, None, "must be an object"),
        ({"role": "user", "content": float("nan")}, None, "JSON has no form for"),
        ({"role": "user", "content": {1: 2}}, None, "JSON keys are text"),
        ({"role": "user", "content": b"bytes"}, None, "not JSON"),
        ({"role": "user", "content": deep(100_000)}, None, "nested too deep"),
    ],
)
def test_what_is_no_message_is_refused_in_words(given: Any, dialect: str | None, words: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read(given, dialect=dialect)
    assert words in str(caught.value)


def test_an_unknown_dialect_is_refused() -> None:
    message = Message(role="user", content="hi")
    for attempt in (lambda: read([], dialect="klingon"), lambda: write([message], "klingon")):
        with pytest.raises(InvalidInput, match="dialect must be one of plain, anthropic, openai_chat"):
            attempt()
