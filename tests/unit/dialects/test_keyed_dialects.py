"""Gemini and Bedrock: detection, exact round trips, meaning, conversion and valid requests."""

import base64
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.dialects import (
    meaning_of,
    read,
    split_images,
    tombstone_of,
    with_bytes,
    without_thinking,
    write,
)
from aforesaid.errors import InvalidMessage
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, entries_of, random_history
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window

PIXEL = base64.b64encode(b"\x89PNG pixel").decode()

GEMINI: list[dict[str, Any]] = [
    {
        "role": "user",
        "parts": [{"text": "How warm is it?"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
    },
    {
        "role": "model",
        "parts": [
            {"text": "Let me look.", "thought": True},
            {"functionCall": {"name": "look", "args": {"room": "kitchen"}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "look", "args": {"room": "hall"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "look", "response": {"output": "21 degrees"}}},
            {"functionResponse": {"name": "look", "response": {"output": "17 degrees"}}},
        ],
    },
    {"role": "model", "parts": [{"text": "21 degrees."}]},
]
BEDROCK: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [{"text": "How warm is it?"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}],
    },
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
            {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"room": "kitchen"}}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "t1", "content": [{"json": {"degrees": 21}}], "status": "success"}}
        ],
    },
    {"role": "assistant", "content": [{"text": "21 degrees."}]},
]
OWN = {"gemini": GEMINI, "bedrock": BEDROCK}


@pytest.mark.parametrize("dialect", OWN)
def test_messages_are_recognized_and_sent_back_unchanged(dialect: str) -> None:
    messages = read(OWN[dialect])
    assert [message.dialect for message in messages] == [dialect] * 4
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    request = write(messages, dialect)
    assert json.dumps(request.messages) == json.dumps(OWN[dialect])
    assert problems(request, dialect) == []


@pytest.mark.parametrize("dialect", OWN)
def test_meaning(dialect: str) -> None:
    question, call, answer, last = map(meaning_of, read(OWN[dialect]))
    assert question.text == "How warm is it?"
    assert call.thinking
    assert call.calls[0].name == "look"
    assert call.calls[0].arguments == {"room": "kitchen"}
    assert answer.results[0].call_id == call.calls[0].id
    assert last.text == "21 degrees."


@pytest.mark.parametrize("dialect", OWN)
@pytest.mark.parametrize("target", DIALECT_NAMES)
def test_conversion_keeps_calls_results_and_words(dialect: str, target: str) -> None:
    request = write(read(OWN[dialect]), target)
    assert problems(request, target) == []
    sent = json.dumps(request.messages)
    assert all(words in sent for words in ("How warm is it?", "look", "kitchen", "21 degrees."))
    again = [meaning_of(message) for message in read(request.messages, dialect=target)]
    assert next(call.name for each in again for call in each.calls) == "look"
    assert sum(len(each.results) for each in again) == sum(len(each.calls) for each in again)


@pytest.mark.parametrize("target", OWN)
def test_other_dialects_convert_to_keyed_blocks(target: str) -> None:
    messages = read(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "bad id!" * 20, "type": "function", "function": {"name": "a b", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "bad id!" * 20, "content": ""},
        ]
    )
    request = write(messages, target)
    assert problems(request, target) == []
    assert "Be brief." in json.dumps(request.system)
    assert "a_b" in json.dumps(request.messages)


@given(source=st.randoms(use_true_random=False), dialect=st.sampled_from((*DIALECT_NAMES, "mixed")))
def test_random_histories_become_valid_requests(source: Random, dialect: str) -> None:
    history = random_history(source, dialect=dialect, state="at rest", turns=3, troubled=False, same_ids=True)
    for target in OWN:
        request = write(history, target)
        assert not request.messages or problems(request, target) == []


@pytest.mark.parametrize("dialect", OWN)
def test_a_redacted_message_keeps_its_calls_and_nothing_else(dialect: str) -> None:
    redacted = [tombstone_of(message) for message in read(OWN[dialect])]
    text = json.dumps([message.content for message in redacted])
    assert not any(word in text for word in ("warm", "kitchen", "21", "degrees", PIXEL, "hm", "c2ln"))
    assert problems(write(redacted, dialect), dialect) == []


@pytest.mark.parametrize("dialect", OWN)
def test_images_are_stored_apart(dialect: str) -> None:
    message, blobs = split_images(read(OWN[dialect])[0])
    assert list(blobs.values()) == [b"\x89PNG pixel"]
    assert PIXEL not in json.dumps(message.content)


@pytest.mark.parametrize("dialect", OWN)
def test_thinking_can_be_removed(dialect: str) -> None:
    remaining = without_thinking(read(OWN[dialect])[1])
    assert remaining is not None
    assert not meaning_of(remaining).thinking
    assert meaning_of(remaining).calls


def test_whole_responses_are_accepted() -> None:
    from_gemini = read({"candidates": [{"content": GEMINI[3], "finishReason": "STOP"}], "usageMetadata": {}})
    from_bedrock = read({"output": {"message": BEDROCK[3]}, "stopReason": "end_turn", "usage": {}})
    for (message,) in (from_gemini, from_bedrock):
        assert (message.role, meaning_of(message).text) == ("assistant", "21 degrees.")


def test_media_is_stored_as_base64_and_sent_to_the_sdk_as_bytes() -> None:
    document = {
        "role": "user",
        "content": [{"image": {"format": "png", "source": {"bytes": b"\x89PNG pixel"}}}],
    }
    (message,) = read(document)
    assert message.content[0]["image"]["source"]["bytes"] == PIXEL
    assert with_bytes(write([message], "bedrock").messages) == [document]


def test_names_may_be_in_snake_case() -> None:
    (message,) = read({"role": "model", "parts": [{"function_call": {"name": "look", "args": {"q": 1}}}]})
    assert meaning_of(message).calls[0].arguments == {"q": 1}


@pytest.mark.parametrize(
    ("dialect", "document"),
    [
        ("gemini", {"role": "model"}),
        ("gemini", {"role": "model", "parts": []}),
        ("gemini", {"role": "tool", "parts": [{"text": "x"}]}),
        ("gemini", {"role": "model", "parts": ["x"]}),
        ("gemini", {"role": "model", "parts": [{"functionCall": {}}]}),
        ("bedrock", {"role": "user"}),
        ("bedrock", {"role": "model", "content": [{"text": "x"}]}),
        ("bedrock", {"role": "user", "content": [3]}),
        ("bedrock", {"role": "assistant", "content": [{"toolUse": {"name": "look"}}]}),
    ],
)
def test_malformed_messages_are_refused(dialect: str, document: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        read(document, dialect=dialect)


BAD: dict[str, tuple[str, list[Any], str]] = {
    "model first": ("gemini", [GEMINI[3]], "first content"),
    "no parts": ("gemini", [{"role": "user", "parts": []}], "no parts"),
    "two fields": ("gemini", [{"role": "user", "parts": [{"text": "a", "inlineData": {}}]}], "2 fields"),
    "unanswered": ("gemini", GEMINI[:2], "2 functions and gets 0"),
    "call after the model": ("gemini", [GEMINI[0], GEMINI[3], *GEMINI[1:3]], "does not follow the user"),
    "orphan": ("gemini", [GEMINI[0], GEMINI[2]], "did not call"),
    "assistant first": ("bedrock", [BEDROCK[3]], "first message"),
    "same role": ("bedrock", [BEDROCK[0], BEDROCK[0]], "same role"),
    "blank": ("bedrock", [{"role": "user", "content": [{"text": ""}]}], "empty text"),
    "no result": ("bedrock", BEDROCK[:2], "has not one result"),
    "two kinds": (
        "bedrock",
        [{"role": "user", "content": [{"text": "a", "image": {}}]}],
        "not one of its kinds",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_the_rules_refuse_what_the_provider_refuses(name: str) -> None:
    dialect, messages, expected = BAD[name]
    assert any(expected in problem for problem in problems(messages, dialect))


def test_a_message_that_a_caller_made_by_hand_is_converted() -> None:
    message = Message(role="user", content={"any": "json"}, dialect="gemini")
    assert problems(write([message], "gemini"), "gemini") == []


PDF = "JVBERi0="
SOUND = {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}
FILE = {"type": "file", "file": {"filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}


def converted(document: dict[str, Any], source: str, dialect: str) -> list[Any]:
    request = write(read([document], dialect=source), dialect)
    assert problems(request, dialect) == []
    (message,) = request.messages
    return list(message.get("parts") or message["content"])


def test_recordings_and_files_become_blocks_of_the_target() -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": "listen"}, SOUND, FILE]}
    assert converted(asked, "openai_chat", "gemini")[1:] == [
        {"inlineData": {"mimeType": "audio/wav", "data": PIXEL}},
        {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
    ]
    assert converted(asked, "openai_chat", "bedrock")[1:] == [
        {"audio": {"format": "wav", "source": {"bytes": PIXEL}}},
        {"document": {"format": "pdf", "name": "plan-pdf", "source": {"bytes": PDF}}},
    ]
    heard = {
        "role": "user",
        "content": [{"audio": {"format": "mp3", "source": {"bytes": PIXEL}}}, {"text": "x"}],
    }
    assert converted(heard, "bedrock", "gemini")[0] == {
        "inlineData": {"mimeType": "audio/mp3", "data": PIXEL}
    }
    assert converted(heard, "bedrock", "openai_chat")[0] == {
        "type": "input_audio",
        "input_audio": {"data": PIXEL, "format": "mp3"},
    }


def test_a_file_at_an_address_is_passed_on_by_its_address() -> None:
    uri = "https://example.com/plan.pdf"
    part = {"fileData": {"mimeType": "application/pdf", "fileUri": uri}}
    asked = {"role": "user", "parts": [part, {"text": "read"}]}
    assert converted(asked, "gemini", "anthropic")[0]["source"] == {"type": "url", "url": uri}
    assert converted(asked, "gemini", "openai_responses")[0] == {"type": "input_file", "file_url": uri}
    assert converted(asked, "gemini", "bedrock")[0] == {"text": f"[document: {uri}]"}


def test_an_image_in_a_result_reaches_gemini_after_the_response() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    log = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "cam", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]},
    ]
    request = write(read(log, dialect="anthropic"), "gemini")
    assert problems(request, "gemini") == []
    assert request.messages[-1]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": PIXEL}}


SERVER_TOOLS: dict[str, list[dict[str, Any]]] = {
    "gemini": [
        {"role": "user", "parts": [{"text": "Will it rain?"}]},
        {
            "role": "model",
            "parts": [{"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"q": "rain"}}}],
        },
        {
            "role": "model",
            "parts": [{"toolResponse": {"id": "t1", "response": {"found": "rain"}}}, {"text": "Yes."}],
        },
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": "Will it rain?"}]},
        {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "t1", "name": "search", "input": {}, "type": "server_tool_use"}}
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"toolResult": {"toolUseId": "t1", "content": [{"text": "rain"}], "type": "a_result"}},
                {"text": "Yes."},
            ],
        },
    ],
}


def opened(message: Message) -> tuple[str, ...]:
    return meaning_of(message).opens


def closed(message: Message) -> tuple[str, ...]:
    return meaning_of(message).closes


@pytest.mark.parametrize("dialect", SERVER_TOOLS)
def test_a_tool_that_the_provider_runs_stays_whole_and_reaches_no_other(dialect: str) -> None:
    log = read(SERVER_TOOLS[dialect], dialect=dialect)
    parts = "parts" if dialect == "gemini" else "content"
    sent = [block for message in write(log, dialect).messages for block in message[parts]]
    assert sent == [block for document in SERVER_TOOLS[dialect] for block in document[parts]]
    for size in (1, 2, 3):
        policy = WindowPolicy(max_messages=size, for_request=True)
        window = build_window(entries_of(log), policy, cost=lambda _: 1).messages
        opens, closes = ({which(one) for one in window} - {()} for which in (opened, closed))
        assert opens == closes, "a window has both halves or none"
        assert not window or problems(write(window, dialect), dialect) == []
    for other in {"anthropic", "openai_chat", "openai_responses", "plain", "gemini", "bedrock"} - {dialect}:
        assert "rain" not in str([*write(log, other).messages][1:])


@pytest.mark.parametrize("dialect", SERVER_TOOLS)
def test_a_result_without_the_call_of_the_providers_tool_is_refused(dialect: str) -> None:
    question, call, answer = SERVER_TOOLS[dialect]
    field, parts = ("contents", "parts") if dialect == "gemini" else ("messages", "content")
    whole = {**call, parts: [*call[parts], *answer[parts]]}
    assert any("has no call" in one for one in problems({field: [question, answer]}, dialect))
    assert problems({field: [question, whole]}, dialect) == []
