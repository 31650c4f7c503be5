"""Terms that are new, by log-odds with a prior: no term of few conversations, no name, no chance finding."""

import random
from datetime import date

import pytest

from aforesaid.analytics.topics import (
    LEAST_CONVERSATIONS,
    NewTerm,
    Topics,
    lexical_similarity,
    new_terms,
    parse_topic,
    words_of,
)
from aforesaid.errors import InvalidInput

COMMON = ["door", "window", "garden", "kitchen", "invoice", "delivery", "friday", "morning"]


def said(seed: int, number: int, *extra: str) -> list[dict[str, str]]:
    """Conversations of common words, the first of which contain the extra words."""
    choose = random.Random(seed)
    return [words_of([" ".join(choose.sample(COMMON, 4)), *extra]) for _ in range(number)]


def test_a_term_that_became_frequent_is_new_and_shown_as_a_word() -> None:
    now = said(1, 90) + said(2, 10, "The boilers are leaking!")
    before = said(3, 100)
    found = {one.term: one for one in new_terms(now, before, without=frozenset())}
    assert set(found) == {"boilers", "leaking"}
    assert (found["boilers"].conversations, found["boilers"].before) == (10, 0)
    assert new_terms(before, before, without=frozenset()) == ()
    assert new_terms(now, [], without=frozenset()) == ()


def test_a_term_of_few_conversations_and_a_name_are_not_shown() -> None:
    few = said(1, 96) + said(2, LEAST_CONVERSATIONS - 1, "zeppelin")
    assert new_terms(few, said(3, 500), without=frozenset()) == ()
    named = said(1, 90) + said(2, 10, "Mrs. Finch called")
    terms = {one.term for one in new_terms(named, said(3, 100), without=frozenset({"finch"}))}
    assert "finch" not in terms
    assert "called" in terms


def test_a_rare_word_form_is_not_shown() -> None:
    """Each form occurs in fewer than five conversations, the stem in more."""
    now = said(1, 88) + said(2, 4, "boil") + said(4, 4, "boils") + said(5, 4, "boiled")
    (found,) = new_terms(now, said(3, 100), without=frozenset())
    assert found.conversations == 12
    assert found.term == "boil"


def test_sentences_are_compared_by_content_words() -> None:
    assert lexical_similarity("Our roof leaks again", "The roof leaks.") > 0.6
    assert lexical_similarity("Our roof leaks", "When do you open?") == 0
    assert lexical_similarity("", "x") == 0


@pytest.mark.parametrize(
    ("name", "examples"),
    [("", ["a roof"]), ("x" * 101, ["a roof"]), ("roofs", []), ("roofs", ["?!"]), ("roofs", ["roof " * 200])],
)
def test_a_topic_needs_a_name_and_examples_with_words(name: str, examples: list[str]) -> None:
    with pytest.raises(InvalidInput):
        parse_topic(name, examples)


def test_a_spreadsheet_runs_no_term() -> None:
    term = NewTerm(term="=1+1", conversations=5, before=0, score=2.0)
    day = date(2026, 1, 1)
    report = Topics(first_day=day, last_day=day, conversations=5, left_out=False, new_terms=(term,))
    assert "'=1+1" in report.to_csv()
