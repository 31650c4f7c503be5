"""What a question asks for, and which messages can answer it."""

import pytest

from aforesaid.search.cues import NUMBER, QUESTION, WISH, Cues, cues_of, flags_of


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many cats do I have?", Cues(quantity=True, is_question=True)),
        ("Wann kommt Helen?", Cues(quantity=True, is_question=True)),
        ("Can you suggest a restaurant?", Cues(request=True, is_question=True)),
        ("Peux-tu m'aider avec le repas ?", Cues(request=True, is_question=True)),
        ("What did you recommend for the garden?", Cues(request=True, assistant=True, is_question=True)),
        ("¿Qué libro me recomendaste?", Cues(assistant=True, is_question=True)),
        ("plumber", Cues()),
    ],
)
def test_cues_of_questions(question: str, expected: Cues) -> None:
    assert cues_of(question) == expected


@pytest.mark.parametrize(
    ("text", "role", "expected"),
    [
        ("I always walk to work.", "user", WISH),
        ("You always walk to work.", "assistant", 0),
        ("We paid 240 euros.", "user", NUMBER),
        ("Ich mag lieber Tee um 8.", "user", WISH | NUMBER),
        ("Is it raining?", "user", QUESTION),
        ("The plumber comes tomorrow.", "user", 0),
    ],
)
def test_flags_of_messages(text: str, role: str, expected: int) -> None:
    assert flags_of(text, role) == expected
