"""Score and order messages for a question: pure functions, one rule for all stores.

A message's score is a weighted sum of these parts, each between 0 and about 1:

    words         BM25 over the terms shared with the question; the best message has 1
    coverage      the share of the question's known terms in the message, by rarity
    meaning       similarity of the vectors; the nearest message has 1, the farthest 0
    speaker       whether the question names the speaker
    date          whether the message lies in a period that the question names
    person        whether a person said it
    assistant     whether the question asks for the assistant's words, and this is one of its messages
    conversation  how well its conversation matches: the terms in it, and its best messages
    previous      how well the message before it matches, if that is short
    around        the share of the question's terms in the message and its two neighbours
    feedback      similarity to the three best messages
    number        whether the question asks for a number or a time, and the message contains a number
    wish          whether the question asks for advice, and a person states a wish in the message

A message without a vector is scored by its words alone. `docs/search-quality.md` contains the measurements
behind every constant.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import tzinfo
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Match, Matches, Position
from aforesaid.model.clock import from_micros
from aforesaid.model.messages import Role
from aforesaid.search.bm25 import Scorer, rarity
from aforesaid.search.cues import NUMBER, WISH, Cues
from aforesaid.search.dates import Period


class Weights(Struct, frozen=True, kw_only=True):
    """The weight of each part of a score."""

    words: float = 0.0
    coverage: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    person: float = 0.0
    assistant: float = 0.0
    conversation_terms: float = 0.0
    conversation_words: float = 0.0
    conversation_meaning: float = 0.0
    previous_words: float = 0.0
    previous_meaning: float = 0.0
    around: float = 0.0
    feedback: float = 0.0
    number: float = 0.0
    wish: float = 0.0
    brief: int = 10
    """Number of terms at which the previous message's length has halved its influence."""
    best_of: int = 3
    """Number of messages that determine a conversation's score."""


# Trained on three labelled sets together, see `docs/search-quality.md`.
WEIGHTS = Weights(
    words=0.52,
    coverage=0.22,
    meaning=0.84,
    speaker=0.5,
    date=0.4,
    person=0.97,
    assistant=0.92,
    conversation_terms=0.6,
    conversation_meaning=0.25,
    previous_words=0.49,
    previous_meaning=0.53,
    around=0.52,
    feedback=0.5,
    number=0.24,
    wish=0.53,
)
# For searches without vectors.
WORDS_WEIGHTS = Weights(
    words=0.97,
    coverage=0.11,
    speaker=0.5,
    date=0.4,
    person=1.1,
    assistant=0.64,
    conversation_terms=0.39,
    conversation_words=0.42,
    previous_words=0.67,
    around=0.51,
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

    def likeness(self, best: Sequence[Key], messages: Sequence[Key]) -> Sequence[float | None]:
        """Return the similarities of messages to the centroid of the best; None where it is unknown."""
        ...

    def flags(self, messages: Sequence[Key]) -> Sequence[int]:
        """Return the flags of messages (see `cues`), 0 where they are unknown."""
        ...

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        """Return every message of these conversations with a known similarity."""
        ...


class AnalyzedQuestion(Struct, frozen=True, kw_only=True):
    """The terms and periods of a question."""

    terms: tuple[str, ...]
    """Distinct terms. They are the first half of the terms looked up in the index; speaker terms follow."""
    periods: tuple[Period, ...] = ()
    cues: Cues = Cues()
    zone: tzinfo


class Parts(Struct, frozen=True, kw_only=True):
    """The weighted parts of a score; they add up to it."""

    words: float = 0.0
    coverage: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    person: float = 0.0
    assistant: float = 0.0
    conversation: float = 0.0
    previous: float = 0.0
    around: float = 0.0
    feedback: float = 0.0
    number: float = 0.0
    wish: float = 0.0
    asks: float = 0.0
    """Negative if the message only asks the same."""
    matched: dict[str, float] = {}
    """The question's terms in the message, with their contributions to its BM25."""
    similarity: float | None = None


# Roles of messages that a person said, as far as is known.
_PERSONS = ("user", None)

SCORED = (
    *("words", "coverage", "meaning", "speaker", "date", "person", "assistant", "conversation", "previous"),
    *("around", "feedback", "number", "wish"),
)
_scored = attrgetter(*SCORED)
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
    terms: int = 0
    """The question's terms in the message, one bit each."""
    flags: int = 0
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
    assistant: float = 0.0
    conversation: float = 0.0
    previous: float = 0.0
    around: float = 0.0
    feedback: float = 0.0
    number: float = 0.0
    wish: float = 0.0
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
        keys = list(found)
        for one, similarity, flags in zip(found.values(), similar.of(keys), similar.flags(keys), strict=True):
            one.similarity, one.flags = similarity, flags
    coverage = Coverage.of_known(matches, len(question.terms))
    _score_alone(found.values(), question, _nearness(similar), coverage, weights)
    _score_in_context(found, coverage, weights)
    if similar is not None and weights.feedback:
        _score_by_feedback(found, similar, weights)
    for one in found.values():
        one.score = sum(_scored(one))
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


def _score_alone(
    candidates: Collection[Ranked],
    question: AnalyzedQuestion,
    nearness: Callable[[float], float],
    coverage: "Coverage",
    weights: Weights,
) -> None:
    """Score each candidate by its own words, meaning, speaker, time and role."""
    best = max([one.bm25 for one in candidates], default=0.0) or 1.0
    terms, cues = len(question.terms), question.cues
    # Candidates share few combinations of counts.
    known: dict[tuple[int, ...], tuple[int, float, float]] = {}
    for one in candidates:
        counts = () if one.match is None else one.match.counts
        if counts not in known:
            bits, is_speaker = bits_of(one.match, terms), is_named_speaker(one.match, terms)
            share = weights.coverage * coverage.of_bits(bits)
            known[counts] = bits, share, weights.speaker if is_speaker else 0.0
        one.terms, one.coverage, one.speaker = known[counts]
        one.relative_words = words = one.bm25 / best
        # A message without a vector is scored by its words.
        one.nearness = near = words if one.similarity is None else nearness(one.similarity)
        one.words = weights.words * words
        one.meaning = weights.meaning * near
        is_person = one.role in _PERSONS
        if is_person:
            one.person = weights.person
        if question.periods and _is_in_period(one.position, question):
            one.date = weights.date
        if cues.assistant and not is_person:
            one.assistant = weights.assistant
        if cues.quantity and one.flags & NUMBER:
            one.number = weights.number
        if cues.request and one.flags & WISH:
            one.wish = weights.wish


def _score_in_context(found: Mapping[Key, Ranked], coverage: "Coverage", weights: Weights) -> None:
    """Add what the conversation and the neighbouring messages contribute."""
    terms: dict[str, int] = {}
    for one in found.values():
        terms[one.conversation_id] = terms.get(one.conversation_id, 0) | one.terms
    together = {
        conversation_id: weights.conversation_terms * coverage.of_bits(bits)
        for conversation_id, bits in terms.items()
    }
    for field, weight in (
        ("relative_words", weights.conversation_words),
        ("nearness", weights.conversation_meaning),
    ):
        if weight:
            best = _by_conversation(found.values(), field, weights.best_of, from_zero=field != "nearness")
            together = {key: value + weight * best[key] for key, value in together.items()}
    for (conversation_id, sequence), one in found.items():
        one.conversation = together[conversation_id]
        before, after = found.get((conversation_id, sequence - 1)), found.get((conversation_id, sequence + 1))
        bits = one.terms if after is None else one.terms | after.terms
        if before is not None:
            bits |= before.terms
            # Large if it is short, like a question that this message answers.
            brevity = weights.brief / (weights.brief + before.length)
            one.previous = brevity * (
                weights.previous_words * before.relative_words + weights.previous_meaning * before.nearness
            )
        one.around = weights.around * coverage.of_bits(bits)


# Messages whose centroid the others are compared with: at most three, and at most a tenth of the candidates,
# because the third best of a few is about something else.
_FEEDBACK_FROM = 3
_FEEDBACK_OF = 10
_PERSON_SHARE = 0.5
# Scores that differ by less count as equal.
_SAME_SCORE = 1e-8


def _score_by_feedback(found: Mapping[Key, Ranked], similar: Similarities, weights: Weights) -> None:
    """Add the similarity to the best messages, from 0 for the least to 1 for the most similar candidate."""
    keys = list(found)
    count = max(1, min(_FEEDBACK_FROM, len(keys) // _FEEDBACK_OF))
    scores = [_own_score(one) for one in found.values()]
    # Only the few that can be among the best are compared by time, too.
    least = min(nlargest(count, scores), default=0.0) - _SAME_SCORE
    likely = [key for key, score in zip(keys, scores, strict=True) if score >= least]
    best = nlargest(count, likely, key=lambda key: _alone(found[key]))
    values = similar.likeness(best, keys)
    known = [value for value in values if value is not None]
    lowest = min(known, default=0.0)
    span = max(known, default=0.0) - lowest
    for one, value in zip(found.values(), values, strict=True):
        alike = one.nearness if value is None else (value - lowest) / span if span > 0 else 1.0
        one.feedback = weights.feedback * alike


def _own_score(one: Ranked) -> float:
    return one.relative_words + one.nearness + _PERSON_SHARE * (one.role in _PERSONS)


def _alone(one: Ranked) -> tuple[float, Position, str]:
    return round(_own_score(one), 9), one.position, one.conversation_id


class Coverage:
    """The share of a question's terms that a message contains. Each term has a weight; all add up to 1."""

    def __init__(self, weights: Sequence[float]) -> None:
        total = sum(weights) or 1.0
        self._weights = [weight / total for weight in weights]
        self._shares: dict[int, float] = {}  # candidates share few combinations of terms

    @classmethod
    def of_known(cls, matches: Matches, terms: int) -> "Coverage":
        """Weigh the terms that the owner's messages contain by their rarity; ignore the others."""
        return cls([rarity(n, matches.messages) if n else 0.0 for n in matches.frequencies[:terms]])

    def of_bits(self, bits: int) -> float:
        """Return the share of the terms whose bits are set."""
        share = self._shares.get(bits)
        if share is None:
            share = sum([weight for at, weight in enumerate(self._weights) if bits >> at & 1])
            self._shares[bits] = share
        return share


def bits_of(match: Match | None, terms: int) -> int:
    """Return the question's terms in a message, one bit each."""
    if match is None:
        return 0
    return sum([1 << at for at, count in enumerate(match.counts[:terms]) if count])


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
    read = attrgetter(field)
    for one in candidates:
        own = values.get(one.conversation_id)
        if own is None:
            values[one.conversation_id] = [read(one)]
        else:
            own.append(read(one))
    best = {
        conversation_id: sum(own if len(own) <= best_of else nlargest(best_of, own))
        for conversation_id, own in values.items()
    }
    lowest = 0.0 if from_zero else min(best.values(), default=0.0)
    span = max(best.values(), default=0.0) - lowest
    return {key: (value - lowest) / span if span > 0 else 0.0 for key, value in best.items()}
