"""Questions that are asked again: a sign that the first answer did not help. Pure functions.

A question is asked again if the same client, or the same owner where conversations have no client, asked a
similar one in the seven days before. Two questions are similar if they share nearly all of their content
terms. A message that ends with a question mark is a question.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from aforesaid.search.analysis import terms_of
from aforesaid.search.cues import cues_of

WITHIN = timedelta(days=7)
LEAST_SIMILARITY = 0.8
# Shorter questions, such as "and now?", are similar to others by chance.
LEAST_TERMS = 2


class Question(Struct, frozen=True, kw_only=True):
    """The first message of a user's turn."""

    text: str
    at: datetime
    asker: str | None = None
    """The client of the conversation."""


class Repeats(Struct, frozen=True, kw_only=True):
    """How many questions of the period were asked again."""

    questions: int = 0
    """Questions with enough content words to compare them."""
    repeated: int = 0
    share: float = 0.0


class _Asked(Struct, frozen=True):
    at: datetime
    terms: frozenset[str]


def repeats_in(questions: Iterable[Question], *, since: datetime) -> Repeats:
    """Return how many questions since a time repeat an earlier one; earlier ones are only compared with."""
    by_asker: dict[str | None, list[_Asked]] = defaultdict(list)
    for one in questions:
        terms = frozenset(terms_of(one.text)) if cues_of(one.text).is_question else frozenset[str]()
        if len(terms) >= LEAST_TERMS:
            by_asker[one.asker].append(_Asked(one.at, terms))
    asked = sum(one.at >= since for group in by_asker.values() for one in group)
    repeated = sum(_repeated(sorted(group, key=lambda one: one.at), since) for group in by_asker.values())
    share = round(repeated / asked, 4) if asked else 0.0
    return Repeats(questions=asked, repeated=repeated, share=share)


def _repeated(group: Sequence[_Asked], since: datetime) -> int:
    """Count the repetitions in questions of one asker, which are in the order of time."""
    frequency = Counter(term for one in group for term in one.terms)
    known: dict[str, list[_Asked]] = defaultdict(list)
    number = 0
    for one in group:
        distinctive = _distinctive(one.terms, frequency)
        candidates = (other for term in distinctive for other in known[term])
        if one.at >= since and any(_is_repeated(one, other) for other in candidates):
            number += 1
        for term in distinctive:
            known[term].append(one)
    return number


def _distinctive(terms: frozenset[str], frequency: Counter[str]) -> list[str]:
    """Return the rarest terms, of which two similar questions share one: few others have them."""
    shared = math.ceil(LEAST_SIMILARITY**2 * len(terms))
    return sorted(terms, key=lambda term: (frequency[term], term))[: len(terms) - shared + 1]


def _is_repeated(one: _Asked, other: _Asked) -> bool:
    if one.at - other.at > WITHIN or one.at == other.at:
        return False
    both = len(one.terms) * len(other.terms)
    return len(one.terms & other.terms) >= LEAST_SIMILARITY * math.sqrt(both)
