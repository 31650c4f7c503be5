"""Call ids are unique within a request, also where a model counts from one in every answer."""

import json

import pytest

from aforesaid.dialects import read, write
from aforesaid.testing.validity import problems


def turn(text: str) -> list[dict[str, object]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": f"found {text}"},
        {"role": "assistant", "content": "done"},
    ]


def test_an_id_that_is_used_again_gets_a_name_of_its_own() -> None:
    messages = read([*turn("one"), *turn("two"), *turn("three")], dialect="openai_chat")
    for dialect in ("plain", "anthropic", "openai_chat", "openai_responses"):
        assert problems(write(messages, dialect), dialect) == []
    results = [m for m in write(messages, "openai_chat").messages if m["role"] == "tool"]
    assert [(m["tool_call_id"], m["content"]) for m in results] == [
        ("call_1", "found one"),
        ("call_1_2", "found two"),
        ("call_1_3", "found three"),
    ]


def parallel(call_id: str) -> list[dict[str, object]]:
    """Two calls of one answer with the same id, and their results in the same order."""
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "lights", "arguments": f'{{"room": "{room}"}}'},
        }
        for room in ("hall", "attic")
    ]
    return [
        {"role": "user", "content": "lights?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "content": "hall is on"},
        {"role": "tool", "tool_call_id": call_id, "content": "attic is on"},
    ]


@pytest.mark.parametrize("call_id", ["call_1", ""])
def test_calls_of_one_answer_with_one_id_get_names_of_their_own(call_id: str) -> None:
    messages = read([*parallel(call_id), *parallel(call_id)], dialect="openai_chat")
    for dialect in ("plain", "anthropic", "openai_chat", "openai_responses"):
        assert problems(write(messages, dialect), dialect) == []
    written = write(messages, "openai_chat").messages
    asked = {
        call["id"]: call["function"]["arguments"]
        for message in written
        for call in message.get("tool_calls", ())
    }
    answered = [(m["tool_call_id"], m["content"]) for m in written if m["role"] == "tool"]
    assert len(asked) == 4
    assert [asked[name] for name, _ in answered] == ['{"room": "hall"}', '{"room": "attic"}'] * 2


def test_items_of_one_answer_with_one_id_get_names_of_their_own() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "lights", "arguments": "{}"}
    results = [{"type": "function_call_output", "call_id": "c", "output": room} for room in ("hall", "attic")]
    given = [{"role": "user", "content": "lights?"}, call, call, *results]
    written = write(read(given, dialect="openai_responses"), "openai_responses")
    assert problems(written, "openai_responses") == []
    assert [item["call_id"] for item in written.messages[1:]] == ["c", "c_2", "c", "c_2"]


def test_a_single_call_without_an_id_gets_one() -> None:
    given = turn("one")
    messages = read(json.loads(json.dumps(given).replace("call_1", "")), dialect="openai_chat")
    assert problems(write(messages, "openai_chat"), "openai_chat") == []


def test_names_stay_while_the_conversation_grows() -> None:
    messages = read([*turn("one"), *turn("two"), *turn("three")], dialect="openai_chat")
    earlier = write(messages[:8], "openai_chat").messages
    assert write(messages, "openai_chat").messages[:8] == earlier


def test_ids_that_differ_are_left_alone() -> None:
    messages = read(turn("one"), dialect="openai_chat")
    assert write(messages, "openai_chat").messages == turn("one")
