"""The rules of notes: what is the same subject, what holds, what is found, what fits."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contracts import Document
from aforesaid.errors import InvalidInput
from aforesaid.notes.records import (
    HEADING,
    LONGEST_NOTE,
    LONGEST_SUBJECT,
    MOST_EARLIER,
    Note,
    after,
    decode_note,
    encode_note,
    fitted,
    meant,
    parse_expiry,
    parse_note_text,
    parse_subject,
    ranked,
    standing,
    subject_key,
    subject_of,
    superfluous,
)

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def note(number: int, text: str, *, subject: str | None = None, **fields: object) -> Note:
    return Note(
        id=f"n{number}",
        text=text,
        subject=subject or subject_of(text),
        remembered_at=NOW + timedelta(minutes=number),
        **fields,  # type: ignore[arg-type]
    )


SAME = [
    ("The bedroom lights are dim at 9 pm", "Bedroom lights are dim at 10 pm"),
    ("The bedroom lights are dim", "the lights of the bedroom are bright"),
    ("My name is Erin", "my name is Eryn"),
    ("The wifi password is hunter2", "Please remember that the wifi password is hunter3"),
    ("Erin's birthday is on 3 May", "Erin's birthday is on the 4th of May"),
    ("Bin day: Thursday", "Bin day is Friday"),
    ("I like black tea", "I like black tea!"),
    ("Der Code der Alarmanlage ist 1234", "Der Code der Alarmanlage ist 4321"),
]
OTHER = [
    ("The bedroom lights are dim at 9 pm", "The kitchen lights are dim at 9 pm"),
    ("I like tea", "I like dark rooms"),
    ("I am allergic to nuts", "I am a teacher"),
    ("The car is red", "The car is in the garage"),
    ("Erin Smith is a doctor", "Erin Smith is allergic to nuts"),
    ("Erin is a doctor", "Erin is forty"),
    ("Grandma visits on Sundays", "Grandma visits Rome"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_sentences_on_the_same_subject(one: str, other: str) -> None:
    assert subject_key(subject_of(one)) == subject_key(subject_of(other))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_two_sentences_on_different_subjects(one: str, other: str) -> None:
    assert subject_key(subject_of(one)) != subject_key(subject_of(other))


def test_a_subject_that_is_named_is_the_same_as_one_that_is_taken_from_a_sentence() -> None:
    assert subject_key("bedroom lights") == subject_key(subject_of("The bedroom lights are dim at 9 pm"))


@given(text=st.text(min_size=1, max_size=300))
def test_any_text_has_a_subject_that_has_a_key(text: str) -> None:
    assert len(subject_of(text)) <= max(LONGEST_SUBJECT, len(text))
    assert subject_key(subject_of(text))


def test_the_latest_note_of_a_subject_holds_and_the_others_are_its_history() -> None:
    notes = [note(n, f"The bedroom lights are dim at {n} pm") for n in (1, 2, 3)]
    for order in permutations([*notes, note(4, "I like tea")]):
        there = standing(order, now=NOW)
        assert [one.id for one in there.current] == ["n3", "n4"]
        assert [(one.id, one.replaced_by) for one in there.replaced] == [("n1", "n3"), ("n2", "n3")]


def test_where_the_latest_has_expired_the_older_ones_do_not_come_back() -> None:
    over = note(2, "The bedroom lights are off", expires_at=NOW + timedelta(hours=1))
    notes = [note(1, "The bedroom lights are dim"), over]
    assert [one.id for one in standing(notes, now=NOW).current] == ["n2"]
    there = standing(notes, now=NOW + timedelta(hours=1))
    assert there.current == ()
    assert {one.id for one in there.expired} == {"n1", "n2"}


def test_only_so_many_replaced_notes_are_kept_for_a_subject() -> None:
    notes = [note(n, f"My name is number {n}") for n in range(MOST_EARLIER + 4)]
    there = standing([*notes, note(-1, "I like tea")], now=NOW)
    assert {one.id for one in superfluous(there.replaced)} == {"n0", "n1", "n2"}


@given(st.lists(st.integers(-5, 5), max_size=4), st.integers(-5, 5))
def test_what_is_said_later_is_later_also_where_the_clock_is_not(ages: list[int], now: int) -> None:
    notes = [note(age, "x") for age in ages]
    moment = after(notes, NOW + timedelta(minutes=now))
    assert moment >= NOW + timedelta(minutes=now)
    assert all(one.remembered_at < moment for one in notes)


# Finding

HOUSE = [
    note(1, "The bedroom lights are dim at 9 pm", tags=("home",)),
    note(2, "The kitchen lights are bright in the morning", tags=("home",)),
    note(3, "I am allergic to peanuts", subject="allergies"),
]


def found(query: str, similarities: list[float] | None = None) -> list[str]:
    return [one.id for _, one in ranked(HOUSE, query, similarities)]


def test_a_question_finds_notes_by_their_words_the_rarest_first() -> None:
    assert found("when do the bedroom lights get dim?") == ["n1", "n2"]
    assert found("lights") == ["n2", "n1"], "alike: the latest first"
    assert found("allergy") == ["n3"], "by its subject"
    assert found("anything about home") == ["n2", "n1"], "by its tag"
    assert found("bicycle") == []


def test_a_question_finds_by_meaning_what_shares_no_word() -> None:
    assert found("what is dangerous for me", [0.1, 0.05, 0.5]) == ["n3"]
    assert found("what is dangerous for me", [0.1, 0.05, 0.2]) == []
    assert found("what must I not eat", [0.1, 0.05, 0.12]) == ["n3"], "food and allergies are related"
    assert found("bedroom", [0.3, 0.9, 0.1])[0] == "n1", "a word that is there goes before"


def test_who_wants_to_be_rid_of_a_note_names_it() -> None:
    assert [one.id for one in meant(HOUSE, "n2")] == ["n2"]
    assert [one.id for one in meant(HOUSE, "allergies")] == ["n3"]
    assert [one.id for one in meant(HOUSE, "the bedroom lights")] == ["n1"], "this subject, and no other"
    assert [one.id for one in meant(HOUSE, "lights")] == ["n1", "n2"]
    assert meant(HOUSE, "lights in the bathroom") == [], "a word that is not there is no match"
    assert meant(HOUSE, "the") == [], "nothing is said with it"


# In a context


def count(text: str) -> int:
    return len(text.split())


def test_all_notes_fit_or_the_latest_do_and_the_important_ones_first() -> None:
    notes = [note(1, "one two three", tags=("important",)), *(note(n, "one two three") for n in (2, 3, 4))]
    room = count(HEADING)
    all_of_them = fitted(notes, tokens=room + 100, count=count)
    assert all_of_them.shown == ("n1", "n2", "n3", "n4")
    assert all_of_them.text.splitlines()[1] == "- one two three (2026-03-01)"
    some = fitted(notes, tokens=room + 2 * 6, count=count)
    assert (some.shown, some.left_out) == (("n1", "n4"), ("n2", "n3"))
    none = fitted(notes, tokens=room, count=count)
    assert (none.text, none.shown, len(none.left_out)) == ("", (), 4)
    assert none.message is None


@given(st.lists(st.integers(1, 30), max_size=8, unique=True), st.integers(0, 200))
def test_the_text_stays_within_its_budget_and_is_always_the_same(numbers: list[int], tokens: int) -> None:
    notes = [note(n, "word " * n) for n in numbers]
    shown = fitted(notes, tokens=tokens, count=count)
    assert count(shown.text) <= tokens
    assert sorted((*shown.shown, *shown.left_out)) == sorted(one.id for one in notes)
    assert fitted(notes[::-1], tokens=tokens, count=count) == shown


def test_a_new_note_comes_at_the_end_so_that_what_stands_before_stays() -> None:
    before = fitted(HOUSE, tokens=500, count=count).text
    assert fitted([*HOUSE, note(9, "I like tea")], tokens=500, count=count).text.startswith(before)


# Checking


@pytest.mark.parametrize("text", ["", "  ", "?!", "a\0b", "\ud800x", 7, None, "x" * (LONGEST_NOTE + 1)])
def test_what_is_no_note_is_refused(text: object) -> None:
    with pytest.raises(InvalidInput, match="text"):
        parse_note_text(text)


def test_a_note_is_one_line() -> None:
    assert parse_note_text(" two\n lines ") == "two lines"


@pytest.mark.parametrize("subject", ["", " ", 7, "x" * (LONGEST_SUBJECT + 1)])
def test_what_is_no_subject_is_refused(subject: object) -> None:
    with pytest.raises(InvalidInput, match="subject"):
        parse_subject(subject)


@pytest.mark.parametrize(
    "expires", [NOW, NOW - timedelta(1), "2026-04-01", "tomorrow", 7, datetime(2027, 1, 1)]
)
def test_what_is_no_moment_to_come_is_refused(expires: object) -> None:
    with pytest.raises(InvalidInput, match="expires"):
        parse_expiry(expires, now=NOW)


def _document(data: bytes, key: str = "n1") -> Document:
    return Document(kind="notes", key=key, data=data, version=1, updated_at=NOW)


def test_a_note_comes_back_as_it_was_and_damage_is_set_aside() -> None:
    one = note(1, "The bedroom lights are dim", tags=("home",), expires_at=NOW + timedelta(1))
    assert decode_note(_document(encode_note(one))) == one
    assert decode_note(_document(b"\xff")) is None
    assert decode_note(_document(encode_note(one), key="n2")) is None
