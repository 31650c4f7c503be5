"""Call ids are unique within a request, also where a model counts from one in every answer."""

from recollect.dialects import read, write
from recollect.testing.validity import problems


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


def test_names_stay_while_the_conversation_grows() -> None:
    messages = read([*turn("one"), *turn("two"), *turn("three")], dialect="openai_chat")
    earlier = write(messages[:8], "openai_chat").messages
    assert write(messages, "openai_chat").messages[:8] == earlier


def test_ids_that_differ_are_left_alone() -> None:
    messages = read(turn("one"), dialect="openai_chat")
    assert write(messages, "openai_chat").messages == turn("one")
