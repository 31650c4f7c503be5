"""Questions that are asked again within seven days."""

from datetime import UTC, datetime, timedelta
from itertools import combinations
from random import Random

import pytest
from msgspec.structs import replace

from aforesaid.analytics.repeats import LEAST_SIMILARITY, Question, Repeats, repeats_in
from aforesaid.analytics.topics import lexical_similarity

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def asked(days: float, text: str, asker: str | None = None) -> Question:
    return Question(text=text, at=MONDAY + timedelta(days=days), asker=asker)


@pytest.mark.parametrize(
    ("again", "repeated"),
    [
        (asked(6.9, "When will my new roof tiles arrive?"), 1),
        (asked(6.9, "Will my new roof tiles arrive, and when?"), 1),
        (asked(7.1, "When will my new roof tiles arrive?"), 0),
        (asked(1, "When will the painter arrive?"), 0),
        (asked(1, "My new roof tiles arrive on Monday."), 0),
        (asked(1, "When will my new roof tiles arrive?", "another client"), 0),
        (asked(1, "And when?"), 0),
    ],
)
def test_a_similar_question_of_the_same_client_within_seven_days_is_asked_again(
    again: Question, repeated: int
) -> None:
    found = repeats_in([again, asked(0, "When will my new roof tiles arrive?")], since=MONDAY)
    assert found.repeated == repeated


def test_earlier_questions_are_compared_with_and_not_counted() -> None:
    text = "When will my new roof tiles arrive?"
    found = repeats_in([asked(0, text), asked(2, text), asked(3, text)], since=MONDAY + timedelta(days=2.5))
    assert (found.questions, found.repeated, found.share) == (1, 1, 1.0)
    assert repeats_in([], since=MONDAY) == Repeats()


def test_repetitions_are_grouped_by_day_channel_client_and_agent() -> None:
    text = "When will my new roof tiles arrive?"
    found = repeats_in(
        [
            asked(0, text, "finch"),
            replace(asked(1, text, "finch"), channel="email", agent="bot"),
            replace(asked(1.1, "When does the painter finish the garden wall?", "ann"), channel="email"),
        ],
        since=MONDAY,
    )
    groups = {by: [(one.value, one.questions, one.repeated) for one in each] for by, each in found.by.items()}
    assert groups == {
        "day": [("2026-03-02", 1, 0), ("2026-03-03", 2, 1)],
        "channel": [("email", 2, 1), (None, 1, 0)],
        "client": [("finch", 2, 1), ("ann", 1, 0)],
        "agent": [("bot", 1, 1), (None, 2, 0)],
    }
    assert found.by["channel"][0].share == 0.5


def test_comparing_the_rarest_terms_misses_no_repetition() -> None:
    chance = Random(1)
    words = ["roof", "tile", "leak", "boiler", "invoice", "garden", "window", "paint", "cellar"]
    said = [
        asked(number / 1000, " ".join(chance.sample(words, chance.randrange(2, 7))) + "?")
        for number in range(80)
    ]
    similar = {
        later.at
        for first, later in combinations(said, 2)
        if lexical_similarity(first.text, later.text) >= LEAST_SIMILARITY
    }
    assert repeats_in(said, since=MONDAY).repeated == len(similar) > 20
