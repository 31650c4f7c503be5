"""The providers' own SDKs: their objects go in, and what comes out passes their own types.

Importing an SDK takes seconds, so each is imported when a test first asks for it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from aforesaid.dialects import meaning_of, read, write
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems

Check = Callable[[list[dict[str, Any]]], None]


@pytest.fixture(scope="session")
def anthropic_types() -> Any:
    import anthropic.types

    return anthropic.types


@pytest.fixture(scope="session")
def chat_types() -> Any:
    import openai.types.chat

    return openai.types.chat


@pytest.fixture(scope="session")
def responses_types() -> Any:
    import openai.types.responses

    return openai.types.responses


def adapter_check(parameter: Any) -> Check:
    from pydantic import ConfigDict, TypeAdapter

    adapter = TypeAdapter(parameter, config=ConfigDict(arbitrary_types_allowed=True))

    def check(messages: list[dict[str, Any]]) -> None:
        for message in messages:
            exhausted(adapter.validate_python(message))

    return check


def exhausted(value: Any) -> None:
    """Types with `Iterable` are checked as they are walked."""
    if isinstance(value, dict):
        for item in value.values():
            exhausted(item)
    elif hasattr(value, "__iter__") and not isinstance(value, (str, bytes)):
        for item in value:
            exhausted(item)


@pytest.fixture(scope="session")
def checks(anthropic_types: Any, chat_types: Any, responses_types: Any) -> dict[str, Check]:
    """What each SDK says about its own parameters."""
    return {
        "anthropic": adapter_check(anthropic_types.MessageParam),
        "openai_chat": adapter_check(chat_types.ChatCompletionMessageParam),
        "openai_responses": adapter_check(responses_types.ResponseInputItemParam),
    }


# What the SDKs give


@pytest.fixture
def anthropic_reply(anthropic_types: Any) -> Any:
    types = anthropic_types
    return types.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        stop_reason="tool_use",
        usage=types.Usage(input_tokens=1, output_tokens=1),
        content=[
            types.ThinkingBlock(type="thinking", thinking="hm", signature="sig"),
            types.RedactedThinkingBlock(type="redacted_thinking", data="e"),
            types.TextBlock(type="text", text="I look."),
            types.ToolUseBlock(type="tool_use", id="toolu_1", name="look", input={"at": "sky"}),
        ],
    )


ANTHROPIC_BLOCKS = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "e"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}},
]


@pytest.fixture
def chat_reply(chat_types: Any) -> Any:
    return chat_types.ChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "logprobs": None,
                    "message": CHAT_MESSAGE,
                }
            ],
        }
    )


CHAT_MESSAGE = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    ],
}


@pytest.fixture
def responses_reply(responses_types: Any) -> Any:
    return responses_types.Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1.0,
            "model": "gpt",
            "output": RESPONSES_ITEMS,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )


RESPONSES_ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at": "sky"}',
        "status": "completed",
    },
]


# In


def test_an_anthropic_response_is_reduced_to_what_is_sent_back(anthropic_reply: Any) -> None:
    (message,) = read(anthropic_reply)
    assert (message.role, message.dialect, message.extra) == ("assistant", "anthropic", {})
    assert message.content == ANTHROPIC_BLOCKS


def test_anthropic_blocks_go_in_as_objects_inside_a_dict(anthropic_reply: Any) -> None:
    (message,) = read({"role": "assistant", "content": anthropic_reply.content})
    assert (message.dialect, message.content) == ("anthropic", ANTHROPIC_BLOCKS)


def test_what_anthropic_adds_later_is_kept(anthropic_types: Any) -> None:
    """The SDK builds what it does not know without complaint; so do we."""
    reply = anthropic_types.Message.construct(
        id="m",
        type="message",
        role="assistant",
        model="x",
        usage=None,
        stop_reason="end_turn",
        content=[
            {"type": "hologram", "beam": {"width": 3}},
            {"type": "text", "text": "look", "mood": "fine"},
        ],
    )
    (message,) = read(reply)
    assert message.content == [
        {"type": "hologram", "beam": {"width": 3}},
        {"type": "text", "text": "look", "mood": "fine"},
    ]


def test_a_chat_completion_gives_its_first_choice(chat_reply: Any) -> None:
    (message,) = read(chat_reply)
    assert (message.role, message.dialect) == ("assistant", "openai_chat")
    assert write([message], "openai_chat").messages == [CHAT_MESSAGE]
    assert read(chat_reply.choices[0].message) == [message]


def test_a_response_gives_its_items(responses_reply: Any) -> None:
    messages = read(responses_reply)
    assert {message.dialect for message in messages} == {"openai_responses"}
    assert write(messages, "openai_responses").messages == RESPONSES_ITEMS
    assert read(responses_reply.output) == messages


def test_what_an_sdk_parsed_for_its_caller_is_not_sent_back() -> None:
    from openai.types.responses.parsed_response import (
        ParsedResponseFunctionToolCall,
        ParsedResponseOutputMessage,
        ParsedResponseOutputText,
    )

    *_, spoken, call = RESPONSES_ITEMS
    texts = [ParsedResponseOutputText(**part, parsed={"sky": "blue"}) for part in spoken["content"]]
    message = ParsedResponseOutputMessage(**{**spoken, "content": texts})
    called = ParsedResponseFunctionToolCall(**call, parsed_arguments={"at": "sky"})
    assert write(read([message, called]), "openai_responses").messages == [spoken, call]


def test_fields_go_by_the_providers_names(responses_types: Any) -> None:
    item = {**RESPONSES_ITEMS[-1], "async": True}
    called = responses_types.ResponseFunctionToolCall.model_validate(item)
    assert write(read(called), "openai_responses").messages == [item]


# Out


@pytest.fixture
def conversations(anthropic_reply: Any, chat_reply: Any, responses_reply: Any) -> dict[str, list[Message]]:
    """The same conversation, as it was had with each provider's SDK."""
    picture = "data:image/png;base64,iVBORw0KGgo="
    asked: dict[str, dict[str, Any]] = {
        "anthropic": {
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                },
                {"type": "text", "text": "what is it?"},
            ],
        },
        "openai_chat": {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": picture}},
                {"type": "text", "text": "what is it?"},
            ],
        },
        "openai_responses": {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": picture, "detail": "auto"},
                {"type": "input_text", "text": "what is it?"},
            ],
        },
    }
    answered: dict[str, dict[str, Any]] = {
        "anthropic": {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "blue", "is_error": True}
            ],
        },
        "openai_chat": {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
        "openai_responses": {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
    }
    replies = {"anthropic": anthropic_reply, "openai_chat": chat_reply, "openai_responses": responses_reply}
    return {name: read([asked[name], replies[name], answered[name]]) for name in replies}


@pytest.mark.parametrize("source", ["anthropic", "openai_chat", "openai_responses"])
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "openai_responses"])
def test_the_sdk_accepts_what_comes_out(
    source: str, target: str, conversations: dict[str, list[Message]], checks: dict[str, Check]
) -> None:
    request = write(conversations[source], target)
    assert problems(request, target) == []
    checks[target](request.messages)
    calls = [
        call.name for message in read(request.messages, dialect=target) for call in meaning_of(message).calls
    ]
    assert calls == ["look"]


def test_the_sdk_types_do_refuse(checks: dict[str, Check]) -> None:
    """The check can fail: what is wrong for each is refused by it."""
    from pydantic import ValidationError

    wrong: dict[str, dict[str, Any]] = {
        "anthropic": {"role": "tool", "content": "x"},
        "openai_chat": {"role": "user", "content": [{"type": "tool_result"}]},
        "openai_responses": {"type": "function_call", "name": "look"},
    }
    for target, message in wrong.items():
        with pytest.raises(ValidationError):
            checks[target]([message])
