"""What a voice says of an answer: words, whole sentences, and an end."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aforesaid.spoken_answers import (
    SPOKEN_LIMIT,
    cut_at_sentence,
    heard_after,
    heard_length,
    spoken_form,
    without_markup,
    word_end,
)

MARKDOWN = """# Chicken dinner

Here is **what** you *need* for `lemon_chicken`:

- 1 chicken (about 1.5 kg)
* two lemons, see [the shop](https://www.example.com/x?y=1)
- [x] salt![picture](a.png)

1. Heat the oven to 180 °C.
2) Wait!

```python
print("nobody reads this aloud")
```

| dish | time |
|------|-----:|
| soup | 20 min |

---

> Quoted 5 * 3 * 2 and snake_case_name and \\*stars\\*.[^1]
See https://www.example.org/a/b. <b>Old</b> ~~gone~~ ***both***, <https://example.net/c>!
"""


def test_markup_is_not_read_aloud() -> None:
    assert without_markup(MARKDOWN).split("\n") == [
        "Chicken dinner.",
        "Here is what you need for lemon_chicken:",
        "1 chicken (about 1.5 kg).",
        "two lemons, see the shop.",
        "saltpicture.",
        "1. Heat the oven to 180 °C.",
        "2. Wait!",
        "dish, time.",
        "soup, 20 min.",
        "Quoted 5 * 3 * 2 and snake_case_name and *stars*.",
        "See example.org. Old gone both, example.net!",
    ]


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("One. Two. Three.", 16, "One. Two. Three."),
        ("One. Two. Three.", 15, "One. Two."),
        ("Dr. Smith lives at St. John's. He came at 9 a.m. on Monday.", 49, "Dr. Smith lives at St. John's."),
        ("It opens at 9 a.m. The rest is closed today.", 30, "It opens at 9 a.m."),
        ("The invoice was 45. Of that, you have paid nothing yet.", 40, "The invoice was 45."),
        ("Room 7. The key is below the mat at the door.", 30, "Room 7."),
        ("We need tiles, grout etc. Then we can begin.", 30, "We need tiles, grout etc."),
        ("Use e.g. Kerakoll. Then wait for a whole day.", 25, "Use e.g. Kerakoll."),
        ("1. Take the first one. 2. Wait here for a long time.", 30, "1. Take the first one."),
        ("Der 2. Stock ist fertig. Dann kommt das Dach.", 30, "Der 2. Stock ist fertig."),
        ("Mr. J. R. Smith paid $3.50. Then he left the house.", 40, "Mr. J. R. Smith paid $3.50."),
        ('He said "Stop." Then he left the room.', 30, 'He said "Stop."'),
        ("Am 3. Mai kommt z.B. Herr Dr. Müller. Dann geht er.", 45, "Am 3. Mai kommt z.B. Herr Dr. Müller."),
        ("Creo que no. ¿Por qué? Además hay más cosas.", 30, "Creo que no. ¿Por qué?"),
        ("Il est là ! Mme. Dupont arrive bientôt chez nous.", 30, "Il est là !"),
        ("Dat is bijv. Jan. Hij komt straks naar huis.", 25, "Dat is bijv. Jan."),
        ("这是第一句。这是第二句！还有第三句。", 13, "这是第一句。这是第二句！"),
        ("هل أنت هنا؟ نعم أنا هنا في البيت", 20, "هل أنت هنا؟"),
        ("यह पहला है। यह दूसरा वाक्य है।", 20, "यह पहला है।"),
        ("See No. 5 and more. Then go away now.", 25, "See No. 5 and more."),
    ],
)
def test_a_cut_is_at_a_sentence_end(text: str, limit: int, cut: str) -> None:
    assert cut_at_sentence(text, limit) == cut


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("It costs exactly 3.50 euros and not more", 20, "It costs exactly…"),
        ("first of all, there is this, and that goes on and on", 30, "first of all, there is this…"),
        ("supercalifragilistic", 10, "supercali…"),
        ("1. take this one home, and then that one", 3, "1…"),
        ("it was 45.\u00a0and some more of it goes on", 11, "it was 45…"),
        ("e\u0301" * 10, 4, "e\u0301…"),
        ('so he said "never again" and went', 15, "so he said…"),
    ],
)
def test_a_sentence_that_is_too_long_is_cut_between_words(text: str, limit: int, cut: str) -> None:
    assert cut_at_sentence(text, limit) == cut


words = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd", "Mn"]), min_size=1, max_size=12)
sentences = st.lists(words | st.sampled_from(["Dr.", "z.B.", "3.", "4.5", "**x**", "(a)", "end.", "。"]))


@given(words=sentences, limit=st.integers(1, 60))
@example(words=["x" * 900], limit=800)
def test_a_cut_keeps_within_the_limit_and_says_what_was_said(words: list[str], limit: int) -> None:
    text = " ".join(words)
    cut = cut_at_sentence(text, limit)
    assert len(cut) <= limit
    assert text.startswith(cut if cut == text else cut.removesuffix("…"))
    if len(text) <= limit:
        assert cut == text


@given(text=st.text())
def test_any_text_has_a_spoken_form(text: str) -> None:
    said = spoken_form(text)
    assert len(said) <= SPOKEN_LIMIT
    assert "\0" not in said
    said.encode()


def test_items_of_a_list_are_sentences() -> None:
    said = spoken_form("Do it now:\n- Take the *first* one home\n- Wait here for a long time", limit=40)
    assert said == "Do it now:\nTake the first one home."


def test_a_short_answer_is_spoken_whole() -> None:
    assert spoken_form("It is done.") == "It is done."
    long = "This is a sentence. " * 100
    assert spoken_form(long) == ("This is a sentence. " * 40).strip()


@pytest.mark.parametrize(
    ("heard", "characters"),
    [
        ("", 0),
        ("the Johnson", 11),
        ("The  johnson, house", 18),
        ("The John", 3),
        ("The Johnson house, is fine", 27),
        ("A", None),
        ("The Johnson house is fine today", None),
    ],
)
def test_what_was_heard_is_found_in_what_was_spoken(heard: str, characters: int | None) -> None:
    assert heard_length("The Johnson house, is fine.", heard) == characters


def test_what_was_heard_is_estimated_from_what_was_played() -> None:
    spoken = "The Johnson house is fine"
    assert heard_after(spoken, 0, 2) == 0
    assert spoken[: heard_after(spoken, 1, 2)] == "The Johnson"
    assert heard_after(spoken, 2, 2) == len(spoken)
    assert heard_after(spoken, 1, 0) == len(spoken)


@given(text=st.text(max_size=40), at=st.integers(-3, 50))
def test_a_word_end_is_in_the_text(text: str, at: int) -> None:
    end = word_end(text, at)
    assert 0 <= end <= max(0, min(at, len(text)))
