"""A summary without a model, within its budget: which of twenty facts survive three hundred messages."""

from collections.abc import Iterator, Sequence

import pytest

from aforesaid.model.messages import Message
from aforesaid.summaries.summarizers import extract
from tests.acceptance.planted_facts import HELD_OUT, TUNED, Planted

ANSWERS = (
    "Sure, here is one.",
    "I see.",
    "All right, I have noted that.",
    "The weather will be rainy with up to 14 degrees.",
    "Glad to help.",
)
TURNS = 150
BUDGET = 300


def talk(planted: Planted) -> Iterator[Message]:
    """Yield small talk with a fact in every fifteen messages."""
    facts = iter(planted.facts)
    for number in range(TURNS * 2):
        if number % 2 == 0:
            said = planted.chatter[number // 2 % len(planted.chatter)]
            yield Message(role="user", content=said)
        else:
            yield Message(role="assistant", content=ANSWERS[number % len(ANSWERS)])
        if number % 15 == 7:
            yield Message(role="user", content=next(facts))


def kept(planted: Planted, *, at_once: bool) -> int:
    """Return how many facts the summary has, of all messages at once or of a summary and the rest."""
    messages = list(talk(planted))
    half = 0 if at_once else len(messages) // 2
    earlier = extract("", messages[:half], max_tokens=BUDGET)
    summary = extract(earlier, messages[half:], max_tokens=BUDGET)
    return sum(fact in summary for fact in planted.facts)


@pytest.mark.parametrize("at_once", [True, False], ids=["all messages", "a summary of a summary"])
@pytest.mark.parametrize("sets", [TUNED, HELD_OUT], ids=["tuned", "held out"])
def test_nineteen_of_twenty_facts_survive(sets: Sequence[Planted], at_once: bool) -> None:
    assert all(len(planted.facts) == 20 for planted in sets)
    counts = [kept(planted, at_once=at_once) for planted in sets]
    assert sum(counts) >= 19 * len(sets), counts
