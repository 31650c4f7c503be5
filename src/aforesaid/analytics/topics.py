"""What conversations are about, without a model: topics that the owner names, and terms that are new.

A conversation belongs to the topic whose examples are nearest to one of its questions, if they are near
enough. What is new follows from the log-odds ratio of terms with an informative Dirichlet prior (Monroe et
al., 2008): the prior keeps rare terms from looking new by chance. Pure functions.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import msgspec
from msgspec import Struct

from aforesaid.analytics.repeats import Repeats
from aforesaid.analytics.reports import csv_text
from aforesaid.errors import InvalidInput, StoreDamaged
from aforesaid.model.mappings import ReadableAsDict
from aforesaid.model.messages import parse_text
from aforesaid.search.analysis import terms_of

# A term of fewer conversations is not shown: it could identify one of them.
LEAST_CONVERSATIONS = 5
# The z-score from which a term counts as new: by chance, one of forty terms exceeds it.
LEAST_SCORE = 1.96
MOST_TERMS = 50
SHORTEST_TERM = 3
# The strength of the prior, as a share of what was said in both periods.
PRIOR = 0.1
MOST_TOPICS, MOST_EXAMPLES, LONGEST_NAME, LONGEST_EXAMPLE = 100, 50, 100, 500


class Topic(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """A topic that the owner named, with example sentences."""

    name: str
    examples: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class TopicCount(Struct, frozen=True, kw_only=True):
    """How many conversations of the period belong to a topic."""

    name: str
    conversations: int
    share: float


class NewTerm(Struct, frozen=True, kw_only=True):
    """A term that is more frequent than before."""

    term: str
    conversations: int
    before: int
    """Conversations of the earlier period that contain it."""
    score: float
    """The z-score of the log-odds ratio."""


class Topics(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """What the conversations of a period are about."""

    first_day: date
    last_day: date
    """Days in UTC; both are part of the period."""
    conversations: int
    """The conversations that were read: the latest ones of the period."""
    left_out: bool
    """Whether the period has more conversations than were read."""
    topics: tuple[TopicCount, ...] = ()
    """The owner's topics, the most frequent first."""
    other: int = 0
    """Conversations without a topic."""
    new_terms: tuple[NewTerm, ...] = ()
    """Terms that are more frequent than in the period of the same length before."""
    repeats: Repeats = Repeats()
    """Questions that were asked again within seven days."""

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]

    def to_csv(self) -> str:
        """Return a line per topic and per new term."""
        topics = [("topic", one.name, one.conversations, "", "") for one in self.topics]
        terms = [
            ("new term", one.term, one.conversations, one.before, round(one.score, 2))
            for one in self.new_terms
        ]
        repeated = ("repeated questions", "", self.repeats.repeated, "", self.repeats.share)
        groups = [
            (f"repeated questions by {by}", one.value or "", one.repeated, "", one.share)
            for by, found in self.repeats.by.items()
            for one in found
        ]
        columns = ("kind", "name", "conversations", "before", "score")
        return csv_text([columns, *topics, *terms, repeated, *groups])


def parse_topic(name: str, examples: Iterable[str]) -> Topic:
    """Return a topic. Raise `InvalidInput`."""
    name = parse_text(name, field="name").strip()
    if not 1 <= len(name) <= LONGEST_NAME:
        raise InvalidInput(f"name must have 1 to {LONGEST_NAME} characters", field="name", value=name)
    given = tuple(dict.fromkeys(parse_text(one, field="examples").strip() for one in examples))
    if not 1 <= len(given) <= MOST_EXAMPLES:
        raise InvalidInput(f"examples must be 1 to {MOST_EXAMPLES} sentences", field="examples")
    for one in given:
        if len(one) > LONGEST_EXAMPLE or not terms_of(one):
            message = f"an example must have words, and at most {LONGEST_EXAMPLE} characters"
            raise InvalidInput(message, field="examples", value=one)
    return Topic(name=name, examples=given)


def decode_topic(data: bytes) -> Topic:
    """Return the topic of a stored form. Raise `StoreDamaged`."""
    try:
        return msgspec.json.decode(data, type=Topic)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a topic is damaged: {error}") from error


# New terms


def words_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the terms of a conversation, each with a word that has it."""
    found: dict[str, str] = {}
    for text in texts:
        for word in text.split():
            for term in terms_of(word):
                if len(term) >= SHORTEST_TERM and not term.isdigit():
                    found.setdefault(term, word.strip(".,;:!?\"'()[]…“”„«»").casefold() or term)
    return found


def new_terms(
    now: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]], *, without: frozenset[str]
) -> tuple[NewTerm, ...]:
    """Return the terms that are more frequent now, the most surprising first.

    Each conversation is a mapping of its terms to words. Terms in `without` are left out.
    """
    counts, earlier = _frequencies(now), _frequencies(before)
    total, earlier_total = sum(counts.values()), sum(earlier.values())
    if not total or not earlier_total:
        return ()
    weight = PRIOR * (total + earlier_total)
    found = []
    for term, count in counts.items():
        if count < LEAST_CONVERSATIONS or term in without:
            continue
        known = earlier.get(term, 0)
        prior = PRIOR * (count + known)
        score = _log_odds(count + prior, total + weight, known + prior, earlier_total + weight)
        if score >= LEAST_SCORE:
            found.append(NewTerm(term=_shown(term, now), conversations=count, before=known, score=score))
    return tuple(sorted(found, key=lambda one: (-one.score, one.term))[:MOST_TERMS])


def _frequencies(conversations: Iterable[Mapping[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in conversations:
        found.update(one.keys())
    return found


def _log_odds(count: float, total: float, known: float, known_total: float) -> float:
    ratio = math.log(count / (total - count)) - math.log(known / (known_total - known))
    return ratio / math.sqrt(1 / count + 1 / known)


def _shown(term: str, conversations: Iterable[Mapping[str, str]]) -> str:
    """Return the most frequent word of a term. It must occur often enough itself; else the term is shown."""
    words = Counter(one[term] for one in conversations if term in one)
    word, number = words.most_common(1)[0]
    return word if number >= LEAST_CONVERSATIONS else term


# Owner's topics without an encoder: cosine of term counts.


def lexical_similarity(text: str, example: str) -> float:
    """Return how many content terms two sentences share, from 0 to 1."""
    one, other = set(terms_of(text)), set(terms_of(example))
    if not one or not other:
        return 0.0
    return len(one & other) / math.sqrt(len(one) * len(other))
