"""Messages and turns as values."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from aforesaid.errors import InvalidId, InvalidInput, InvalidMessage
from aforesaid.model.messages import Message, Turn, turns_of
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.testing.machine import messages

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_messages_are_equal_by_content_and_cannot_change() -> None:
    first, second = (Message(role="user", content=["x"], timestamp=NOON) for _ in range(2))
    assert first == second
    assert first != Message(role="user", content=["y"], timestamp=NOON)
    with pytest.raises(AttributeError):
        first.role = "tool"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Message("user", "x")  # type: ignore[call-arg]


def test_token_counts_are_no_part_of_equality() -> None:
    assert Message(role="user", content="x", tokens={"o200k_base": 1}) == Message(role="user", content="x")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"role": "robot", "content": ""}, r"role must be one of user, assistant, system, tool; got 'robot'"),
        ({"role": "user", "content": "", "content_type": "video"}, "content_type must be one of text, audio"),
        (
            {"role": "user", "content": "", "timestamp": datetime(2026, 1, 1)},
            "timestamp must carry a time zone",
        ),
        ({"role": "user", "content": "", "timestamp": "soon"}, "timestamp must be"),
        ({"role": "user", "content": "", "message_id": ""}, "message_id must not be empty"),
        ({"role": "user", "content": "", "agent_name": "a\0b"}, "agent_name"),
        ({"role": "user", "content": "", "tags": ("ok", 5)}, "tags"),
        ({"role": "user"}, "needs content"),
    ],
)
def test_what_is_no_message_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        Message(**fields)


def test_errors_are_value_errors_too() -> None:
    assert issubclass(InvalidId, ValueError)
    assert issubclass(InvalidMessage, ValueError)


@given(message=messages)
def test_the_wire_form_comes_back_equal(message: Message) -> None:
    assert decode_message(encode_message(message)) == message
    assert decode_message(encode_message(message).decode()) == message


@given(message=messages)
def test_the_documented_form_comes_back_equal(message: Message) -> None:
    documented = {
        "role",
        "content",
        "timestamp",
        "content_type",
        "agent_name",
        "message_id",
        "tags",
        "dialect",
    }
    plain = message.with_(extra={key: value for key, value in message.extra.items() if key not in documented})
    assert Message.from_dict(plain.to_dict()) == plain


@given(message=messages, without=st.booleans())
def test_another_dialects_fields_come_back_whatever_their_names(message: Message, without: bool) -> None:
    extra = {"role": "developer", "content": "of an item", "extra": 1, **message.extra}
    changes: dict[str, Any] = {"dialect": "openai_responses", "extra": extra}
    if without:
        changes["content"] = UNSET
    item = message.with_(**changes)
    assert Message.from_dict(item.to_dict()) == item


@pytest.mark.parametrize("document", [{}, {"role": None}])
def test_a_document_without_a_role_is_no_message(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="needs a role"):
        Message.from_dict({**document, "content": "hi", "message_id": "m-1"})


def anthropic_result(call_id: str) -> Message:
    return Message(role="user", content=[{"type": "tool_result", "tool_use_id": call_id, "content": "ok"}])


def test_a_turn_runs_from_the_question_to_the_answer() -> None:
    question, answer = Message(role="user", content="q"), Message(role="assistant", content="a")
    call = Message(role="assistant", content=[{"type": "tool_use", "id": "1", "name": "n", "input": {}}])
    result = Message(role="tool", content="r")
    log = [
        Message(role="system", content="s"),
        question,
        call,
        anthropic_result("1"),
        answer,
        question,
        call,
        result,
        answer,
        question,
    ]
    turns = turns_of(log)
    assert [len(turn) for turn in turns] == [1, 4, 4, 1]
    assert [message for turn in turns for message in turn.messages] == log
    assert turns_of([]) == []
    assert turns[3] == Turn(messages=(question,))
