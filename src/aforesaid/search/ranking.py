"""Score and order messages for a question: pure functions, one rule for all stores.

A message's score is a sum of these parts, each between 0 and about 1:

    words         BM25 over the terms shared with the question; the best message has 1
    meaning       similarity of the vectors; the nearest message has 1, the farthest 0
    speaker       whether the question names the speaker
    date          whether the message lies in a period that the question names
    conversation  how well the best messages of its conversation match
    previous      how well the message before it matches

User messages weigh more than long answers. A message without a vector is scored by its words alone.
`docs/search-quality.md` contains the measurements behind every constant.
"""

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import tzinfo
from heapq import nlargest
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Match, Matches, Position
from aforesaid.model.clock import from_micros
from aforesaid.model.messages import Role
from aforesaid.search.dates import Period

# BM25's k1. In a turn of a dozen words, a repeated word adds little.
SATURATION = 0.5
# BM25's b: how strongly length lowers the score.
LENGTH = 0.7


class Weights(Struct, frozen=True, kw_only=True):
    """The weight of each part of a score, the same for all searches."""

    words: float = 0.6
    meaning: float = 0.4
    speaker: float = 0.25
    date: float = 0.2
    conversation: float = 0.4
    previous: float = 0.25
    person: float = 1.5
    """Factor for user messages, compared with long answers."""
    brief: int = 40
    """Number of terms at which an answer's length has halved its share of that factor."""
    brief_previous: int = 10
    """Number of terms at which the previous message's length has halved its influence."""
    best_of: int = 3
    """Number of messages that determine a conversation's score."""


WEIGHTS = Weights()


Key: TypeAlias = tuple[str, int]
"""Identifies a message of the owner: conversation id and sequence."""


class Neighbour(NamedTuple):
    """A message with a similar vector."""

    conversation_id: str
    position: Position
    role: Role | None
    """None if unknown until the message is read."""
    length: int
    similarity: float


class Similarities(Protocol):
    """The similarity of the owner's messages to a question."""

    @property
    def nearest(self) -> Sequence[Neighbour]: ...
    @property
    def lowest(self) -> float: ...
    @property
    def highest(self) -> float: ...
    def of(self, messages: Sequence[Key]) -> Sequence[float | None]:
        """Return the similarities of messages by key; None for a message without a vector."""
        ...

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        """Return every message of these conversations with a known similarity."""
        ...


class AnalyzedQuestion(Struct, frozen=True, kw_only=True):
    """The terms and periods of a question."""

    terms: tuple[str, ...]
    """Distinct terms. They are the first half of the terms looked up in the index; speaker terms follow."""
    periods: tuple[Period, ...] = ()
    zone: tzinfo


class Parts(Struct, frozen=True, kw_only=True):
    """The weighted parts of a score; they add up to it."""

    words: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    conversation: float = 0.0
    previous: float = 0.0
    person: float = 1.0
    """The factor already applied to words, meaning and speaker."""
    matched: dict[str, float] = {}
    """The question's terms in the message, with their contributions to its BM25."""
    similarity: float | None = None


class Ranked(Struct, kw_only=True, gc=False):
    """A candidate and its score. `rank` fills in the fields; afterwards it is read-only."""

    conversation_id: str
    position: Position
    role: Role | None
    length: int
    match: Match | None = None
    bm25: float = 0.0
    similarity: float | None = None
    words: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    person: float = 1.0
    conversation: float = 0.0
    previous: float = 0.0
    own: float = 0.0
    """The score without conversation and previous message."""
    score: float = 0.0

    @property
    def key(self) -> Key:
        return (self.conversation_id, self.position.sequence)


class Ranking(Struct, frozen=True, kw_only=True):
    """The candidates, best first."""

    question: AnalyzedQuestion
    matches: Matches
    ordered: list[Ranked]
    by_meaning: bool = False
    """Whether vectors were used."""

    def parts(self, one: Ranked) -> Parts:
        """Return the parts of a candidate's score."""
        return Parts(
            words=one.words * one.person,
            meaning=one.meaning * one.person,
            speaker=one.speaker * one.person,
            date=one.date,
            conversation=one.conversation,
            previous=one.previous,
            person=one.person,
            matched=self._matched(one),
            similarity=one.similarity,
        )

    def _matched(self, one: Ranked) -> dict[str, float]:
        if one.match is None:
            return {}
        added = Scorer(self.matches, len(self.question.terms)).contributions(one.match)
        return {term: value for term, value in zip(self.question.terms, added, strict=False) if value}


def rank(
    question: AnalyzedQuestion,
    matches: Matches,
    similar: Similarities | None,
    *,
    weights: Weights = WEIGHTS,
    among: Container[str] | None = None,
) -> Ranking:
    """Rank the candidates by words and by meaning. Equal scores are ordered by time, latest first.

    With `among`, the candidates are exactly the matching messages of these conversations.
    """
    if among is not None:
        matches = replace(matches, found=tuple(m for m in matches.found if m.conversation_id in among))
    near = () if similar is None else similar.nearest if among is None else similar.within(among)
    found = _candidates(question, matches, near)
    if similar is not None:
        for one, similarity in zip(found.values(), similar.of(list(found)), strict=True):
            one.similarity = similarity
    _score_alone(found.values(), question, _nearness(similar), weights)
    priors = _priors(found.values(), weights)
    for (conversation_id, sequence), one in found.items():
        one.conversation = weights.conversation * priors[conversation_id]
        before = found.get((conversation_id, sequence - 1))
        one.previous = 0.0 if before is None else _previous(before, weights)
        one.score = one.own + one.conversation + one.previous
    ordered = sorted(found.values(), key=_order)
    return Ranking(question=question, matches=matches, ordered=ordered, by_meaning=similar is not None)


def _order(one: Ranked) -> tuple[float, int, str, int]:
    return -round(one.score, 9), -one.position.micros, one.conversation_id, -one.position.sequence


def _candidates(
    question: AnalyzedQuestion, matches: Matches, nearest: Iterable[Neighbour]
) -> dict[Key, Ranked]:
    score = Scorer(matches, len(question.terms))
    found: dict[Key, Ranked] = {}
    for match in matches.found:
        found[(match.conversation_id, match.position.sequence)] = Ranked(
            conversation_id=match.conversation_id,
            position=match.position,
            role=match.role,
            length=match.length,
            match=match,
            bm25=score(match),
        )
    for near in nearest:
        key = (near.conversation_id, near.position.sequence)
        if key not in found:
            found[key] = Ranked(
                conversation_id=near.conversation_id,
                position=near.position,
                role=near.role,
                length=near.length,
            )
    return found


class Scorer:
    """Compute BM25 for matches of one search."""

    def __init__(self, matches: Matches, terms: int) -> None:
        rarities = [rarity(n, matches.messages) for n in matches.frequencies[:terms]]
        self._maxima = [rare * (SATURATION + 1) for rare in rarities]
        average = matches.terms / matches.messages if matches.messages else 1.0
        self._damping = SATURATION * (1 - LENGTH)
        self._damping_by_length = SATURATION * LENGTH / average

    def __call__(self, match: Match) -> float:
        damping = self._damping + self._damping_by_length * match.length
        score = 0.0
        for maximum, count in zip(self._maxima, match.counts, strict=False):
            if count:
                score += maximum * count / (count + damping)
        return score

    def contributions(self, match: Match) -> list[float]:
        """Return the contribution of each term."""
        damping = self._damping + self._damping_by_length * match.length
        return [
            maximum * count / (count + damping) if count else 0.0
            for maximum, count in zip(self._maxima, match.counts, strict=False)
        ]


def rarity(frequency: int, messages: int) -> float:
    return math.log(1 + (messages - frequency + 0.5) / (frequency + 0.5))


def _score_alone(
    candidates: Collection[Ranked],
    question: AnalyzedQuestion,
    nearness: Callable[[float], float],
    weights: Weights,
) -> None:
    best = max((one.bm25 for one in candidates), default=0.0) or 1.0
    terms = len(question.terms)
    for one in candidates:
        words = one.bm25 / best
        one.words = weights.words * words
        # A message without a vector is scored by its words.
        one.meaning = weights.meaning * (words if one.similarity is None else nearness(one.similarity))
        one.speaker = weights.speaker if _is_named_speaker(one.match, terms) else 0.0
        one.date = weights.date if question.periods and _is_in_period(one.position, question) else 0.0
        one.person = _person(one, weights)
        one.own = (one.words + one.meaning + one.speaker) * one.person + one.date


def _nearness(similar: Similarities | None) -> Callable[[float], float]:
    """Return a function that scales a similarity to 0..1."""
    lowest = 0.0 if similar is None else similar.lowest
    span = 0.0 if similar is None else similar.highest - lowest
    return lambda similarity: (similarity - lowest) / span if span > 0 else 1.0


def _is_named_speaker(match: Match | None, terms: int) -> bool:
    """Return whether the question names the speaker: speaker terms are the second half of the counts."""
    return match is not None and any(match.counts[terms:])


def _is_in_period(position: Position, question: AnalyzedQuestion) -> bool:
    day = from_micros(position.micros).astimezone(question.zone).date()
    return any(period.may_be_mentioned_on(day) for period in question.periods)


def _person(one: Ranked, weights: Weights) -> float:
    if one.role in ("user", None):
        return weights.person
    return 1 + (weights.person - 1) * weights.brief / (weights.brief + one.length)


def _priors(candidates: Iterable[Ranked], weights: Weights) -> Mapping[str, float]:
    """Return how well each conversation matches, from 0 to 1."""
    scores: dict[str, list[float]] = {}
    for one in candidates:
        scores.setdefault(one.conversation_id, []).append(one.own)
    best = {
        conversation_id: sum(own if len(own) <= weights.best_of else nlargest(weights.best_of, own))
        for conversation_id, own in scores.items()
    }
    lowest, highest = min(best.values(), default=0.0), max(best.values(), default=0.0)
    span = highest - lowest
    return {key: (value - lowest) / span if span > 0 else 0.0 for key, value in best.items()}


def _previous(before: Ranked, weights: Weights) -> float:
    """Return the previous message's contribution: large if it is short, like a question that this one
    answers.
    """
    brevity = weights.brief_previous / (weights.brief_previous + before.length)
    return weights.previous * (before.words + before.meaning) * brevity
