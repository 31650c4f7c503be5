"""Estimate how relevant a result is: a number from 0 to 1 that means the same in every search.

A score orders the results of one search; its size depends on the question and on the owner's other messages.
Relevance is calibrated: a logistic function of evidence that does not depend on them.

    match       the share of the question's terms in one message, plus its cosine; the best result counts
    both        the product of the same two: words and meaning confirm each other
    coverage    the best share
    cosine      the best cosine; the fewer messages there are, the less likely a high one is by chance
    known       the share of the question's terms that any message contains; of few messages it says more
    speaker     whether the question names a speaker

Results after the first lose relevance with their score. `docs/search-quality.md` contains the measurements.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from msgspec import Struct

from aforesaid.contracts import Matches
from aforesaid.search.cues import QUESTION
from aforesaid.search.ranking import Coverage, Ranked, Ranking, is_named_speaker

# Results with less are dropped, unless the caller asks for them: other owners' questions then find nothing.
MIN_RELEVANCE = 0.2
# Results that are looked at to judge a question.
EXAMINED = 10
# Messages up to which the weight of a term does not depend on the size of a history.
_TYPICAL_SIZE = 500
# Messages below which a history is small: less evidence is needed, because fewer messages match by chance.
_SMALL_SIZE = 200
_LEAST_SIZE = 8
# A message with all terms of the question is relevant, however short the question: a logit.
_ALL_TERMS = 1.0
_COMPLETE = 0.999
# Share of the best result's match below which a result is less relevant than its score allows.
_LEAST_SHARE = 0.15
# Encoders place questions near each other, whatever they ask for: what two of them lose of their cosine.
_BOTH_ASK = 0.1
# Contribution of the message before from which a result counts as an answer to it, whatever its own words.
_ANSWERS = 0.25


class Evidence(Struct, frozen=True, kw_only=True):
    """What speaks for the best results of one search."""

    match: float
    match_of_three: float
    both: float
    coverage: float
    cosine: float
    known: float
    messages: int
    small: float
    terms: float
    speaker: bool


class Calibration(Struct, frozen=True, kw_only=True):
    """The coefficients of the logistic function."""

    constant: float
    match: float
    match_of_three: float = 0.0
    """For the mean of the three best results."""
    both: float = 0.0
    coverage: float = 0.0
    cosine: float = 0.0
    known: float
    known_of_few: float
    """For the same share, times the logarithm of how much smaller than usual the history is."""
    least_size: int = _LEAST_SIZE
    """The size below which that share says no more."""
    small: float = 0.0
    """For the logarithm of how much smaller than a small history it is."""
    cosine_of_small: float = 0.0
    """For the same, times the best cosine."""
    terms: float = 0.0
    """For the logarithm of the number of terms."""
    speaker: float
    share: float
    """For the score's distance from the best, as a share of it."""

    def logit(self, evidence: Evidence) -> float:
        size = min(max(evidence.messages, self.least_size), _TYPICAL_SIZE)
        return (
            self.constant
            + self.match * evidence.match
            + self.match_of_three * evidence.match_of_three
            + self.both * evidence.both
            + self.coverage * evidence.coverage
            + (self.cosine + self.cosine_of_small * evidence.small) * evidence.cosine
            + self.small * evidence.small
            + (self.known + self.known_of_few * math.log(_TYPICAL_SIZE / size)) * evidence.known
            + self.terms * evidence.terms
            + self.speaker * evidence.speaker
        )


HYBRID = Calibration(
    constant=-10.8,
    match=9.34,
    both=5.3,
    coverage=-5.4,
    cosine=4.7,
    known=1.52,
    known_of_few=3.1,
    least_size=_SMALL_SIZE,
    small=0.95,
    cosine_of_small=4.0,
    speaker=6.96,
    share=0.7,
)
MINILM = Calibration(
    constant=-9.81,
    match=3.8,
    both=1.33,
    coverage=1.5,
    cosine=2.8,
    known=1.94,
    known_of_few=1.07,
    least_size=_SMALL_SIZE,
    small=0.7,
    cosine_of_small=4.0,
    terms=0.86,
    speaker=2.6,
    share=0.7,
)
"""For all-MiniLM-L6-v2, after its cosines are converted."""
WORDS = Calibration(
    constant=-12.7,
    match=2.23,
    match_of_three=11.02,
    known=1.4,
    known_of_few=1.59,
    terms=2.3,
    speaker=6.21,
    share=0.7,
)


class CosineScale(Struct, frozen=True, kw_only=True):
    """An encoder's typical cosines, of unrelated and of related sentences, and its calibration."""

    unrelated: float
    related: float
    calibration: Calibration = HYBRID

    def convert(self, cosine: float) -> float:
        """Return what the cosine would be with the built-in encoder, for which relevance is calibrated."""
        span = self.related - self.unrelated
        if span < _LEAST_SPAN:
            return cosine
        # Never less than 1: an encoder with a wider span separates better, which is no reason to narrow it.
        factor = max(1.0, (BUILT_IN.related - BUILT_IN.unrelated) / span)
        return BUILT_IN.unrelated + factor * (cosine - self.unrelated)


BUILT_IN = CosineScale(unrelated=0.032, related=0.414)
# Below this, an encoder does not distinguish sentences, so its cosines are left as they are.
_LEAST_SPAN = 0.05

RELATED = (
    ("Where did we put the spare key?", "The spare key is in the drawer by the front door."),
    ("What should I cook tonight?", "For dinner I could make pasta with tomatoes."),
    ("When is the dentist appointment?", "The dentist sees me on Thursday at nine."),
    ("Which school does my daughter attend?", "My daughter goes to the primary school on Mill Road."),
    ("How much was the electricity bill?", "We paid 94 euros for electricity in March."),
    ("What is wrong with the car?", "The garage says that the car needs new brakes."),
    ("Which book did you recommend to me?", "Read the novel about the lighthouse keeper, you will like it."),
    ("Where are we going on holiday?", "In August we fly to Lisbon for two weeks."),
)
"""Questions with their answers, to measure an encoder's scale."""


def scale_of(rows: Any, calibration: Calibration = HYBRID) -> CosineScale:
    """Return the scale of an encoder from its vectors of the sentences in `RELATED`."""
    questions, answers = rows[0::2], rows[1::2]
    related = [float(question @ answer) for question, answer in zip(questions, answers, strict=True)]
    unrelated = [
        float(questions[one] @ answers[other]) for one, other in combinations(range(len(RELATED)), 2)
    ]
    return CosineScale(unrelated=fmean(unrelated), related=fmean(related), calibration=calibration)


class Relevance:
    """The relevance of the results of one search."""

    def __init__(self, ranking: Ranking, candidates: Sequence[Ranked], scale: CosineScale = BUILT_IN) -> None:
        """`candidates` are those of the ranking that may become results, best first."""
        self._calibration = scale.calibration if ranking.by_meaning else WORDS
        first = candidates[:EXAMINED]
        self._best_score = first[0].score if first else 0.0
        self._ranking, self._scale = ranking, scale
        self._coverage = Coverage(_term_weights(ranking.matches, len(ranking.question.terms)))
        self._best_match = 0.0
        self._logit = self._judge(ranking, first, scale)

    def __call__(self, one: Ranked) -> float:
        """Return the relevance of a result. It is lower if the result matches far less than the best one."""
        # Without vectors, every candidate shares a term or a speaker with the question.
        if not self._ranking.by_meaning or self._best_match <= 0 or one.previous >= _ANSWERS:
            return self.at_most(one.score)
        covered = [self._coverage.of_bits(one.terms)]
        (cosine,) = _cosines(self._ranking, [one], covered, self._scale)
        share = max(0.0, covered[0] + cosine) / self._best_match
        return self.at_most(one.score) * min(1.0, share / _LEAST_SHARE)

    def at_most(self, score: float) -> float:
        """Return the relevance that a result with this score can have."""
        share = score / self._best_score if self._best_score > 0 else 0.0
        return _logistic(self._logit - self._calibration.share * (1 - share))

    def _judge(self, ranking: Ranking, first: Sequence[Ranked], scale: CosineScale) -> float:
        """Return the logit of the best result."""
        covered = [self._coverage.of_bits(one.terms) for one in first]
        cosines = _cosines(ranking, first, covered, scale)
        matched = sorted(map(sum, zip(covered, cosines, strict=True)), reverse=True) or [0.0]
        self._best_match = matched[0]
        self.evidence = _evidence(ranking, first, covered, cosines, matched)
        logit = self._calibration.logit(self.evidence)
        return max(logit, _ALL_TERMS) if max(covered, default=0.0) > _COMPLETE else logit


def _evidence(
    ranking: Ranking,
    first: Sequence[Ranked],
    covered: Sequence[float],
    cosines: Sequence[float],
    matched: Sequence[float],
) -> Evidence:
    terms, matches = len(ranking.question.terms), ranking.matches
    weights = _term_weights(matches, terms)
    occurring = [w for w, n in zip(weights, matches.frequencies, strict=False) if n]
    size = max(matches.messages, _LEAST_SIZE)
    return Evidence(
        match=matched[0],
        match_of_three=fmean(matched[:3]),
        both=max(map(math.prod, zip(covered, cosines, strict=True)), default=0.0),
        coverage=max(covered, default=0.0),
        cosine=max(cosines, default=0.0),
        known=sum(occurring) / (sum(weights) or 1.0),
        messages=size,
        small=max(0.0, math.log(_SMALL_SIZE / size)),
        terms=math.log1p(terms),
        speaker=any(is_named_speaker(one.match, terms) for one in first),
    )


def _term_weights(matches: Matches, terms: int) -> list[float]:
    """Return the weight of each term. A term that is unknown to a large history weighs most."""
    size = max(matches.messages, _TYPICAL_SIZE)
    return [math.log(1 + (size + 0.5) / (n + 0.5)) for n in matches.frequencies[:terms]]


def _cosines(
    ranking: Ranking, first: Sequence[Ranked], covered: Sequence[float], scale: CosineScale
) -> list[float]:
    if ranking.similar is None:
        return [0.0] * len(first)
    found = ranking.similar.cosines([one.key for one in first])
    asks = QUESTION if ranking.question.cues.is_question else 0
    # A message without a vector: one that contains the whole question counts as a related one.
    return [
        share * BUILT_IN.related
        if cosine is None
        else scale.convert(cosine) - (_BOTH_ASK if one.flags & asks else 0.0)
        for one, cosine, share in zip(first, found, covered, strict=True)
    ]


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, logit))))
