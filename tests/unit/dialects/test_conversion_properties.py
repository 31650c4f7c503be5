"""Any valid history, from any dialect to any other: the provider takes it, and nothing said is lost."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.dialects import DIALECTS, meaning_of, read, write
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems
from tests.examples import examples
from tests.unit.dialects.histories import RENDERERS, History, decorated, histories

pytestmark = pytest.mark.slow

PAIRS = [(source, target) for source in DIALECTS for target in DIALECTS if source != target]


# Making a history takes longer than converting it, so each one is converted to every other dialect.


@pytest.mark.parametrize("source", DIALECTS)
@examples(30)
@given(data=st.data())
def test_any_history_is_valid_in_any_dialect(source: str, data: st.DataObject) -> None:
    messages = read(data.draw(decorated(source)), dialect=source)
    for target in DIALECTS:
        assert target == source or problems(write(messages, target), target) == [], target


@examples(60)
@given(history=histories)
def test_calls_and_results_arrive_with_their_ids(history: History) -> None:
    for source, target in PAIRS:
        messages = read(RENDERERS[source](history), dialect=source)
        arrived = read(write(messages, target).messages, dialect=target)
        if target == "gemini":  # it pairs calls by order, so a converted call needs no id
            assert [name for _, name in _calls(arrived)] == [name for _, name in _calls(messages)], source
            assert len(_answered(arrived)) == len(_answered(messages)), source
            continue
        assert _calls(arrived) == _calls(messages), (source, target)
        assert sorted(_answered(arrived)) == sorted(_answered(messages)), (source, target)


@examples(60)
@given(history=histories)
def test_no_word_is_lost(history: History) -> None:
    for source, target in PAIRS:
        request = write(read(RENDERERS[source](history), dialect=source), target)
        said = "\n".join(meaning_of(message).text for message in read(request.messages, dialect=target))
        for exchange in history.exchanges:
            assert exchange.last in said, (source, target)
            assert all(asked in said for asked in exchange.asks), (source, target)
        if history.system is not None:
            assert history.system in (said if request.system is None else _words(request.system)), (
                source,
                target,
            )


@examples(50)
@given(data=st.data(), target=st.sampled_from(sorted(DIALECTS)))
def test_a_conversation_that_changed_its_provider_is_valid(data: st.DataObject, target: str) -> None:
    """Parts in different dialects, one after the other, as when an assistant moves house."""
    messages: list[Message] = []
    for number, source in enumerate(data.draw(st.permutations(sorted(DIALECTS)))):
        rendered = RENDERERS[source](data.draw(histories))
        messages.extend(read(_renumbered(rendered, number), dialect=source))
    assert problems(write(messages, target), target) == []


@examples(100)
@given(data=st.data(), target=st.sampled_from(sorted(DIALECTS)))
def test_results_that_arrived_late_go_back_to_their_calls(data: st.DataObject, target: str) -> None:
    """Something said while the tool was running stands between call and result in the log."""
    source = data.draw(st.sampled_from(sorted(DIALECTS)))
    messages = read(RENDERERS[source](data.draw(histories)), dialect=source)
    late = _with_interruptions(messages, data)
    assert problems(write(late, target), target) == []


def _with_interruptions(messages: list[Message], data: st.DataObject) -> list[Message]:
    interrupted: list[Message] = []
    for message in messages:
        is_late = data.draw(st.booleans())
        if is_late and meaning_of(message).results:
            interrupted.append(Message(role="user", content="are you there?"))
        interrupted.append(message)
    return interrupted


def _renumbered(document: Any, number: int) -> Any:
    """The same with other call ids, so that histories can be joined."""
    match document:
        case str() if document.startswith("call_"):
            return f"{document}_{number}"
        case list():
            return [_renumbered(item, number) for item in document]
        case dict():
            return {key: _renumbered(value, number) for key, value in document.items()}
        case _:
            return document


def _words(system: Any) -> str:
    """The text of a system prompt in the form of any provider."""
    match system:
        case str():
            return system
        case {"parts": list(parts)}:
            return _words(parts)
        case list():
            return "\n".join(str(block["text"]) for block in system)
    return ""


def _calls(messages: Iterable[Message]) -> list[tuple[str, str]]:
    return [(call.id, call.name) for message in messages for call in meaning_of(message).calls]


def _answered(messages: Iterable[Message]) -> list[str]:
    return [result.call_id for message in messages for result in meaning_of(message).results]
