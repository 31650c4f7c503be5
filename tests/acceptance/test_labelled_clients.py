"""Which clients the sentences of the labelled sets name. No rule was tuned on the held-out halves."""

import pytest
from benchmarks.clients import LANGUAGES, half_of, judge, load, load_nobody, load_spoken


@pytest.mark.parametrize("half", ["development", "held-out"])
def test_the_labelled_set_comes_out_as_asked(half: str) -> None:
    people, sentences = load()
    own = [sentence for sentence in sentences if half_of(sentence["text"]) == half]
    assert len(people) >= 200
    assert len(own) >= 300
    assert sum("client" not in one and "candidates" not in one for one in own) >= len(own) / 2
    tally = judge(people, own)
    assert tally.precision >= 0.98
    assert tally.recall >= 0.90
    assert tally.several_right >= 0.9 * tally.several


@pytest.mark.parametrize("half", ["development", "held-out"])
def test_short_sentences_in_four_languages_reach_the_targets(half: str) -> None:
    people, sentences = load_spoken()
    assert len(sentences) >= 600
    assert {one["language"] for one in sentences} == set(LANGUAGES)
    tally = judge(people, [one for one in sentences if half_of(one["text"]) == half])
    assert tally.precision >= 0.98
    assert tally.recall >= 0.92
    assert tally.false_names <= 0.01 * tally.sentences
    assert tally.several_right >= 0.9 * tally.several


@pytest.mark.parametrize(("half", "most"), [("development", 0.01), ("held-out", 0.03)])
def test_sentences_with_names_of_others_seldom_name_a_client(half: str, most: float) -> None:
    people, sentences = load_nobody()
    assert len(sentences) >= 300
    tally = judge(people, [one for one in sentences if half_of(one["text"]) == half])
    assert tally.false_names <= most * tally.sentences


def test_of_all_held_out_sentences_one_in_a_hundred_at_most_names_a_client_wrongly() -> None:
    sets = [load(), load_spoken()]
    own = [(people, [one for one in all_ if half_of(one["text"]) == "held-out"]) for people, all_ in sets]
    tallies = [judge(people, sentences) for people, sentences in own]
    assert sum(one.false_names for one in tallies) <= 0.01 * sum(one.sentences for one in tallies)
