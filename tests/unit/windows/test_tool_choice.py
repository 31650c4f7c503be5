"""The choice of tools is written in the form of each provider, and refused where it would be."""

from typing import Any

import pytest

from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.testing.histories import entries_of
from aforesaid.testing.validity import problems
from aforesaid.tokens import counter_for
from aforesaid.windows import WindowPolicy, build_window
from aforesaid.windows.request import RequestParts

SCHEMA = {"type": "object", "properties": {}}
CHAT = {"type": "function", "function": {"name": "rain", "parameters": SCHEMA}}
TOOLS: dict[str, Any] = {
    "anthropic": {"name": "rain", "input_schema": SCHEMA},
    "openai_chat": CHAT,
    "mistral": CHAT,
    "vllm": CHAT,
    "azure": CHAT,
    "openrouter": CHAT,
    "openai_responses": {"type": "function", "name": "rain", "parameters": SCHEMA},
    "gemini": {"functionDeclarations": [{"name": "rain"}]},
    "bedrock": {"toolSpec": {"name": "rain", "inputSchema": {"json": SCHEMA}}},
}
CONTEXT = build_window(
    entries_of(read({"role": "user", "content": "Is it raining?"}, dialect="plain")),
    WindowPolicy(for_request=True),
    cost=lambda _: 1,
)
EXPECTED: dict[str, dict[str, Any]] = {
    "anthropic": {"any": {"type": "any"}, "none": {"type": "none"}, "rain": {"type": "tool", "name": "rain"}},
    "openai_chat": {
        "any": "required",
        "none": "none",
        "rain": {"type": "function", "function": {"name": "rain"}},
    },
    "openai_responses": {
        "any": "required",
        "none": "none",
        "rain": {"type": "function", "name": "rain"},
    },
}


def request(dialect: str, choice: str | None, **options: Any) -> dict[str, Any]:
    parts = RequestParts(tools=[TOOLS[dialect]], tool_choice=choice, **options)
    return parts.arguments(CONTEXT, dialect)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", TOOLS)
@pytest.mark.parametrize("choice", ["auto", "any", "rain"])
def test_a_request_with_a_choice_is_valid(dialect: str, choice: str) -> None:
    made = request(dialect, choice)
    assert problems(made, dialect) == []
    assert made != request(dialect, None)


@pytest.mark.parametrize("dialect", EXPECTED)
@pytest.mark.parametrize("choice", ["any", "none", "rain"])
def test_the_choice_has_the_form_of_the_provider(dialect: str, choice: str) -> None:
    assert request(dialect, choice)["tool_choice"] == EXPECTED[dialect][choice]


def test_gemini_and_bedrock_have_the_choice_in_their_configuration() -> None:
    calling = request("gemini", "rain")["config"]["tool_config"]["function_calling_config"]
    assert calling == {"mode": "ANY", "allowed_function_names": ["rain"]}
    assert request("gemini", "none")["config"]["tool_config"] == {"function_calling_config": {"mode": "NONE"}}
    assert request("bedrock", "rain")["toolConfig"]["toolChoice"] == {"tool": {"name": "rain"}}
    assert request("bedrock", "any")["toolConfig"]["toolChoice"] == {"any": {}}


@pytest.mark.parametrize(
    ("tools", "choice"), [((), "auto"), ((CHAT,), "snow"), ((CHAT,), ""), ((CHAT,), "required")]
)
def test_a_choice_that_every_provider_refuses_is_an_error(tools: Any, choice: str) -> None:
    with pytest.raises(InvalidInput, match="tool_choice"):
        RequestParts(tools=tools, tool_choice=choice)


def test_a_choice_that_a_provider_does_not_have_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="tool_choice"):
        request("bedrock", "none")
    with pytest.raises(InvalidInput, match="ollama has no tool_choice"):
        RequestParts(tools=[CHAT], tool_choice="any").arguments(CONTEXT, "ollama")


def test_a_forced_call_is_in_the_budget() -> None:
    counter = counter_for("claude-sonnet-4-5")

    def reserved(choice: str | None) -> int:
        parts = RequestParts(tools=[TOOLS["anthropic"]], tool_choice=choice, model="claude-sonnet-4-5")
        return parts.reserved_in(WindowPolicy(max_tokens=8000), counter, "anthropic").tools_tokens

    assert reserved("auto") == reserved("none") == reserved(None)
    assert reserved("any") == reserved("rain") == reserved(None) + 120


def test_what_a_provider_adds_to_every_request_is_in_the_budget() -> None:
    parts = RequestParts(model="claude-sonnet-4-5")
    policy = parts.reserved_in(WindowPolicy(max_tokens=8000), counter_for("claude-sonnet-4-5"), "anthropic")
    assert policy.tools_tokens == 4
