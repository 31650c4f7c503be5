"""The providers' rules: requests known to be good pass, requests known to be bad are named as such."""

from typing import Any

import pytest

from aforesaid.dialects.parse import Request
from aforesaid.errors import InvalidInput
from aforesaid.testing.validity import problems

Messages = list[Any]

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "hello"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# Anthropic

USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
USE_2 = {**USE, "id": "t2"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def answer(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
MARKED = {**text("so"), "cache_control": {"type": "ephemeral"}}
ADDED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look"}}

ANTHROPIC_BAD: dict[str, tuple[Messages, str]] = {
    "nothing": ([], "no messages"),
    "not objects": (["hi"], "not an object"),
    "a role of OpenAI's": ([HI, {"role": "tool", "content": "x"}], "has the role 'tool'"),
    "empty text": ([{"role": "user", "content": ""}], "is empty"),
    "blank text": ([{"role": "user", "content": " \n"}], "is empty"),
    "no content": ([{"role": "user"}], "neither text nor a list"),
    "no blocks": ([user()], "neither text nor a list"),
    "an empty answer in the middle": ([HI, assistant(), HI], "neither text nor a list"),
    "a block without a type": ([user({"text": "hi"})], "without a type"),
    "an empty text block": ([user(text(""), text("hi"))], "empty text block"),
    "a blank text block": ([user(text("  "))], "empty text block"),
    "an unanswered call": ([HI, assistant(USE)], "has no result"),
    "one of two calls unanswered": (
        [HI, assistant(USE, USE_2), user(answer("t1"))],
        "'t2' of turn 1 has no result",
    ),
    "a result that comes too late": (
        [HI, assistant(USE), HI, user(answer("t1"))],
        "something before its tool results",
    ),
    "an orphan result": ([user(answer("t9"))], "did not call"),
    "a result twice": ([HI, assistant(USE), user(answer("t1"), answer("t1"))], "twice"),
    "text before results": ([HI, assistant(USE), user(text("so"), answer("t1"))], "before its tool results"),
    "a call id twice": (
        [HI, assistant(USE, USE), user(answer("t1"))],
        "uses the tool call id 't1' again",
    ),
    "a call without id": ([HI, assistant({**USE, "id": None}), user(answer("t1"))], "without an id"),
    "a tool name with a dot": ([HI, assistant({**USE, "name": "a.b"}), user(answer("t1"))], "valid name"),
    "a search without its result": ([HI, assistant(SEARCH, text("so")), HI], "'s1' has no result"),
    "a search result without its call": ([HI, assistant(SEARCHED, text("so"))], "'s1' without a call"),
    "a search result by the user": ([HI, assistant(SEARCH), user(SEARCHED)], "must not hold a web_search"),
    "five cache marks": ([user(*[MARKED] * 5)], "5 blocks have cache_control"),
    "a blank at the end": ([HI, assistant(text("so "))], "ends with a blank"),
    "a tool added by the user": ([user(text("so"), ADDED)], "must not hold a tool_addition"),
    "an empty summary": ([HI, assistant({"type": "compaction", "content": ""}, text("so"))], "compaction"),
    "an id with a dot": (
        [HI, assistant({**USE, "id": "a.b"}), user(answer("a.b"))],
        "invalid characters",
    ),
    "input that is text": ([HI, assistant({**USE, "input": "{}"}), user(answer("t1"))], "not an object"),
    "a call by the user": ([user(USE)], "must not hold a tool_use"),
    "a result by the assistant": ([HI, assistant(answer("t1"))], "must not hold a tool_result"),
    "an image by the assistant": ([HI, assistant(image(type="url", url="u"))], "must not hold a image"),
    "thinking last": ([HI, assistant(THINKING)], "ends with thinking"),
    "thinking not first": (
        [HI, assistant(text("x"), THINKING, USE), user(answer("t1"))],
        "does not come first",
    ),
    "thinking unsigned": ([HI, assistant({"type": "thinking", "thinking": "x"}, text("y"))], "its signature"),
    "a picture of a kind": (
        [user(image(type="base64", media_type="image/bmp", data="AA=="))],
        "image of kind image/bmp",
    ),
    "a picture of nothing": ([user({"type": "image"})], "without a source"),
    "an empty block in a result": (
        [HI, assistant(USE), user(answer("t1", [text("")]))],
        "tool result in message 2 has an empty",
    ),
    "system after assistant": (
        [HI, HELLO, {"role": "system", "content": "be"}, HI],
        "does not follow the user's",
    ),
    "system with a picture": (
        [HI, {"role": "system", "content": [image(type="url", url="u")]}],
        "more than text",
    ),
}

ANTHROPIC_GOOD: dict[str, Messages] = {
    "assistant first": [HELLO, HI],
    "a call id again in a later turn": [
        *[HI, assistant(USE), user(answer("t1"))],
        *[assistant(USE), user(answer("t1"))],
    ],
    "results in two messages": [HI, assistant(USE, USE_2), user(answer("t1")), user(answer("t2"))],
    "a search across two messages": [HI, assistant(SEARCH), assistant(SEARCHED, text("so"))],
    "a search that goes on": [HI, assistant(SEARCH)],
    "a search next to a call": [HI, assistant(SEARCH, USE), user(answer("t1"))],
    "thinking after a search": [HI, assistant(SEARCH, SEARCHED, THINKING, text("so"))],
    "four cache marks": [user(*[MARKED] * 4)],
    "a tool added": [HI, {"role": "system", "content": [ADDED]}],
    "a summary first": [assistant({"type": "compaction", "content": "so"}), HI],
    "a question": [HI],
    "an exchange": [HI, HELLO, HI],
    "two questions in a row": [HI, HI],
    "an empty last answer": [HI, {"role": "assistant", "content": []}],
    "calls with thinking": [
        HI,
        assistant(THINKING, text("a"), USE, USE_2),
        user(answer("t2"), answer("t1"), text("?")),
    ],
    "a result without content": [HI, assistant(USE), user({"type": "tool_result", "tool_use_id": "t1"})],
    "a picture as result": [HI, assistant(USE), user(answer("t1", [image(type="url", url="u")]))],
    "a tool of theirs": [
        HI,
        assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, text("x")),
    ],
    "a block from the future": [user({"type": "hologram"}, text("look"))],
    "a later system message": [HI, {"role": "system", "content": "be brief"}, HELLO],
}

# OpenAI chat


def call(call_id: str = "c1", **function: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}", **function}}


def calling(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def tool(call_id: str = "c1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


CHAT_BAD: dict[str, tuple[Messages, str]] = {
    "nothing": ([], "no messages"),
    "an unknown role": ([{"role": "model", "content": "x"}], "has the role 'model'"),
    "no content": ([{"role": "user"}], "has no content"),
    "an answer of nothing": ([HI, {"role": "assistant", "content": None}], "has no content"),
    "content that is a number": ([{"role": "user", "content": 5}], "neither text nor a list"),
    "a block of Anthropic's": ([user(USE)], "must not hold a tool_use"),
    "a picture by the assistant": (
        [HI, assistant({"type": "image_url", "image_url": {"url": "u"}})],
        "must not hold a image_url",
    ),
    "a picture as result": (
        [HI, calling(call()), tool(content=[{"type": "image_url", "image_url": {"url": "u"}}])],
        "must not hold a image_url",
    ),
    "an empty text part": ([user(text(""))], "empty text part"),
    "a picture without url": ([user({"type": "image_url", "image_url": "u"})], "without a url"),
    "no calls in the list": ([HI, {**HELLO, "tool_calls": []}], "without a call"),
    "an unanswered call": ([HI, calling(call())], "has no result before the end"),
    "an interrupted call": ([HI, calling(call()), HI, tool()], "has no result before message 2"),
    "an orphan result": ([HI, tool()], "did not make"),
    "a result twice": ([HI, calling(call()), tool(), tool()], "a second time"),
    "an id twice": ([HI, calling(call()), tool(), calling(call()), tool()], "again"),
    "arguments as object": ([HI, calling(call(arguments={})), tool()], "not text"),
    "arguments that are no JSON": ([HI, calling(call(arguments="{oops")), tool()], "not JSON"),
    "a flat call": ([HI, calling({"id": "c1", "name": "look"}), tool()], "neither a function nor custom"),
    "a call by the user": ([{**HI, "tool_calls": [call()]}], "not the assistant's"),
    "an id too long": ([HI, calling(call("c" * 41)), tool("c" * 41)], "more than 40"),
    "a result without id": ([HI, calling(call()), {"role": "tool", "content": "x"}], "did not make"),
}

CHAT_GOOD: dict[str, Messages] = {
    "a question": [{"role": "developer", "content": "be brief"}, HI],
    "the assistant first": [HELLO, HI],
    "calls": [HI, calling(call("c1"), call("c2")), tool("c2"), tool("c1"), HELLO],
    "a call with words": [HI, calling(call(), content="wait"), tool(content=[text("a")]), HELLO],
    "no arguments at all": [HI, calling(call(arguments="")), tool()],
    "a custom call": [
        HI,
        calling({"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}),
        tool(),
    ],
    "a refusal": [HI, {"role": "assistant", "content": None, "refusal": "no"}],
    "a picture": [user(text("what?"), {"type": "image_url", "image_url": {"url": "u"}})],
    "unknown fields": [{**HI, "x_mood": 5}, HELLO],
}

# OpenAI Responses

CALL_ITEM = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT_ITEM = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
REASONING = {"type": "reasoning", "id": "rs", "summary": []}

RESPONSES_BAD: dict[str, tuple[Messages, str]] = {
    "nothing": ([], "no messages"),
    "a tool message": ([HI, {"role": "tool", "content": "x"}], "has the role 'tool'"),
    "no content": ([{"role": "user"}], "neither text nor a list"),
    "a chat part": ([user(text("hi"))], "must not hold a text"),
    "input in an answer": (
        [HI, assistant({"type": "input_text", "text": "x"})],
        "must not hold a input_text",
    ),
    "output in a question": ([user({"type": "output_text", "text": "x"})], "must not hold a output_text"),
    "a text part of nothing": ([user({"type": "input_text"})], "without text"),
    "a picture of nothing": ([user({"type": "input_image", "detail": "auto"})], "without image_url"),
    "an unanswered call": ([HI, CALL_ITEM], "has no output"),
    "an output of another type": (
        [HI, CALL_ITEM, {**OUTPUT_ITEM, "type": "custom_tool_call_output"}],
        "with a custom_tool_call_output",
    ),
    "a click that nobody answers": (
        [HI, {"type": "computer_call", "call_id": "c1", "id": "x", "pending_safety_checks": []}],
        "has no output",
    ),
    "an output before its call": ([HI, OUTPUT_ITEM, CALL_ITEM], "before any such call"),
    "an orphan output": ([HI, OUTPUT_ITEM], "before any such call"),
    "an output twice": ([HI, CALL_ITEM, OUTPUT_ITEM, OUTPUT_ITEM], "a second time"),
    "an id twice": ([HI, CALL_ITEM, CALL_ITEM, OUTPUT_ITEM], "again"),
    "an id too long": (
        [HI, {**CALL_ITEM, "call_id": "c" * 65}, {**OUTPUT_ITEM, "call_id": "c" * 65}],
        "more than 64",
    ),
    "arguments as object": ([HI, {**CALL_ITEM, "arguments": {}}, OUTPUT_ITEM], "not text"),
    "arguments that are no JSON": ([HI, {**CALL_ITEM, "arguments": "{"}, OUTPUT_ITEM], "not JSON"),
    "a call without name": ([HI, {**CALL_ITEM, "name": ""}, OUTPUT_ITEM], "without a name"),
    "an output of nothing": ([HI, CALL_ITEM, {**OUTPUT_ITEM, "output": None}], "neither text nor a list"),
    "reasoning at the end": ([HI, REASONING], "without a following item of the model"),
    "reasoning before the user": ([HI, REASONING, HI], "without a following item of the model"),
    "reasoning before an output": (
        [HI, CALL_ITEM, REASONING, OUTPUT_ITEM],
        "without a following item of the model",
    ),
    "reasoning without summary": ([HI, {"type": "reasoning", "id": "r"}, HELLO], "without a summary"),
    "an item of nothing": ([{}], "neither a role nor a type nor an id"),
}

RESPONSES_GOOD: dict[str, Messages] = {
    "a question": [{"role": "developer", "content": "be brief"}, HI],
    "calls": [
        HI,
        REASONING,
        CALL_ITEM,
        {**CALL_ITEM, "call_id": "c2"},
        {**OUTPUT_ITEM, "call_id": "c2"},
        OUTPUT_ITEM,
    ],
    "something said in between": [HI, CALL_ITEM, HI, OUTPUT_ITEM, HELLO],
    "an answer with its id": [
        HI,
        REASONING,
        {"type": "message", "id": "m", **assistant({"type": "output_text", "text": "x"})},
    ],
    "a picture as output": [
        HI,
        CALL_ITEM,
        {**OUTPUT_ITEM, "output": [{"type": "input_image", "image_url": "u"}]},
    ],
    "a search of theirs": [HI, {"type": "web_search_call", "id": "ws", "status": "completed"}, HELLO],
    "an item from the future": [HI, {"type": "hologram", "id": "h"}],
    "a reference": [{"id": "msg_1"}, HI],
}

# Plain

PLAIN_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "name": "look", "arguments": {}}],
}

PLAIN_BAD: dict[str, tuple[Messages, str]] = {
    "nothing": ([], "no messages"),
    "an unknown role": ([{"role": "developer", "content": "x"}], "has the role 'developer'"),
    "no content": ([{"role": "user"}], "neither content nor tool calls"),
    "an unanswered call": ([HI, PLAIN_CALL], "has no result"),
    "an orphan result": ([HI, tool()], "did not make"),
    "a call without name": ([HI, {**PLAIN_CALL, "tool_calls": [{"id": "c1"}]}, tool()], "without a name"),
    "an id twice": ([HI, PLAIN_CALL, tool(), PLAIN_CALL, tool()], "again"),
}

PLAIN_GOOD: dict[str, Messages] = {
    "a question": [HI],
    "any JSON": [{"role": "user", "content": {"lux": 5}}],
    "calls": [HI, PLAIN_CALL, tool(), HELLO],
    "a tool that nobody called": [HI, {"role": "tool", "content": "22 °C"}, HELLO],
}

BAD = {
    "anthropic": ANTHROPIC_BAD,
    "openai_chat": CHAT_BAD,
    "openai_responses": RESPONSES_BAD,
    "plain": PLAIN_BAD,
}
GOOD = {
    "anthropic": ANTHROPIC_GOOD,
    "openai_chat": CHAT_GOOD,
    "openai_responses": RESPONSES_GOOD,
    "plain": PLAIN_GOOD,
}


@pytest.mark.parametrize(
    ("dialect", "messages", "words"),
    [
        pytest.param(dialect, messages, words, id=f"{dialect}: {name}")
        for dialect, cases in BAD.items()
        for name, (messages, words) in cases.items()
    ],
)
def test_what_a_provider_refuses_is_found(dialect: str, messages: Messages, words: str) -> None:
    found = problems(messages, dialect)
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(
    ("dialect", "messages"),
    [
        pytest.param(dialect, messages, id=f"{dialect}: {name}")
        for dialect, cases in GOOD.items()
        for name, messages in cases.items()
    ],
)
def test_what_a_provider_takes_passes(dialect: str, messages: Messages) -> None:
    assert problems(messages, dialect) == []


@pytest.mark.parametrize("system", ["", " ", [], [text("")], [{"type": "image"}], 5])
def test_a_system_prompt_that_says_nothing_is_found(system: Any) -> None:
    assert problems(Request(messages=[HI], system=system), "anthropic")


@pytest.mark.parametrize("system", [None, "be brief", [text("be brief")]])
def test_a_system_prompt_passes(system: Any) -> None:
    assert problems(Request(messages=[HI], system=system), "anthropic") == []


def test_only_anthropic_takes_the_system_prompt_apart() -> None:
    assert problems(Request(messages=[HI], system="be brief"), "openai_chat")


def test_an_unknown_dialect_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="dialect must be one of"):
        problems([HI], "klingon")
