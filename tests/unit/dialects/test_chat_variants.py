"""Servers with OpenAI's chat API: what each refuses is found by its rules, and is not in its requests."""

from random import Random
from typing import Any, get_args

import pytest
from benchmarks.trajectories import chat_server

from aforesaid.dialects import ChatVariantName, meaning_of, read, write
from aforesaid.testing.validity import problems

VARIANTS = get_args(ChatVariantName)
HI = {"role": "user", "content": "hi"}
PIXEL = "iVBORw0KGgo="


def call(call_id: str = "call_12345", **fields: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"at": "sky"}'}
    return {"id": call_id, "type": "function", "function": function, **fields}


def calls(*listed: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(listed), **fields}


def result(call_id: str = "call_12345", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "blue", **fields}


NINE = "a1b2c3d4e"
ASKED = calls({"function": {"name": "look", "arguments": {"at": "sky"}}}, content="")
FOUND = {"role": "tool", "tool_name": "look", "content": "blue"}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
VIDEO = {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}
DETAILS = [{"type": "reasoning.encrypted", "data": "c2ln"}]

REFUSED: dict[str, list[tuple[list[Any], str]]] = {
    "mistral": [
        ([HI, calls(call()), result()], "nine letters and digits"),
        ([HI, calls(call(NINE)), result(NINE), HI], "'user' after 'tool'"),
        (
            [HI, {"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}, HI],
            "'system' after",
        ),
        ([HI, {"role": "assistant", "content": "a"}], "not a prefix"),
        ([HI, {"role": "assistant", "content": "a", "prefix": True}, HI], "not the last"),
        ([{"role": "assistant", "content": "a", "prefix": True}], "single message"),
        ([{**HI, "name": "kim"}], "'name'"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}],
            "cache_control",
        ),
        ([{"role": "user", "content": [{"type": "file", "file": {}}]}], "must not hold a file"),
        ([HI, {"role": "assistant", "content": [{"type": "thinking", "thinking": "so"}]}, HI], "not a list"),
        ([HI, {"role": "assistant", "content": None}, HI], "neither content nor calls"),
        ([{"role": "developer", "content": "a"}, HI], "role"),
    ],
    "ollama": [
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "not text"),
        ([{**HI, "images": ["https://example.com/a.png"]}], "not base64"),
        ([HI, calls(call(), content=""), FOUND], "not an object"),
        ([HI, ASKED, {**FOUND, "tool_name": "other"}], "not the next call"),
        ([HI, ASKED, HI], "no result before"),
        ([HI, ASKED, result()], "'tool_call_id'"),
        ([HI, {"role": "assistant", "content": "a", "thinking": ["so"]}], "thinking"),
    ],
    "vllm": [
        ([{"role": "developer", "content": "a"}, HI], "role"),
        ([{"role": "user", "content": [{"type": "file", "file": {}}]}], "must not hold a file"),
        ([HI, {"role": "assistant", "content": "a", "reasoning": ["so"]}], "reasoning"),
        (
            [HI, calls({"id": "a", "type": "custom", "custom": {"name": "look", "input": "x"}}), result("a")],
            "function",
        ),
        ([HI, {"role": "assistant", "content": "a", "refusal": "no"}], "refusal"),
    ],
    "azure": [
        ([HI, {"role": "assistant", "content": "a", "reasoning_content": "so"}], "'reasoning_content'"),
        ([HI, {"role": "assistant", "content": "a", "context": {}}], "'context'"),
        ([HI, {"role": "assistant", "tool_calls": [call()]}, result()], "no field content"),
        ([HI, calls(call(index=0)), result()], "'index'"),
        ([{"role": "user", "content": [{"type": "file", "file": {}}]}], "must not hold a file"),
    ],
    "openrouter": [
        (
            [HI, {"role": "assistant", "content": "a", "reasoning_details": [{"type": "thinking"}]}],
            "unknown type",
        ),
        ([HI, {"role": "assistant", "content": "a", "reasoning_details": "so"}], "list"),
        ([HI, calls(call("functions.look:0")), result("functions.look:0")], "providers refuse"),
    ],
}

ACCEPTED: dict[str, list[list[Any]]] = {
    "mistral": [
        [{"role": "system", "content": "a"}, HI, calls(call(NINE)), result(NINE, name="look")],
        [HI, {"role": "assistant", "content": [THINKING, {"type": "text", "text": "a"}]}, HI],
        [HI, {"role": "system", "content": "a"}, {"role": "assistant", "content": "a", "prefix": True}],
        [
            {
                "role": "user",
                "content": [{"type": "document_url", "document_url": "https://example.com/a.pdf"}],
            }
        ],
    ],
    "ollama": [
        [
            {**HI, "images": [PIXEL]},
            {**ASKED, "thinking": "so"},
            FOUND,
            {"role": "assistant", "content": "a"},
        ],
    ],
    "vllm": [
        [HI, calls(call(), reasoning="so"), result()],
        [{"role": "user", "content": [VIDEO]}],
    ],
    "azure": [[{"role": "developer", "content": "a"}, {**HI, "name": "kim"}, calls(call()), result()]],
    "openrouter": [
        [HI, calls(call(), reasoning="so", reasoning_details=DETAILS), result()],
        [{"role": "user", "content": [VIDEO]}],
    ],
}


def test_every_variant_has_rules_with_examples() -> None:
    assert set(REFUSED) == set(ACCEPTED) == set(VARIANTS)


@pytest.mark.parametrize("dialect", VARIANTS)
def test_the_rules_find_what_the_server_refuses_and_accept_the_rest(dialect: str) -> None:
    for messages, words in REFUSED[dialect]:
        assert any(words in problem for problem in problems(messages, dialect)), (words, messages)
    for messages in ACCEPTED[dialect]:
        assert problems(messages, dialect) == []


def test_mistral_accepts_an_answer_with_calls_and_an_empty_list() -> None:
    assert problems([HI, calls(call(NINE), content=[]), result(NINE)], "mistral") == []
    assert problems([HI, {"role": "assistant", "content": []}, HI], "mistral") != []


@pytest.mark.parametrize("dialect", VARIANTS)
def test_a_request_that_the_server_accepted_is_rendered_unchanged(dialect: str) -> None:
    for messages in ACCEPTED[dialect]:
        stored = read(messages, dialect=dialect)
        assert {message.dialect for message in stored} == {"openai_chat"}
        assert write(stored, dialect).messages == messages


@pytest.mark.parametrize("dialect", VARIANTS)
def test_what_any_server_sends_is_a_valid_request_of_each(dialect: str) -> None:
    random = Random(dialect)
    for _ in range(150):
        segment = chat_server(random)
        lost = [each for each in segment if each["role"] == "tool"] and len(segment) == 1
        if ("tool_calls" in segment[0] and len(segment) == 1) or lost:
            continue  # half a pair, which a window completes or leaves out
        request = write(read([HI, *segment, HI], dialect="openai_chat"), dialect)
        assert problems(request, dialect) == [], segment


def test_ids_for_mistral_are_unique_and_the_same_in_call_and_result() -> None:
    log = [HI, calls(call("a"), call("b")), result("b"), result("a"), calls(call("a")), result("a")]
    request = write(read(log, dialect="openai_chat"), "mistral").messages
    made = [each["id"] for message in request for each in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in request if message["role"] == "tool"]
    assert len(set(made)) == 3
    assert answered == [made[1], made[0], made[2]]


def test_results_for_ollama_are_in_the_order_of_the_calls() -> None:
    other = {"id": "b", "type": "function", "function": {"name": "hear", "arguments": "{}"}}
    log = [HI, calls(call("a"), other), result("b", content="rain"), result("a")]
    request = write(read(log, dialect="openai_chat"), "ollama").messages
    assert [(each["tool_name"], each["content"]) for each in request[2:]] == [
        ("look", "blue"),
        ("hear", "rain"),
    ]


def test_an_image_of_ollama_is_seen_by_every_provider() -> None:
    (message,) = read({"model": "m", "message": {**HI, "images": [PIXEL]}, "done": True})
    assert meaning_of(message).text == "hi"
    for dialect in ("openai_chat", "anthropic", "gemini", "bedrock", "openai_responses", "ollama"):
        assert PIXEL in str(write([message], dialect).messages), dialect


PAGE = {"type": "web_search_result_location", "url": "https://example.com/rain", "title": "Rain"}
CITED = [
    {"role": "user", "content": [{"type": "text", "text": "rain?"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Yes.", "citations": [PAGE]}]},
    {"role": "user", "content": "and?"},
]


def test_citations_of_pages_become_those_of_the_target_and_back() -> None:
    log = read(CITED, dialect="anthropic")
    bedrock = write(log, "bedrock")
    cited = bedrock.messages[1]["content"][0]["citationsContent"]
    assert cited["citations"][0]["location"]["web"]["url"] == PAGE["url"]
    for source, dialect in ((log, "anthropic"), (read(bedrock.messages, dialect="bedrock"), "bedrock")):
        request = write(source, "openai_responses")
        (text,) = request.messages[1]["content"]
        assert [(each["url"], each["end_index"]) for each in text["annotations"]] == [(PAGE["url"], 4)], (
            dialect
        )
        assert problems(request, "openai_responses") == []
    back = write(read(request.messages, dialect="openai_responses"), "bedrock").messages[1]["content"][0]
    assert back["citationsContent"]["citations"][0]["title"] == "Rain"


def test_search_results_stay_search_results() -> None:
    block = {
        "type": "search_result",
        "source": "s",
        "title": "t",
        "content": [{"type": "text", "text": "wet"}],
    }
    log = read({"role": "user", "content": [block, {"type": "text", "text": "?"}]}, dialect="anthropic")
    bedrock = write(log, "bedrock").messages
    assert bedrock[0]["content"][0]["searchResult"]["content"] == [{"text": "wet"}]
    assert write(read(bedrock, dialect="bedrock"), "anthropic").messages[0]["content"][0] == block
    assert "wet" in str(write(log, "gemini").messages)
