"""What makes one message score above another."""

from collections.abc import Container, Sequence
from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from aforesaid.contracts import Match, Matches, Position
from aforesaid.model.clock import to_micros
from aforesaid.model.messages import Role
from aforesaid.search.bm25 import rarity
from aforesaid.search.cues import NUMBER, WISH, Cues
from aforesaid.search.dates import Period
from aforesaid.search.ranking import PARTS, AnalyzedQuestion, Neighbour, Ranking, rank

DAY = to_micros(datetime(2026, 3, 1, tzinfo=UTC))


class Vectors(Struct):
    by_sequence: dict[int, float]
    nearest: Sequence[Neighbour] = ()
    lowest: float = 0.0
    highest: float = 1.0
    flags_by_sequence: dict[int, int] = {}

    def of(self, messages: Sequence[tuple[str, int]]) -> list[float | None]:
        return [self.by_sequence.get(sequence) for _, sequence in messages]

    def cosines(self, messages: Sequence[tuple[str, int]]) -> list[float | None]:
        return self.of(messages)

    def likeness(
        self, best: Sequence[tuple[str, int]], messages: Sequence[tuple[str, int]]
    ) -> list[float | None]:
        return [None] * len(messages)

    def flags(self, messages: Sequence[tuple[str, int]]) -> list[int]:
        return [self.flags_by_sequence.get(sequence, 0) for _, sequence in messages]

    def within(self, conversations: Container[str]) -> list[Neighbour]:
        return [one for one in self.nearest if one.conversation_id in conversations]


def match(
    sequence: int,
    *counts: int,
    role: Role = "user",
    length: int = 10,
    conversation: str = "a",
    micros: int = DAY,
) -> Match:
    return Match(
        conversation_id=conversation,
        position=Position(micros, sequence),
        role=role,
        counts=counts,
        length=length,
    )


def ranked(
    *found: Match,
    terms: int = 1,
    periods: tuple[Period, ...] = (),
    vectors: Vectors | None = None,
    cues: Cues = Cues(),  # noqa: B008  a frozen value
) -> Ranking:
    matches = Matches(found=found, frequencies=(3,) * terms * 2, messages=100, terms=1_000)
    named = tuple(f"t{number}" for number in range(terms))
    asked = AnalyzedQuestion(terms=named, periods=periods, cues=cues, zone=UTC)
    return rank(asked, matches, vectors)


def order(ranking: Ranking) -> list[int]:
    return [one.position.sequence for one in ranking.ordered]


def test_more_of_the_question_is_better() -> None:
    assert order(ranked(match(1, 1, 0, 0, 0), match(5, 1, 1, 0, 0), terms=2)) == [5, 1]


def test_a_shorter_message_with_the_same_words_is_better() -> None:
    assert order(ranked(match(1, 1, 0, length=100), match(5, 1, 0, length=5))) == [5, 1]


def test_what_a_person_said_is_better_than_a_long_answer() -> None:
    ranking = ranked(match(1, 1, 0, role="assistant", length=200), match(5, 1, 0, length=200))
    assert order(ranking) == [5, 1]


def test_the_speaker_who_is_named_is_better() -> None:
    assert order(ranked(match(1, 1, 0), match(5, 1, 1))) == [5, 1]


def test_the_time_that_is_named_is_better() -> None:
    earlier = to_micros(datetime(2026, 2, 1, tzinfo=UTC))
    (period,) = (Period(first=date(2026, 2, 1), last=date(2026, 2, 1)),)
    assert order(ranked(match(1, 1, 0), match(5, 1, 0, micros=earlier), periods=(period,))) == [5, 1]


def test_nearer_in_meaning_is_better() -> None:
    assert order(ranked(match(1, 1, 0), match(5, 1, 0), vectors=Vectors({1: 0.2, 5: 0.9}))) == [5, 1]


def test_what_shares_no_word_is_found_by_its_meaning() -> None:
    near = Neighbour("b", Position(DAY, 7), "user", 5, 1.0)
    ranking = ranked(match(1, 1, 0), vectors=Vectors({1: 0.0, 7: 1.0}, nearest=[near]))
    assert set(order(ranking)) == {1, 7}


def test_a_message_without_a_vector_is_judged_by_its_words() -> None:
    ranking = ranked(match(1, 1, 0), match(5, 1, 0), vectors=Vectors({1: 0.5}))
    fresh = next(one for one in ranking.ordered if one.position.sequence == 5)
    assert fresh.similarity is None
    assert order(ranking) == [5, 1]


def test_a_conversation_that_matches_lifts_its_messages() -> None:
    lonely = match(1, 1, 0, conversation="lonely")
    among = [match(number, 1, 0, conversation="about it") for number in (10, 20, 30)]
    assert order(ranked(lonely, *among))[-1] == 1


def test_the_short_message_before_helps() -> None:
    asked, answer = match(4, 1, 0, length=4), match(5, 0, 1)
    other = match(9, 0, 1, micros=DAY + 1)
    assert order(ranked(asked, answer, other)) == [4, 5, 9]


def test_neighbours_that_contain_the_other_terms_help() -> None:
    among = [match(3, 1, 0, 0, 0, role="assistant"), match(4, 0, 1, 0, 0, role="assistant")]
    alone = match(9, 0, 1, 0, 0, role="assistant", conversation="b")
    assert order(ranked(*among, alone, terms=2))[-1] == 9


def test_the_assistants_words_are_better_if_the_question_asks_for_them() -> None:
    found = match(1, 1, 0, role="assistant"), match(5, 1, 0, conversation="b")
    assert order(ranked(*found)) == [5, 1]
    assistant = next(
        one for one in ranked(*found, cues=Cues(assistant=True)).ordered if one.role == "assistant"
    )
    assert assistant.assistant > 0


def test_a_number_and_a_wish_help_only_the_questions_that_need_them() -> None:
    for flag, cues in ((NUMBER, Cues(quantity=True)), (WISH, Cues(request=True))):
        vectors = Vectors({1: 0.5, 5: 0.5}, flags_by_sequence={1: flag})
        found = match(1, 1, 0), match(5, 1, 0, conversation="b", micros=DAY + 1)
        assert order(ranked(*found, vectors=vectors)) == [5, 1]
        assert order(ranked(*found, vectors=vectors, cues=cues)) == [1, 5]


def test_what_scores_alike_is_ordered_by_time() -> None:
    assert order(ranked(match(1, 1, 0), match(5, 1, 0, micros=DAY + 5))) == [5, 1]


counts = st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=1, max_size=12)


@given(counts)
def test_the_parts_add_up_to_the_score(found: list[tuple[int, ...]]) -> None:
    ranking = ranked(*(match(at, *each) for at, each in enumerate(found, 1)), terms=2)
    for one in ranking.ordered:
        parts = ranking.parts(one)
        total = sum(getattr(parts, name) for name in PARTS)
        assert abs(total - one.score) < 1e-9


@given(counts, st.randoms(use_true_random=False))
def test_the_order_in_which_candidates_come_makes_no_difference(
    found: list[tuple[int, ...]], chance: st.DataObject
) -> None:
    matches = [match(at, *each) for at, each in enumerate(found, 1)]
    expected = order(ranked(*matches, terms=2))
    chance.shuffle(matches)  # type: ignore[attr-defined]
    assert order(ranked(*matches, terms=2)) == expected


def test_a_word_in_few_messages_weighs_far_more_than_one_in_most() -> None:
    assert rarity(1, 1000) > 8 * rarity(500, 1000) > 0
    assert rarity(1, 1000) > 2 * rarity(100, 1000)
    assert rarity(1000, 1000) > 0
