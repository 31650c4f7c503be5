"""Questions that are asked again: a sign that the first answer did not help. Pure functions.

A question is asked again if the same client, or the same owner where conversations have no client, asked a
similar one in the seven days before. Two questions are similar if they share nearly all of their content
terms. A message that ends with a question mark is a question.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from aforesaid.analytics import BY, By
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
    channel: str | None = None
    agent: str | None = None


class RepeatedIn(Struct, frozen=True, kw_only=True):
    """How many questions of one day, channel, client or agent were asked again."""

    value: str | None
    """The day, channel, client id or agent; None for conversations without one."""
    questions: int
    repeated: int
    share: float


class Repeats(Struct, frozen=True, kw_only=True):
    """How many questions of the period were asked again."""

    questions: int = 0
    """Questions with enough content words to compare them."""
    repeated: int = 0
    share: float = 0.0
    by: dict[By, tuple[RepeatedIn, ...]] = {}
    """The same for each day, channel, client and agent: days in their order, the others by repetitions."""


class _Asked(NamedTuple):
    at: datetime
    terms: frozenset[str]
    question: Question


def repeats_in(questions: Iterable[Question], *, since: datetime) -> Repeats:
    """Return how many questions since a time repeat an earlier one; earlier ones are only compared with."""
    by_asker: dict[str | None, list[_Asked]] = defaultdict(list)
    for one in questions:
        terms = frozenset(terms_of(one.text)) if cues_of(one.text).is_question else frozenset[str]()
        if len(terms) >= LEAST_TERMS:
            by_asker[one.asker].append(_Asked(one.at, terms, one))
    judged: list[Judged] = []
    for group in by_asker.values():
        ordered = sorted(group, key=lambda one: one.at)
        judged += [(one, repeated) for one, repeated in _judged(ordered) if one.at >= since]
    if not judged:
        return Repeats()
    repeated = sum(is_repeated for _, is_repeated in judged)
    share = round(repeated / len(judged), 4)
    return Repeats(questions=len(judged), repeated=repeated, share=share, by=_grouped(judged))


Judged = tuple[Question, bool]
"""A question, and whether it repeats an earlier one."""


def _grouped(judged: Iterable[Judged]) -> dict[By, tuple[RepeatedIn, ...]]:
    groups: dict[By, dict[str | None, list[bool]]] = {by: defaultdict(list) for by in BY}
    for one, is_repeated in judged:
        groups["day"][one.at.astimezone(UTC).date().isoformat()].append(is_repeated)
        groups["channel"][one.channel].append(is_repeated)
        groups["client"][one.asker].append(is_repeated)
        groups["agent"][one.agent].append(is_repeated)
    return {by: _ordered(by, values) for by, values in groups.items()}


def _ordered(by: By, values: Mapping[str | None, list[bool]]) -> tuple[RepeatedIn, ...]:
    found = [
        RepeatedIn(
            value=value, questions=len(all_), repeated=sum(all_), share=round(sum(all_) / len(all_), 4)
        )
        for value, all_ in sorted(values.items(), key=lambda one: one[0] or "")
    ]
    return tuple(found if by == "day" else sorted(found, key=lambda one: -one.repeated))


def _judged(group: Sequence[_Asked]) -> Iterator[Judged]:
    """Judge the questions of one asker, which are in the order of time."""
    frequency = Counter(term for one in group for term in one.terms)
    known: dict[str, list[_Asked]] = defaultdict(list)
    for one in group:
        distinctive = _distinctive(one.terms, frequency)
        candidates = (other for term in distinctive for other in known[term])
        yield one.question, any(_is_repeated(one, other) for other in candidates)
        for term in distinctive:
            known[term].append(one)


def _distinctive(terms: frozenset[str], frequency: Counter[str]) -> list[str]:
    """Return the rarest terms, of which two similar questions share one: few others have them."""
    shared = math.ceil(LEAST_SIMILARITY**2 * len(terms))
    return sorted(terms, key=lambda term: (frequency[term], term))[: len(terms) - shared + 1]


def _is_repeated(one: _Asked, other: _Asked) -> bool:
    if one.at - other.at > WITHIN or one.at == other.at:
        return False
    both = len(one.terms) * len(other.terms)
    return len(one.terms & other.terms) >= LEAST_SIMILARITY * math.sqrt(both)
