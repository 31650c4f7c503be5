"""A message without its words: nothing of them is left, and every window with it stays valid."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aforesaid.dialects import meaning_of, read, tombstone_of, write
from aforesaid.dialects.tombstones import MARK, TAG
from aforesaid.model.messages import Message, Speech
from aforesaid.model.wire import encode_message
from aforesaid.testing.histories import STATES, State
from aforesaid.windows import WindowPolicy, build_window
from tests.examples import examples
from tests.unit.windows.logs import histories, policies, words
from tests.unit.windows.test_validity import check_valid

SECRET = "xyzzy-the-secret"

SAID: list[dict[str, Any]] = [
    {"role": "user", "content": SECRET},
    {"role": "user", "content": SECRET, "name": SECRET, "x_unknown": {"deep": [SECRET]}},
    {"role": "user", "content": {"any": ["json", SECRET]}, "timestamp": None},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": SECRET, "signature": SECRET},
            {"type": "text", "text": SECRET, "citations": [{"cited_text": SECRET}]},
            {"type": "tool_use", "id": "call-1", "name": "look", "input": {"where": SECRET}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "call-1",
                "content": [{"type": "text", "text": SECRET}],
                "is_error": True,
            },
            {"type": "image", "source": {"type": "url", "url": f"https://example.org/{SECRET}"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": SECRET,
        "tool_calls": [
            {
                "id": "call-2",
                "type": "function",
                "function": {"name": "look", "arguments": f'{{"a":"{SECRET}"}}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call-2", "content": SECRET},
    {"type": "function_call", "call_id": "call-3", "name": "look", "arguments": f'{{"a":"{SECRET}"}}'},
    {"type": "function_call_output", "call_id": "call-3", "output": SECRET},
    {"type": "custom_tool_call", "call_id": "call-4", "name": "run", "input": SECRET},
    {"type": "shell_call", "call_id": "call-5", "action": {"commands": [SECRET], "timeout_ms": 5}},
    {"type": "computer_call", "call_id": "call-6", "action": {"type": "type", "text": SECRET}},
    {
        "type": "computer_call_output",
        "call_id": "call-6",
        "output": {"type": "computer_screenshot", "image_url": SECRET},
    },
    {"type": "reasoning", "id": "rs-1", "summary": [{"text": SECRET}], "encrypted_content": SECRET},
    {"type": "web_search_call", "id": "ws-1", "action": {"query": SECRET}},
]


@pytest.mark.parametrize("document", SAID, ids=lambda document: document.get("type", document.get("role")))
def test_nothing_of_the_words_is_left_and_what_ties_messages_stays(document: dict[str, Any]) -> None:
    (message,) = read(document)
    blank = tombstone_of(message)
    assert SECRET.encode() not in encode_message(blank)
    assert TAG in blank.tags
    assert (blank.role, blank.dialect) == (message.role, message.dialect)
    before, after = meaning_of(message), meaning_of(blank)
    assert [(call.id, call.name) for call in after.calls] == [(call.id, call.name) for call in before.calls]
    assert [(one.call_id, one.is_error) for one in after.results] == [
        (one.call_id, one.is_error) for one in before.results
    ]
    assert not after.thinking
    assert tombstone_of(blank) == blank


def test_the_mark_stands_where_the_words_stood() -> None:
    message = Message(role="user", content="secret", message_id="m", agent_name="home", tags=("a",))
    blank = tombstone_of(message, mark="[removed on request]")
    assert blank.content == "[removed on request]"
    assert (blank.message_id, blank.agent_name, blank.tags) == ("m", "home", ("a", TAG))
    (said,) = read(
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    )
    assert tombstone_of(said).content == [{"type": "text", "text": MARK}]


@pytest.mark.parametrize("state", STATES)
@examples(100)
@given(data=st.data(), policy=policies())
def test_windows_stay_valid(state: State, data: st.DataObject, policy: WindowPolicy) -> None:
    entries = data.draw(histories(state)).entries
    chosen = data.draw(st.sets(st.integers(0, max(0, len(entries) - 1)), max_size=4))
    redacted = [
        replace(entry, message=tombstone_of(entry.message)) if place in chosen else entry
        for place, entry in enumerate(entries)
    ]
    check_valid(build_window(redacted, policy, cost=words), redacted, policy)


def test_a_blank_message_is_written_in_every_dialect() -> None:
    for document in SAID:
        (message,) = read(document)
        for dialect in ("plain", "anthropic", "openai_chat", "openai_responses"):
            assert SECRET not in json.dumps(write([tombstone_of(message)], dialect).messages)


def test_the_spoken_form_goes_with_the_content() -> None:
    spoken = Message(role="assistant", content=SECRET, speech=Speech(spoken=SECRET, heard=3))
    assert tombstone_of(spoken).speech is None
    assert SECRET.encode() not in encode_message(tombstone_of(spoken))
