"""Rules about a whole request: its messages, tools, and choice of tools."""

from typing import Any

import pytest

from aforesaid.dialects import read, write
from aforesaid.testing.validity import problems

ASKED: list[Any] = [{"role": "user", "content": "Is it raining?"}]
CONTENTS: list[Any] = [{"role": "user", "parts": [{"text": "Is it raining?"}]}]
BLOCKS: list[Any] = [{"role": "user", "content": [{"text": "Is it raining?"}]}]
CALLED: list[Any] = [
    *BLOCKS,
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "rain", "input": {}}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "yes"}]}}]},
]
SCHEMA = {"type": "object", "properties": {}}
RAIN = {"name": "rain", "input_schema": SCHEMA}
CHAT = {"type": "function", "function": {"name": "rain", "parameters": SCHEMA}}
ITEM = {"type": "function", "name": "rain", "parameters": SCHEMA}
DECLARED = {"functionDeclarations": [{"name": "rain"}]}
SPEC = {"toolSpec": {"name": "rain", "inputSchema": {"json": SCHEMA}}}


def calling(mode: str, *names: str) -> dict[str, Any]:
    return {"functionCallingConfig": {"mode": mode, **({"allowedFunctionNames": names} if names else {})}}


def anthropic(choice: Any, *, tools: Any = (RAIN,), **fields: Any) -> dict[str, Any]:
    return {"messages": ASKED, "tools": list(tools), "tool_choice": choice, **fields}


def gemini(choice: Any) -> dict[str, Any]:
    return {"contents": CONTENTS, "tools": [DECLARED], "toolConfig": choice}


def bedrock(choice: Any, *, tools: Any = (SPEC,)) -> dict[str, Any]:
    return {"messages": BLOCKS, "toolConfig": {"tools": list(tools), "toolChoice": choice}}


OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "yes"}
ADDED = {"type": "additional_tools", "role": "developer", "tools": [ITEM]}


def recorded(kind: str) -> dict[str, Any]:
    """Return an item with a file of this type."""
    block = {"type": "input_file", "filename": "rain", "file_data": f"data:{kind};base64,UklGRg=="}
    return {"role": "user", "content": [block]}


ENABLED = {"type": "enabled", "budget_tokens": 1024}

# A refused request, and the words that say why.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "anthropic: no tools": ("anthropic", anthropic({"type": "auto"}, tools=()), "no tools"),
    "anthropic: unknown tool": ("anthropic", anthropic({"type": "tool", "name": "snow"}), "not among"),
    "anthropic: thinking, any": ("anthropic", anthropic({"type": "any"}, thinking=ENABLED), "forced"),
    "anthropic: thinking, a tool": (
        "anthropic",
        anthropic({"type": "tool", "name": "rain"}, thinking=ENABLED),
        "forced",
    ),
    "chat: no tools": ("openai_chat", {"messages": ASKED, "tool_choice": "auto"}, "no tools"),
    "chat: unknown mode": (
        "openai_chat",
        {"messages": ASKED, "tools": [CHAT], "tool_choice": "any"},
        "unknown",
    ),
    "chat: unknown tool": (
        "openai_chat",
        {
            "messages": ASKED,
            "tools": [CHAT],
            "tool_choice": {"type": "function", "function": {"name": "snow"}},
        },
        "not among",
    ),
    "responses: unknown tool": (
        "openai_responses",
        {"input": ASKED, "tools": [ITEM], "tool_choice": {"type": "function", "name": "snow"}},
        "not among",
    ),
    "responses: a recording as a file": ("openai_responses", {"input": [recorded("audio/mpeg")]}, "refused"),
    "responses: an output without a call": ("openai_responses", {"input": [OUTPUT]}, "before any such"),
    "responses: an output twice": (
        "openai_responses",
        {"input": [OUTPUT, OUTPUT], "previous_response_id": "resp_1"},
        "a second time",
    ),
    "gemini: names in mode AUTO": ("gemini", gemini(calling("AUTO", "rain")), "another mode"),
    "gemini: undeclared": ("gemini", gemini(calling("ANY", "snow")), "not declared"),
    "gemini: system without text": (
        "gemini",
        {"contents": CONTENTS, "systemInstruction": {"parts": [{"inlineData": {}}]}},
        "not text",
    ),
    "gemini: system in the SDK's form": (
        "gemini",
        {"contents": CONTENTS, "config": {"system_instruction": {"parts": []}}},
        "no parts",
    ),
    "gemini: empty part": ("gemini", {"contents": [{"role": "user", "parts": [{}]}]}, "0 fields"),
    "gemini: role": ("gemini", {"contents": [{**CONTENTS[0], "role": "assistant"}]}, "the role"),
    "bedrock: no tools": ("bedrock", bedrock({"auto": {}}, tools=()), "has no tools"),
    "bedrock: none": ("bedrock", bedrock({"none": {}}), "not one of its kinds"),
    "bedrock: two kinds": ("bedrock", bedrock({"any": {}, "auto": {}}), "not one of its kinds"),
    "bedrock: unknown tool": ("bedrock", bedrock({"tool": {"name": "snow"}}), "not among"),
    "bedrock: tools in the messages only": ("bedrock", {"messages": CALLED}, "no tool configuration"),
    "bedrock: its own tool asked by the user": (
        "bedrock",
        {"messages": [{"role": "user", "content": [{"toolUse": {"type": "server_tool_use"}}]}]},
        "tool of the provider",
    ),
}

SERVED: list[Any] = [
    *BLOCKS,
    {
        "role": "assistant",
        "content": [
            {"toolUse": {"toolUseId": "t1", "name": "code", "input": {}, "type": "server_tool_use"}},
            {"toolResult": {"toolUseId": "t1", "type": "nova_code_interpreter_result", "content": []}},
            {"text": "42"},
        ],
    },
]

ACCEPTED: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic: any": ("anthropic", anthropic({"type": "any"})),
    "anthropic: a tool": ("anthropic", anthropic({"type": "tool", "name": "rain"})),
    "anthropic: thinking, auto": ("anthropic", anthropic({"type": "auto"}, thinking=ENABLED)),
    "anthropic: adaptive thinking, any": (
        "anthropic",
        anthropic({"type": "any"}, thinking={"type": "adaptive"}),
    ),
    "chat: required": ("openai_chat", {"messages": ASKED, "tools": [CHAT], "tool_choice": "required"}),
    "chat: a tool": (
        "openai_chat",
        {
            "messages": ASKED,
            "tools": [CHAT],
            "tool_choice": {"type": "function", "function": {"name": "rain"}},
        },
    ),
    "responses: a tool": (
        "openai_responses",
        {"input": ASKED, "tools": [ITEM], "tool_choice": {"type": "function", "name": "rain"}},
    ),
    "responses: an output of the response before": (
        "openai_responses",
        {"input": [OUTPUT], "previous_response_id": "resp_1"},
    ),
    "responses: an output in a conversation": (
        "openai_responses",
        {"input": [OUTPUT], "conversation": "conv_1"},
    ),
    "responses: tools in the input": (
        "openai_responses",
        {"input": [*ASKED, ADDED], "tool_choice": {"type": "function", "name": "rain"}},
    ),
    "responses: a file": ("openai_responses", {"input": [recorded("application/pdf")]}),
    "mistral: any": ("mistral", {"messages": ASKED, "tools": [CHAT], "tool_choice": "any"}),
    "gemini: a tool": ("gemini", gemini(calling("ANY", "rain"))),
    "gemini: any case": ("gemini", gemini(calling("any", "rain"))),
    "gemini: one part without a list": (
        "gemini",
        {"contents": CONTENTS, "systemInstruction": {"parts": {"text": "be brief"}}},
    ),
    "gemini: a thought without words": (
        "gemini",
        {
            "contents": [
                *CONTENTS,
                {"role": "model", "parts": [{"thought": True, "thoughtSignature": "c2ln"}, {"text": "yes"}]},
                *CONTENTS,
            ]
        },
    ),
    "bedrock: any": ("bedrock", bedrock({"any": {}})),
    "bedrock: a tool": ("bedrock", bedrock({"tool": {"name": "rain"}})),
    "bedrock: tools in the messages": ("bedrock", {"messages": CALLED, "toolConfig": {"tools": [SPEC]}}),
    "bedrock: its own tool": ("bedrock", {"messages": SERVED}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_the_provider_refuses_is_found(name: str) -> None:
    dialect, request, words = REFUSED[name]
    assert any(words in problem for problem in problems(request, dialect)), problems(request, dialect)


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_request_that_the_provider_accepts_passes(name: str) -> None:
    dialect, request = ACCEPTED[name]
    assert problems(request, dialect) == []


def test_a_recording_stored_as_a_file_is_described_in_the_request() -> None:
    log = read([recorded("audio/mpeg"), recorded("application/pdf")], dialect="openai_responses")
    request = write(log, "openai_responses")
    assert problems(request, "openai_responses") == []
    assert request.messages[0]["content"] == [{"type": "input_text", "text": "[rain]"}]
    assert request.messages[1] == recorded("application/pdf")
