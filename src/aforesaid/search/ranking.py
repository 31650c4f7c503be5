"""How well a message answers a question: one rule for all stores, in pure functions. Below: contracts.

A message's score is a sum of few parts, each between 0 and about 1:

    its words       BM25 over the terms it shares with the question, the best being 1
    its meaning     how near its vector is to the question's, the nearest being 1, the farthest 0
    who speaks      whether the question names the speaker
    when            whether it was said in a time that the question names
    its surroundings  how well the best messages of its conversation match, and the message before it

What a person says weighs more than a long answer to it. A message without a vector is judged by its words
alone. `docs/search-quality.md` has the measurements behind every number here.
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

SATURATION = 0.5
"""BM25's k1. In a turn of a dozen words, saying a word twice means little more than saying it once."""
LENGTH = 0.7
"""BM25's b: how far a longer message is held to be merely longer."""


class Weights(Struct, frozen=True, kw_only=True):
    """What each part of a score is worth. One setting for everything that is searched."""

    words: float = 0.6
    meaning: float = 0.4
    speaker: float = 0.25
    date: float = 0.2
    conversation: float = 0.4
    previous: float = 0.25
    person: float = 1.5
    """What a user's words count for, against those of a long answer."""
    brief: int = 40
    """The number of terms at which an answer has lost half of that advantage by its length."""
    brief_previous: int = 10
    """The number of terms at which the message before has lost half of its influence by its length."""
    best_of: int = 3
    """How many messages of a conversation say how well it matches."""


WEIGHTS = Weights()


Key: TypeAlias = tuple[str, int]
"""Which message of the owner: its conversation and its sequence."""


class Neighbour(NamedTuple):
    """A message that is near in meaning, as the vectors know it."""

    conversation_id: str
    position: Position
    role: Role | None
    """None where it is not known before the message is read."""
    length: int
    similarity: float


class Similarities(Protocol):
    """How near the owner's messages are to a question."""

    @property
    def nearest(self) -> Sequence[Neighbour]: ...
    @property
    def lowest(self) -> float: ...
    @property
    def highest(self) -> float: ...
    def of(self, messages: Sequence[Key]) -> Sequence[float | None]:
        """The similarities of messages, by conversation and sequence; None for one that has no vector yet."""
        ...

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        """Every message of these conversations of which the similarity is known."""
        ...


class Asked(Struct, frozen=True, kw_only=True):
    """A question, taken apart."""

    terms: tuple[str, ...]
    """Its terms, each once; the first half of what the index was asked for."""
    periods: tuple[Period, ...] = ()
    zone: tzinfo


class Parts(Struct, frozen=True, kw_only=True):
    """What a score is made of: the parts as they count, so that they add up to it."""

    words: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    conversation: float = 0.0
    previous: float = 0.0
    person: float = 1.0
    """The factor that words, meaning and speaker have been multiplied with."""
    matched: dict[str, float] = {}
    """The question's terms that the message has, and what each adds to its BM25."""
    similarity: float | None = None


class Ranked(Struct, kw_only=True, gc=False):
    """A message and its score. The ranking fills it in; afterwards it is only read."""

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
    """What the message scores by itself."""
    score: float = 0.0

    @property
    def key(self) -> Key:
        return (self.conversation_id, self.position.sequence)


class Ranking(Struct, frozen=True, kw_only=True):
    """The candidates, best first."""

    asked: Asked
    matches: Matches
    ordered: list[Ranked]
    by_meaning: bool = False
    """Whether vectors took part."""

    def parts(self, one: Ranked) -> Parts:
        """Why it stands where it does."""
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
        added = Scorer(self.matches, len(self.asked.terms)).contributions(one.match)
        return {term: value for term, value in zip(self.asked.terms, added, strict=False) if value}


def rank(
    asked: Asked,
    matches: Matches,
    similar: Similarities | None,
    *,
    weights: Weights = WEIGHTS,
    among: Container[str] | None = None,
) -> Ranking:
    """The candidates of both kinds, best first. What scores alike is ordered by time, the latest first.

    With `among`, everything in these conversations that is near at all is a candidate, and nothing else.
    """
    if among is not None:
        matches = replace(matches, found=tuple(m for m in matches.found if m.conversation_id in among))
    near = () if similar is None else similar.nearest if among is None else similar.within(among)
    found = _candidates(asked, matches, near)
    if similar is not None:
        for one, similarity in zip(found.values(), similar.of(list(found)), strict=True):
            one.similarity = similarity
    _weigh(found.values(), asked, _nearness(similar), weights)
    priors = _priors(found.values(), weights)
    for (conversation_id, sequence), one in found.items():
        one.conversation = weights.conversation * priors[conversation_id]
        before = found.get((conversation_id, sequence - 1))
        one.previous = 0.0 if before is None else _previous(before, weights)
        one.score = one.own + one.conversation + one.previous
    ordered = sorted(found.values(), key=_order)
    return Ranking(asked=asked, matches=matches, ordered=ordered, by_meaning=similar is not None)


def _order(one: Ranked) -> tuple[float, int, str, int]:
    return -round(one.score, 9), -one.position.micros, one.conversation_id, -one.position.sequence


def _candidates(asked: Asked, matches: Matches, nearest: Iterable[Neighbour]) -> dict[Key, Ranked]:
    score = Scorer(matches, len(asked.terms))
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
    """BM25 of a match, from what the index knows of the terms."""

    def __init__(self, matches: Matches, terms: int) -> None:
        rarities = [rarity(n, matches.messages) for n in matches.frequencies[:terms]]
        self._most = [rare * (SATURATION + 1) for rare in rarities]
        average = matches.terms / matches.messages if matches.messages else 1.0
        self._damping = SATURATION * (1 - LENGTH)
        self._damping_by_length = SATURATION * LENGTH / average

    def __call__(self, match: Match) -> float:
        damping = self._damping + self._damping_by_length * match.length
        score = 0.0
        for most, count in zip(self._most, match.counts, strict=False):
            if count:
                score += most * count / (count + damping)
        return score

    def contributions(self, match: Match) -> list[float]:
        """What each term adds."""
        damping = self._damping + self._damping_by_length * match.length
        return [
            most * count / (count + damping) if count else 0.0
            for most, count in zip(self._most, match.counts, strict=False)
        ]


def rarity(frequency: int, messages: int) -> float:
    return math.log(1 + (messages - frequency + 0.5) / (frequency + 0.5))


def _weigh(
    candidates: Collection[Ranked], asked: Asked, nearness: Callable[[float], float], weights: Weights
) -> None:
    best = max((one.bm25 for one in candidates), default=0.0) or 1.0
    terms = len(asked.terms)
    for one in candidates:
        words = one.bm25 / best
        one.words = weights.words * words
        # A message without a vector is judged by its words.
        one.meaning = weights.meaning * (words if one.similarity is None else nearness(one.similarity))
        one.speaker = weights.speaker if _speaks(one.match, terms) else 0.0
        one.date = weights.date if asked.periods and _told_then(one.position, asked) else 0.0
        one.person = _person(one, weights)
        one.own = (one.words + one.meaning + one.speaker) * one.person + one.date


def _nearness(similar: Similarities | None) -> Callable[[float], float]:
    """From a similarity to how near that is, from 0 to 1."""
    lowest = 0.0 if similar is None else similar.lowest
    span = 0.0 if similar is None else similar.highest - lowest
    return lambda similarity: (similarity - lowest) / span if span > 0 else 1.0


def _speaks(match: Match | None, terms: int) -> bool:
    """Whether who speaks is named in the question: the second half of the counts says so."""
    return match is not None and any(match.counts[terms:])


def _told_then(position: Position, asked: Asked) -> bool:
    day = from_micros(position.micros).astimezone(asked.zone).date()
    return any(period.told_on(day) for period in asked.periods)


def _person(one: Ranked, weights: Weights) -> float:
    if one.role in ("user", None):
        return weights.person
    return 1 + (weights.person - 1) * weights.brief / (weights.brief + one.length)


def _priors(candidates: Iterable[Ranked], weights: Weights) -> Mapping[str, float]:
    """How well each conversation matches, from 0 to 1."""
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
    """What the message before adds: much when it is short, as a question that this one answers."""
    brevity = weights.brief_previous / (weights.brief_previous + before.length)
    return weights.previous * (before.words + before.meaning) * brevity
