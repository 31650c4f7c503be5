"""The same dialect out: equal to what went in, dict for dict, whatever it held."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.dialects import DIALECTS, read, write
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.testing.validity import problems
from tests.examples import examples
from tests.unit.dialects.histories import RENDERERS, History, decorated, histories

pytestmark = pytest.mark.slow


def prompt_apart(dialect: str, messages: list[dict[str, Any]]) -> tuple[Any, list[dict[str, Any]]]:
    """Three dialects take the system prompt apart from the messages; the rest keep it in the list."""
    if messages[0]["role"] != "system":
        return None, messages
    if dialect in ("anthropic", "bedrock"):
        return messages[0]["content"], messages[1:]
    if dialect == "gemini":
        return {"parts": messages[0]["parts"]}, messages[1:]
    return None, messages


@pytest.mark.parametrize("dialect", DIALECTS)
@examples(50)
@given(data=st.data())
def test_same_dialect_out_equals_what_went_in_also_after_storage(dialect: str, data: st.DataObject) -> None:
    given_messages = data.draw(decorated(dialect))
    system, expected = prompt_apart(dialect, given_messages)
    messages = read(given_messages, dialect=dialect)
    request = write(messages, dialect)
    assert request.messages == expected
    assert request.system == system
    stored = [decode_message(encode_message(message)) for message in messages]
    assert write(stored, dialect).messages == expected


@examples(50)
@given(history=histories)
def test_a_guessed_dialect_round_trips_too(history: History) -> None:
    """Whatever the guess is, the messages of a list come out in it as they went in."""
    has_calls = any(exchange.steps for exchange in history.exchanges)
    for dialect in DIALECTS:
        given_messages = RENDERERS[dialect](history)
        messages = read(given_messages)
        assert len({message.dialect for message in messages}) == 1, dialect
        guessed = messages[0].dialect
        if has_calls:
            assert guessed == dialect
        if guessed == dialect:
            assert write(messages, dialect).messages == prompt_apart(dialect, given_messages)[1], dialect


@examples(50)
@given(history=histories)
def test_the_histories_are_what_a_provider_takes(history: History) -> None:
    for dialect in DIALECTS:
        assert problems(prompt_apart(dialect, RENDERERS[dialect](history))[1], dialect) == [], dialect


def test_a_known_input_is_not_changed_by_reading_or_writing() -> None:
    given_messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello", "citations": None}]},
    ]
    before = repr(given_messages)
    write(read(given_messages), "openai_chat")
    assert repr(given_messages) == before
