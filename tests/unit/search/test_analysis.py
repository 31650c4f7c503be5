"""From text to terms."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.model.messages import Message
from aforesaid.search.analysis import LONGEST_TERM, indexed_terms, searchable_text, terms_of
from aforesaid.search.stemmer import stem


@given(st.text(st.characters(codec=None), max_size=300))
def test_any_text_has_terms_that_every_index_can_keep(text: str) -> None:
    for term in terms_of(text):
        assert term.isalnum()
        assert len(term.encode()) <= LONGEST_TERM


@given(st.text(max_size=200))
def test_terms_do_not_depend_on_case(text: str) -> None:
    assert terms_of(text.casefold()) == terms_of(text)


@pytest.mark.parametrize(
    "text",
    ["\ud800abc\0def", "x" * 1_000_000, "漢字" * 200_000, "'" * 10_000, "é" * 100_000, "\u0301" * 9_000],
)
def test_hostile_text_has_terms(text: str) -> None:
    assert all(len(term.encode()) <= LONGEST_TERM for term in terms_of(text))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("painting", "She painted all day"),
        ("where did she go", "I went home"),
        ("child", "both children are well"),
        ("cafe", "the CAFÉ in Zürich"),
        ("ZURICH", "the CAFÉ in Zürich"),
        ("strasse", "in der Bahnhofstraße: Straße"),
        ("été", "l’été dernier"),
        ("Erin", "Erin's new bike"),
        ("猫", "猫が好きです"),
        ("好き", "猫が好きです"),
        ("北京", "我去过北京"),
        ("กินข้าว", "ฉันชอบกินข้าว"),
        ("ﬁnd", "find"),
        ("１２３", "number 123"),
        ("ガーデン", "ｶﾞｰﾃﾞﾝ"),
        ("5'10", "she is 5'10 – taller than me"),
    ],
)
def test_what_is_asked_is_found_in_what_was_said(asked: str, said: str) -> None:
    found = set(indexed_terms(Message(role="user", content=said)))
    assert set(terms_of(asked)) & found


def test_words_without_meaning_are_left_out() -> None:
    assert terms_of("What is it that you don't want to do about the weather?") == ["want", "weather"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("agreed", "agre"),
        ("hopping", "hop"),
        ("filing", "file"),
        ("relational", "relat"),
        ("happiness", "happi"),
        ("adoption", "adopt"),
        ("controlling", "control"),
        ("rate", "rate"),
        ("taught", "teach"),
    ],
)
def test_words_of_one_kind_have_one_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_a_message_is_found_by_who_speaks_and_when() -> None:
    said_at = datetime(2023, 5, 8, tzinfo=UTC)
    message = Message(role="user", content="good morning", timestamp=said_at, extra={"name": "Caroline"})
    assert indexed_terms(message) == ["good", "morn", "carolin", "speakercarolin", "8", "mai", "2023"]
    prefixed = Message(role="user", content="Erin: good morning")
    assert indexed_terms(prefixed) == ["erin", "good", "morn", "speakererin"]


def test_what_tools_were_asked_and_answered_is_found() -> None:
    call = {"type": "tool_use", "id": "1", "name": "weather", "input": {"place": {"city": "Topeka"}}}
    asked = Message(role="assistant", content=[call], dialect="anthropic")
    result = {"type": "tool_result", "tool_use_id": "1", "content": "sunny, 20 degrees"}
    answered = Message(role="user", content=[result], dialect="anthropic")
    assert indexed_terms(asked) == ["topeka"]
    assert searchable_text(answered) == "sunny, 20 degrees"


@pytest.mark.parametrize("content", ["", "?!", "🎂", None])
def test_a_message_without_words_has_no_terms(content: Any) -> None:
    assert indexed_terms(Message(role="user", content=content, timestamp=datetime.now(UTC))) == []


def test_instructions_are_not_found() -> None:
    assert indexed_terms(Message(role="system", content="You are a helpful cook")) == []


def test_the_cache_of_words_is_bounded() -> None:
    from aforesaid.search import analysis

    for number in range(analysis._MOST_CACHED + 10):
        terms_of(f"word{number}")
    assert len(analysis._TERMS) <= analysis._MOST_CACHED
