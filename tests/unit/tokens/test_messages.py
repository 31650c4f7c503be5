"""What a request costs: everything in it."""

from typing import Any

import pytest

from aforesaid.dialects.parse import Meaning, ToolCall, ToolResult
from aforesaid.errors import InvalidInput
from aforesaid.model.messages import Message
from aforesaid.tokens import (
    ExactCounter,
    count_content,
    count_meaning,
    count_message,
    count_request,
    count_system,
    count_tools,
)
from aforesaid.tokens.messages import (
    PER_CALL,
    PER_IMAGE,
    PER_MEDIA,
    PER_MESSAGE,
    PER_SMALL_IMAGE,
)
from aforesaid.tokens.tools import signatures_of

COUNTER = ExactCounter("o200k_base")
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 10_000}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "forecast",
        "description": "What the weather will be",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}


def cost(text: str) -> int:
    return COUNTER.count_text(text)


def beside_text(**fields: Any) -> int:
    """What a message costs beyond a message of the same role that says nothing."""
    message = Message(**{"role": "assistant", "content": "", **fields})
    return count_message(COUNTER, message, Meaning()) - count_meaning(COUNTER, message.role, Meaning())


def test_a_message_costs_three_its_role_and_its_text() -> None:
    meaning = Meaning(text="Good morning!")
    assert count_meaning(COUNTER, "user", meaning) == 3 + cost("user") + cost("Good morning!")


def test_a_name_costs_one_more_than_itself() -> None:
    assert beside_text(role="user", extra={"name": "example_user"}) == 1 + cost("example_user")


def test_a_request_costs_three_beside_its_messages() -> None:
    """The published rule: three tokens begin the answer."""
    said = [(Message(role="user", content=text), Meaning(text=text)) for text in ("Hello", "Are you there?")]
    each = [count_message(COUNTER, message, meaning) for message, meaning in said]
    assert count_request(COUNTER, said) == 3 + sum(each)
    assert count_request(COUNTER, []) == 3


@pytest.mark.parametrize("arguments", ['{"place":"Oslo"}', {"place": "Oslo"}])
def test_a_call_costs_its_name_and_arguments_as_text_or_as_an_object(arguments: Any) -> None:
    meaning = Meaning(calls=(ToolCall(id="call_1", name="forecast", arguments=arguments),))
    expected = PER_CALL + cost("forecast") + cost('{"place":"Oslo"}')
    assert count_meaning(COUNTER, "assistant", meaning) == PER_MESSAGE + cost("assistant") + expected


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("Sunny, 21 °C", ["Sunny, 21 °C"]),
        (None, []),
        ([], []),
        ({"sky": ["sunny", 21]}, ['{"sky":["sunny",21]}']),
        ([1, 2, {"a": None}], ['[1,2,{"a":null}]']),
        ([{"type": "text", "text": "Sunny"}, "and warm"], ["Sunny", "and warm"]),
        ([{"type": "text", "text": "Look:"}, PICTURE], ["Look:", PER_IMAGE]),
        ({"type": "text", "text": "Sunny"}, ["Sunny"]),
        ([{"type": "text", "text": 7}], ['{"type":"text","text":7}']),
        ("\ud83d", ["\ud83d"]),
        ({"half": "\ud83d"}, ['{"half":"\ud83d"}']),
    ],
)
def test_a_result_costs_its_content(content: Any, parts: list[str | int]) -> None:
    expected = sum(cost(part) if isinstance(part, str) else part for part in parts)
    meaning = Meaning(results=(ToolResult(call_id="call_1", content=content),))
    assert count_content(COUNTER, content) == expected
    assert count_meaning(COUNTER, "tool", meaning) == PER_MESSAGE + cost("tool") + PER_CALL + expected


def test_a_tool_message_costs_its_result_once() -> None:
    content = [{"type": "text", "text": "Look:"}, PICTURE]
    message = Message(role="tool", content=content, extra={"tool_call_id": "call_1"})
    meaning = Meaning(results=(ToolResult(call_id="call_1", content=content),))
    assert count_message(COUNTER, message, meaning) == count_meaning(COUNTER, "tool", meaning)


def test_blocks_that_the_meaning_holds_are_counted_once() -> None:
    content = [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "a", "name": "forecast", "input": {}},
        {"type": "tool_result", "tool_use_id": "a", "content": "Sunny"},
    ]
    assert beside_text(content=content) == 0


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (PICTURE, PER_IMAGE),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, PER_IMAGE),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
            PER_SMALL_IMAGE,
        ),
        ({"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}, PER_SMALL_IMAGE),
        ({"type": "input_audio", "input_audio": {"data": "UklG" * 10_000, "format": "wav"}}, PER_MEDIA),
        ({"type": "document", "source": {"type": "base64", "data": "JVBE" * 10_000}}, PER_MEDIA),
    ],
)
def test_a_picture_or_a_file_costs_the_same_however_large(block: dict[str, Any], expected: int) -> None:
    assert beside_text(role="user", content=[block]) == expected


def test_a_document_of_words_costs_its_words() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "word " * 5_000}}
    assert 5_000 <= beside_text(role="user", content=[document]) <= 5_050


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"type": "thinking", "thinking": "It may rain.", "signature": "EqQB" * 100}]},
        {"extra": {"reasoning_content": "It may rain."}},
        {"extra": {"reasoning": "It may rain.", "reasoning_content": "It may rain."}},
        {"extra": {"reasoning_details": [{"type": "reasoning.text", "text": "It may rain."}]}},
    ],
)
def test_thinking_costs_its_words_once_and_no_signature(fields: dict[str, Any]) -> None:
    assert beside_text(**fields) == cost("It may rain.")


def test_sealed_thinking_costs_a_token_for_four_characters() -> None:
    assert beside_text(content=[{"type": "redacted_thinking", "data": "x" * 402}]) == 101


@pytest.mark.parametrize(("sealed", "tokens"), [("x" * 1100, 80), ("x" * 700, 0), ("x", 0)])
def test_an_item_of_sealed_thinking_costs_what_is_beyond_its_frame(sealed: str, tokens: int) -> None:
    summary = [{"type": "summary_text", "text": "It may rain."}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": sealed}
    message = Message(role="assistant", extra=item)
    fixed = count_meaning(COUNTER, "assistant", Meaning())
    assert count_message(COUNTER, message, Meaning(thinking=True)) == fixed + tokens


def test_an_item_of_thinking_that_is_not_sealed_costs_its_summary() -> None:
    summary = [{"type": "summary_text", "text": "It may rain."}]
    message = Message(role="assistant", extra={"type": "reasoning", "id": "rs_1", "summary": summary})
    fixed = count_meaning(COUNTER, "assistant", Meaning())
    assert count_message(COUNTER, message, Meaning(thinking=True)) == fixed + cost("It may rain.")


def test_an_item_that_is_a_call_is_counted_once() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "forecast", "arguments": "{}"}
    meaning = Meaning(calls=(ToolCall(id="c", name="forecast", arguments="{}"),))
    message = Message(role="assistant", extra=item)
    assert count_message(COUNTER, message, meaning) == count_meaning(COUNTER, "assistant", meaning)


def test_a_block_of_one_provider_costs_its_json() -> None:
    block = {"type": "web_search_call", "query": "weather"}
    assert beside_text(content=[block]) == cost('{"type":"web_search_call","query":"weather"}')


def test_pictures_inside_unknown_blocks_are_pictures() -> None:
    block = {"type": "mcp_result", "content": [PICTURE]}
    assert beside_text(content=[block]) == cost('{"type":"mcp_result"}') + PER_IMAGE


def test_a_system_prompt_is_a_message() -> None:
    expected = PER_MESSAGE + cost("system") + cost("Be brief.")
    assert count_system(COUNTER, "Be brief.") == expected
    assert count_system(COUNTER, [{"type": "text", "text": "Be brief."}]) == expected
    assert count_system(COUNTER, None) == count_system(COUNTER, "") == 0


def test_tools_cost_their_signatures_and_what_the_provider_adds() -> None:
    one = count_tools(COUNTER, [WEATHER])
    assert one > cost("forecast") + cost("What the weather will be")
    assert one < count_tools(COUNTER, [WEATHER, WEATHER]) < 2 * one
    assert count_tools(COUNTER, []) == 0


@pytest.mark.parametrize(
    ("model", "least"),
    [("claude-sonnet-4-5", 500), ("us.amazon.nova-lite-v1:0", 800), ("gpt-5-mini", 80), ("gpt-4o", 1)],
)
def test_a_family_of_models_adds_its_own_instructions(model: str, least: int) -> None:
    counted = count_tools(COUNTER, [WEATHER], model=model, dialect="openai_chat")
    assert counted - COUNTER.count_text(signatures_of([WEATHER])) >= least


def test_definitions_of_every_dialect_have_the_same_signature() -> None:
    name, description = "forecast", "What the weather will be"
    schema = {
        "type": "object",
        "properties": {"day": {"type": "string", "enum": ["today", "later"]}, "place": {"$ref": "#/$defs/p"}},
        "required": ["day"],
        "$defs": {"p": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    plain = {"name": name, "description": description, "parameters": schema}
    forms: list[dict[str, Any]] = [
        {"type": "function", "function": plain},
        {"type": "function", **plain},
        {"name": name, "description": description, "input_schema": schema},
        {"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}},
        {"functionDeclarations": [{"name": name, "description": description, "parameters": schema}]},
    ]
    signatures = {signatures_of([form]) for form in forms}
    assert len(signatures) == 1
    assert 'day: "today" | "later",\nplace?: {\ncity?: string,\n},' in signatures.pop()
    assert '{"type":"web_search"}' in signatures_of([{"type": "web_search"}])


def test_tools_that_are_not_json_are_refused() -> None:
    with pytest.raises(InvalidInput, match="only JSON can be counted"):
        count_tools(COUNTER, [{"name": object()}])
