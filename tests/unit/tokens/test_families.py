"""Estimates differ by family of models, and count everything that a request contains."""

import math
from typing import Any

import pytest

from aforesaid.contracts import TokenCounter
from aforesaid.dialects import read
from aforesaid.tokens import Estimator, count, count_system, count_tools, counter_for, counter_named
from aforesaid.tokens.counters import tokens_reported
from aforesaid.tokens.families import GENERAL, NAMES, family_of, joined_digits
from aforesaid.tokens.messages import PER_IMAGE, PER_MEDIA
from aforesaid.tokens.tools import signatures_of

PIXEL = "iVBORw0KGgo" * 1000
GEMINI = Estimator(family=NAMES["gemini3"])
NAMED = {
    "claude-sonnet-4-5": "",
    "us.anthropic.claude-opus-4-6-v1:0": "",
    "claude-opus-4-7": "claude5",
    "anthropic/claude-sonnet-5": "claude5",
    "gemini-2.5-flash": "gemini2",
    "google/gemini-3-pro-preview": "gemini3",
    "us.amazon.nova-lite-v1:0": "nova",
    "mystery": "",
}


def cost(dialect: str, document: dict[str, Any], counter: Any = GEMINI) -> int:
    return sum(count(counter, message) for message in read(document, dialect=dialect))


@pytest.mark.parametrize("model", NAMED)
def test_a_model_has_the_costs_of_its_family(model: str) -> None:
    assert family_of(model).name == NAMED[model]
    counter = counter_for(model)
    assert isinstance(counter, Estimator)
    assert counter.family == counter.uncorrected.family == family_of(model)


@pytest.mark.parametrize("family", NAMES)
def test_a_counter_is_found_by_its_name(family: str) -> None:
    counter = Estimator(family=NAMES[family], correction=1.25)
    found = counter_named(counter.name)
    assert isinstance(found, Estimator)
    assert (found.family, found.correction, found.name) == (NAMES[family], 1.25, counter.name)


def test_equal_names_mean_equal_costs() -> None:
    assert len({family.name for family in (GENERAL, *NAMES.values())}) == len(NAMES) + 1
    assert len({Estimator(family=each).uncorrected.name for each in (GENERAL, *NAMES.values())}) == 5


def test_a_family_has_its_own_margin() -> None:
    text = "Could you find me a chicken dinner for tonight that is ready in half an hour?" * 10
    base = counter_for("gpt-4o").count_text(text)
    for family in (GENERAL, *NAMES.values()):
        assert Estimator(family=family).count_text(text) == pytest.approx(family.latin * base, abs=1)


@pytest.mark.parametrize(("text", "more"), [("", 0), ("7", 0), ("12", 1), ("123", 2), ("1234 56", 2 + 1)])
def test_gemini_counts_each_digit(text: str, more: int) -> None:
    assert joined_digits(text) == more


def test_digits_add_to_an_estimate_of_gemini_only() -> None:
    digits = "1234567890 " * 30
    base = counter_for("gpt-4o").count_text(digits)
    assert GEMINI.count_text(digits) >= 1.14 * base + 6 * 30 - 1
    assert Estimator().count_text(digits) <= 1.2 * base + 1


@pytest.mark.parametrize(
    ("dialect", "document", "least", "most"),
    [
        (
            "gemini",
            {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            PER_IMAGE,
            1,
        ),
        (
            "gemini",
            {"role": "user", "parts": [{"inline_data": {"mime_type": "audio/wav", "data": PIXEL}}]},
            PER_MEDIA,
            1,
        ),
        (
            "gemini",
            {"role": "user", "parts": [{"inlineData": {"mimeType": "application/pdf", "data": PIXEL}}]},
            PER_MEDIA,
            1,
        ),
        (
            "bedrock",
            {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": PIXEL}}}]},
            PER_IMAGE,
            1,
        ),
        (
            "bedrock",
            {
                "role": "user",
                "content": [
                    {
                        "toolResult": {
                            "toolUseId": "t",
                            "content": [{"image": {"format": "png", "source": {"bytes": PIXEL}}}],
                        }
                    }
                ],
            },
            PER_IMAGE,
            10,
        ),
        ("bedrock", {"role": "user", "content": [{"video": {"format": "mp4", "source": {}}}]}, PER_MEDIA, 1),
        (
            "bedrock",
            {
                "role": "assistant",
                "content": [{"reasoningContent": {"reasoningText": {"text": "so " * 100}}}],
            },
            100,
            20,
        ),
        ("gemini", {"role": "model", "parts": [{"text": "so " * 100, "thought": True}]}, 100, 20),
        ("bedrock", {"role": "user", "content": [{"newBlock": {"words": "so " * 100}}]}, 100, 30),
        ("bedrock", {"role": "user", "content": [{"guardContent": {"image": "so " * 100}}]}, 100, 30),
    ],
)
def test_blocks_named_by_a_key_cost_what_others_cost(
    dialect: str, document: dict[str, Any], least: int, most: int
) -> None:
    counted = cost(dialect, document)
    assert least <= counted <= least * 1.2 + most


def test_a_thought_signature_costs_a_fifth_of_its_characters() -> None:
    call: dict[str, Any] = {"functionCall": {"name": "rain", "args": {}}}
    plain = cost("gemini", {"role": "model", "parts": [call]})
    signed = cost("gemini", {"role": "model", "parts": [{**call, "thoughtSignature": "c2ln" * 100}]})
    assert signed - plain == 84


def test_a_signature_costs_nothing_where_the_family_does_not_count_it() -> None:
    call: dict[str, Any] = {"functionCall": {"name": "rain", "args": {}}}
    signed = {**call, "thoughtSignature": "c2ln" * 100}
    costs = [cost("gemini", {"role": "model", "parts": [each]}, Estimator()) for each in (call, signed)]
    assert costs[0] == costs[1]


def test_a_system_prompt_has_the_overhead_of_the_family() -> None:
    assert count_system(GEMINI, "Be brief.") == 1 + GEMINI.count_text("Be brief.")
    assert count_system(Estimator(), "Be brief.") == 2 + Estimator().count_text("Be brief.")


def tool(properties: dict[str, Any]) -> dict[str, Any]:
    return {"name": "rain", "input_schema": {"type": "object", "properties": properties}}


def test_fields_references_and_force_add_to_the_costs_of_tools() -> None:
    gemini, openai = counter_for("gemini-2.5-pro"), counter_for("gpt-4o")

    def added(counter: TokenCounter, model: str, properties: dict[str, Any], **options: Any) -> int:
        tools = [tool(properties)]
        return count_tools(counter, tools, model=model, **options) - counter.count_text(signatures_of(tools))

    nothing = added(gemini, "gemini-2.5-pro", {})
    nested = {"a": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "number"}}}}
    assert added(gemini, "gemini-2.5-pro", nested) - nothing == 3 * 10
    choice = {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    assert added(openai, "gpt-4o", choice) - added(openai, "gpt-4o", {"a": {"type": "string"}}) == 16
    assert added(openai, "gpt-4o", {}, forced=True) - added(openai, "gpt-4o", {}) == 10


def test_each_function_of_a_tool_of_gemini_counts() -> None:
    one = {"functionDeclarations": [{"name": "rain"}]}
    two = {"functionDeclarations": [{"name": "rain"}, {"name": "snow"}]}
    apart = [one, {"functionDeclarations": [{"name": "snow"}]}]
    assert count_tools(GEMINI, [two], model="gemini-3") == count_tools(GEMINI, apart, model="gemini-3")


@pytest.mark.parametrize(
    "usage",
    [
        {"promptTokenCount": 120, "cachedContentTokenCount": 50},
        {"prompt_token_count": 120},
        {"inputTokens": 20, "cacheReadInputTokens": 60, "cacheWriteInputTokens": 40},
    ],
)
def test_the_usage_of_gemini_and_bedrock_is_read(usage: dict[str, int]) -> None:
    assert tokens_reported(usage) == 120


def test_descriptions_of_referenced_types_and_their_references_are_counted() -> None:
    item = {"type": "object", "description": "The deepest level.", "properties": {"name": {"type": "string"}}}
    schema = {"type": "object", "properties": {"one": {"$ref": "#/$defs/Item"}}, "$defs": {"Item": item}}
    tool = {"functionDeclarations": [{"name": "make", "parametersJsonSchema": schema}]}
    assert "The deepest level." in signatures_of([tool])
    plain = {**schema, "properties": {"one": item}}
    inlined = {"functionDeclarations": [{"name": "make", "parametersJsonSchema": plain}]}
    given, without = (count_tools(GEMINI, [each], model="gemini-2.5-flash") for each in (tool, inlined))
    assert given > without, "Gemini counts references and what they refer to"


def test_a_text_in_capitals_costs_more_and_an_abbreviation_does_not() -> None:
    claude = counter_for("claude-sonnet-4-5")
    base = counter_for("gpt-4o")
    capitals = "ANSWER WITH ONE NUMBER"
    assert claude.count_text(capitals) == math.ceil(1.2 * base.count_text(capitals) + 0.75 * 4)
    abbreviated = "The JSON of the API"
    assert claude.count_text(abbreviated) == math.ceil(1.2 * base.count_text(abbreviated))


@pytest.mark.parametrize("model", ["claude-3-5-sonnet-latest", "claude-sonnet-4-5", "claude-opus-5"])
def test_each_reference_in_a_schema_for_claude_costs_more(model: str) -> None:
    field: dict[str, Any] = {"$ref": "#/$defs/place"}
    place = {"type": "string"}
    referring = {"type": "object", "properties": {"at": field}, "$defs": {"place": place}}
    plain = {"type": "object", "properties": {"at": place}}
    counter = counter_for(model)
    costs = [
        count_tools(counter, [{"name": "look", "input_schema": schema}], model=model)
        for schema in (referring, plain)
    ]
    assert costs[0] - costs[1] == 16
