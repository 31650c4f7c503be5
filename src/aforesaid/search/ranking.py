"""Score and order messages for a question: pure functions, one rule for all stores.

A message's score is a weighted sum of these parts, each between 0 and about 1:

    words         BM25 over the terms shared with the question; the best message has 1
    coverage      the share of the question's known terms in the message, by rarity
    meaning       similarity of the vectors; the nearest message has 1, the farthest 0
    speaker       whether the question names the speaker
    date          whether the message lies in a period that the question names
    person        whether a person said it
    conversation  how well the best messages of its conversation match
    previous      how well the message before it matches, if that is short
    next          how well the message after it matches

A message without a vector is scored by its words alone. `docs/search-quality.md` contains the measurements
behind every constant.
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
SATURATION = 0.9
# BM25's b: how strongly length lowers the score.
LENGTH = 0.4


class Weights(Struct, frozen=True, kw_only=True):
    """The weight of each part of a score."""

    words: float = 0.0
    coverage: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    person: float = 0.0
    conversation_words: float = 0.0
    conversation_meaning: float = 0.0
    previous_words: float = 0.0
    previous_meaning: float = 0.0
    next_words: float = 0.0
    next_meaning: float = 0.0
    brief: int = 10
    """Number of terms at which the previous message's length has halved its influence."""
    best_of: int = 3
    """Number of messages that determine a conversation's score."""


# Trained on three labelled sets together, see `docs/search-quality.md`.
WEIGHTS = Weights(
    words=0.58,
    coverage=0.3,
    meaning=0.7,
    speaker=0.5,
    date=0.4,
    person=0.58,
    conversation_words=0.33,
    conversation_meaning=0.11,
    previous_words=0.45,
    previous_meaning=0.46,
    next_words=0.07,
    next_meaning=0.07,
)
# For searches without vectors.
WORDS_WEIGHTS = Weights(
    words=0.86,
    coverage=0.22,
    speaker=0.5,
    date=0.4,
    person=0.64,
    conversation_words=0.47,
    previous_words=0.62,
    next_words=0.17,
)


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

    def cosines(self, messages: Sequence[Key]) -> Sequence[float | None]:
        """Return the plain cosines of messages by key, which do not depend on the owner's other messages."""
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
    coverage: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    person: float = 0.0
    conversation: float = 0.0
    previous: float = 0.0
    next: float = 0.0
    asks: float = 0.0
    """Negative if the message only asks the same."""
    matched: dict[str, float] = {}
    """The question's terms in the message, with their contributions to its BM25."""
    similarity: float | None = None


SCORED = ("words", "coverage", "meaning", "speaker", "date", "person", "conversation", "previous", "next")
PARTS = (*SCORED, "asks")
"""The parts that add up to a score."""


class Ranked(Struct, kw_only=True, gc=False):
    """A candidate and its score. `rank` fills in the fields; afterwards it is read-only."""

    conversation_id: str
    position: Position
    role: Role | None
    length: int
    match: Match | None = None
    bm25: float = 0.0
    similarity: float | None = None
    relative_words: float = 0.0
    """BM25 relative to the best message."""
    nearness: float = 0.0
    """The similarity, scaled to 0..1."""
    words: float = 0.0
    coverage: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    person: float = 0.0
    conversation: float = 0.0
    previous: float = 0.0
    next: float = 0.0
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
    similar: Similarities | None = None

    def parts(self, one: Ranked, *, factor: float = 1.0) -> Parts:
        """Return the parts of a candidate's score; a factor below 1 is for one that only asks."""
        named = {name: getattr(one, name) for name in SCORED} | {"asks": one.score * (factor - 1)}
        return Parts(**named, matched=self._matched(one), similarity=one.similarity)

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
    weights: Weights | None = None,
    among: Container[str] | None = None,
) -> Ranking:
    """Rank the candidates by words and by meaning. Equal scores are ordered by time, latest first.

    With `among`, the candidates are exactly the matching messages of these conversations.
    """
    weights = weights or (WORDS_WEIGHTS if similar is None else WEIGHTS)
    if among is not None:
        matches = replace(matches, found=tuple(m for m in matches.found if m.conversation_id in among))
    near = () if similar is None else similar.nearest if among is None else similar.within(among)
    found = _candidates(question, matches, near)
    if similar is not None:
        for one, similarity in zip(found.values(), similar.of(list(found)), strict=True):
            one.similarity = similarity
    _score_alone(found.values(), question, matches, _nearness(similar), weights)
    _score_in_context(found, weights)
    ordered = sorted(found.values(), key=_order)
    return Ranking(
        question=question,
        matches=matches,
        ordered=ordered,
        by_meaning=similar is not None,
        similar=similar,
    )


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
        self._average = matches.terms / matches.messages if matches.messages else 1.0

    def __call__(self, match: Match) -> float:
        damped = damping(match.length, self._average)
        score = 0.0
        for maximum, count in zip(self._maxima, match.counts, strict=False):
            if count:
                score += maximum * count / (count + damped)
        return score

    def contributions(self, match: Match) -> list[float]:
        """Return the contribution of each term."""
        damped = damping(match.length, self._average)
        return [
            maximum * count / (count + damped) if count else 0.0
            for maximum, count in zip(self._maxima, match.counts, strict=False)
        ]


def damping(length: int, average: float) -> float:
    """Return what BM25 adds to a term's count in the denominator: more in a longer message."""
    return SATURATION * (1 - LENGTH + LENGTH * length / average)


def rarity(frequency: int, messages: int) -> float:
    return math.log(1 + (messages - frequency + 0.5) / (frequency + 0.5))


def _score_alone(
    candidates: Collection[Ranked],
    question: AnalyzedQuestion,
    matches: Matches,
    nearness: Callable[[float], float],
    weights: Weights,
) -> None:
    best = max((one.bm25 for one in candidates), default=0.0) or 1.0
    terms = len(question.terms)
    coverage = Coverage.of_known(matches, terms)
    for one in candidates:
        one.relative_words = words = one.bm25 / best
        # A message without a vector is scored by its words.
        one.nearness = words if one.similarity is None else nearness(one.similarity)
        one.words = weights.words * words
        one.coverage = weights.coverage * coverage(one.match)
        one.meaning = weights.meaning * one.nearness
        one.speaker = weights.speaker if is_named_speaker(one.match, terms) else 0.0
        one.date = weights.date if question.periods and _is_in_period(one.position, question) else 0.0
        one.person = weights.person if one.role in ("user", None) else 0.0


def _score_in_context(found: Mapping[Key, Ranked], weights: Weights) -> None:
    """Add what the conversation and the neighbouring messages contribute, and sum up."""
    by_words = _by_conversation(found.values(), "relative_words", weights.best_of, from_zero=True)
    by_meaning = _by_conversation(found.values(), "nearness", weights.best_of, from_zero=False)
    for (conversation_id, sequence), one in found.items():
        one.conversation = (
            weights.conversation_words * by_words[conversation_id]
            + weights.conversation_meaning * by_meaning[conversation_id]
        )
        before, after = (found.get((conversation_id, sequence + step)) for step in (-1, 1))
        if before is not None:
            # Large if it is short, like a question that this message answers.
            brevity = weights.brief / (weights.brief + before.length)
            one.previous = brevity * (
                weights.previous_words * before.relative_words + weights.previous_meaning * before.nearness
            )
        if after is not None:
            one.next = weights.next_words * after.relative_words + weights.next_meaning * after.nearness
        one.score = (
            one.words
            + one.coverage
            + one.meaning
            + one.speaker
            + one.date
            + one.person
            + one.conversation
            + one.previous
            + one.next
        )


class Coverage:
    """The share of a question's terms that a message contains. Each term has a weight; all add up to 1."""

    def __init__(self, weights: Sequence[float]) -> None:
        total = sum(weights) or 1.0
        self._weights = [weight / total for weight in weights]

    @classmethod
    def of_known(cls, matches: Matches, terms: int) -> "Coverage":
        """Weigh the terms that the owner's messages contain by their rarity; ignore the others."""
        return cls([rarity(n, matches.messages) if n else 0.0 for n in matches.frequencies[:terms]])

    def __call__(self, match: Match | None) -> float:
        if match is None:
            return 0.0
        return sum([w for w, count in zip(self._weights, match.counts, strict=False) if count])


def _nearness(similar: Similarities | None) -> Callable[[float], float]:
    """Return a function that scales a similarity to 0..1."""
    lowest = 0.0 if similar is None else similar.lowest
    span = 0.0 if similar is None else similar.highest - lowest
    return lambda similarity: (similarity - lowest) / span if span > 0 else 1.0


def is_named_speaker(match: Match | None, terms: int) -> bool:
    """Return whether the question names the speaker: speaker terms are the second half of the counts."""
    return match is not None and any(match.counts[terms:])


def _is_in_period(position: Position, question: AnalyzedQuestion) -> bool:
    day = from_micros(position.micros).astimezone(question.zone).date()
    return any(period.may_be_mentioned_on(day) for period in question.periods)


def _by_conversation(
    candidates: Iterable[Ranked], field: str, best_of: int, *, from_zero: bool
) -> Mapping[str, float]:
    """Return how well the best messages of each conversation match, relative to the best conversation.

    The least conversation has 0, unless `from_zero`.
    """
    values: dict[str, list[float]] = {}
    for one in candidates:
        values.setdefault(one.conversation_id, []).append(getattr(one, field))
    best = {
        conversation_id: sum(own if len(own) <= best_of else nlargest(best_of, own))
        for conversation_id, own in values.items()
    }
    lowest = 0.0 if from_zero else min(best.values(), default=0.0)
    span = max(best.values(), default=0.0) - lowest
    return {key: (value - lowest) / span if span > 0 else 0.0 for key, value in best.items()}
