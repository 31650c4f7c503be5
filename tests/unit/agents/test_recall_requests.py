"""What a user wants of the recall agent, from their words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.agents.recall_requests import RecallRequest, is_question, parse_request

WISHES = [
    ("hello", "greet", ""),
    ("Good morning!", "greet", ""),
    ("hi there", "greet", ""),
    ("Thanks a lot.", "thank", ""),
    ("bye", "leave", ""),
    ("What can you do?", "help", ""),
    ("who are you?", "help", ""),
    ("remember that the bedroom lights are dim at 9 pm", "remember", "the bedroom lights are dim at 9 pm"),
    ("Please remember: my name is Erin.", "remember", "my name is Erin"),
    ("Don't forget that I am allergic to nuts!", "remember", "I am allergic to nuts"),
    ("note down that bin day is Friday", "remember", "bin day is Friday"),
    ("could you please remember I like tea", "remember", "I like tea"),
    ("forget the bedroom lights", "forget", "the bedroom lights"),
    ("forget what I said about the garden", "forget", "the garden"),
    ("Forget everything about my job.", "forget", "my job"),
    ("forget it", "drop", ""),
    ("never mind", "drop", ""),
    ("what do you know about me?", "list", ""),
    ("show my notes", "list", ""),
    ("What did I say about the bathroom tiles?", "find", "the bathroom tiles"),
    ("what did we talk about last Tuesday?", "find", "last Tuesday"),
    ("when did I mention the dentist", "find", "the dentist"),
    ("did I ever tell you about Rome?", "find", "Rome"),
    ("search for the wifi password", "find", "the wifi password"),
    ("When does the train leave", "find", "the train leave"),
    ("what's the wifi password?", "find", "the wifi password"),
    ("Is the door locked?", "find", "Is the door locked"),
    ("The bathroom tiles are from Porto.", "tell", "The bathroom tiles are from Porto."),
    ("Remember", "tell", "Remember"),
    ("Delete everything I said about the cat.", "delete", "the cat"),
    ("forget everything we said about Rome", "delete", "Rome"),
    ("Remind me tomorrow at nine to call the vet", "remind", "call the vet"),
    ("remind me to buy milk", "remind", "buy milk"),
    ("What happened yesterday?", "find", "yesterday"),
]


@pytest.mark.parametrize(("said", "kind", "about"), WISHES)
def test_words_become_a_wish(said: str, kind: str, about: str) -> None:
    wish = parse_request(said)
    assert (wish.kind, wish.about) == (kind, about)


def test_whose_words_are_asked_for() -> None:
    assert parse_request("what did I say about tea?").speaker == "user"
    assert parse_request("what did you say about tea?").speaker == "assistant"
    assert parse_request("what did we say about tea?").speaker is None


def test_what_was_asked_is_not_what_was_said() -> None:
    assert parse_request("when did I ask about the weather?").wants_questions
    assert parse_request("what did we ask about tea?").wants_questions
    assert not parse_request("what did I say about tea?").wants_questions
    assert not parse_request("what did you ask me about tea?").wants_questions


@pytest.mark.slow
@given(st.text(max_size=300))
def test_any_words_are_a_wish(said: str) -> None:
    assert isinstance(parse_request(said), RecallRequest)
    assert isinstance(is_question(said), bool)
