"""Terms as the index keeps them, and which of them bring candidates: pure functions below `searching`.

The schema says what a row's `terms` are: see `aforesaid.messages` there.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import accumulate
from math import log
from typing import Any, NamedTuple

from aforesaid.model.messages import Message
from aforesaid.search.analysis import LONGEST_TERM, indexed_terms
from aforesaid.search.ranking import SATURATION

MOST_COUNTED = 16_383
"""The largest number that fits beside a term; one that occurs more often is taken to occur so often."""
LARGEST_VECTOR = 900_000
"""Bytes of terms in one message; the server holds about a million. What comes after is not found."""
SURELY_FIT = LARGEST_VECTOR // 100
COMMON = 10_000
"""A term that more messages hold brings no candidates by itself where a rarer one brings some."""
GREATEST_SHARE = SATURATION + 1
"""What a term's weight is multiplied by at most in a score of `aforesaid.found`."""


def mark_of(owner: str) -> str:
    """What every term of an owner begins with: `aforesaid.mark_of`."""
    return b64encode(sha256(owner.encode()).digest()[:6]).decode()


class Indexed(NamedTuple):
    """What a message is found by."""

    vector: str
    term_count: int


def indexed(mark: str, message: Message) -> Indexed:
    """The message's terms as `terms` and `term_count` keep them."""
    terms = indexed_terms(message)
    return Indexed(_vector(mark, terms), len(terms))


def _vector(mark: str, terms: Sequence[str]) -> str:
    if len(set(terms)) == len(terms) <= SURELY_FIT:
        return " ".join([f"{mark}{term}:1" for term in terms])  # most messages, and in half the time
    counts = Counter(terms)
    kept = counts.items() if len(counts) <= SURELY_FIT else _that_fit(mark, counts)
    return " ".join([f"{mark}{term}:{_often(count)}" for term, count in kept])


def _often(count: int) -> str:
    """How often, and the weight that tells once, twice, three times and more often apart: D, C, B, A."""
    return f"{min(count, MOST_COUNTED)}{'DCBA'[min(count, 4) - 1]}"


def _that_fit(mark: str, counts: Counter[str]) -> Iterable[tuple[str, int]]:
    overhead = len(mark) + 8  # a lexeme's position is two numbers of two bytes, aligned
    sizes = accumulate(len(term.encode()) + overhead for term in counts)
    return [item for item, size in zip(counts.items(), sizes, strict=True) if size <= LARGEST_VECTOR]


def index_values(found_by: Sequence[Indexed]) -> dict[str, Any]:
    """What messages are found by, as queries want it: as text, which the driver sends faster than lists."""
    return {
        "vectors": " | ".join([one.vector for one in found_by]),
        "term_counts": f"{{{','.join([str(one.term_count) for one in found_by])}}}",
    }


def counted_values(found_by: Iterable[Indexed]) -> dict[str, int]:
    """How many messages can be found at all, and how many terms they have together."""
    term_counts = [one.term_count for one in found_by if one.term_count]
    return {"indexed": len(term_counts), "all_terms": sum(term_counts)}


def at_moment(message: Message, now: datetime) -> Message:
    """The message as one that is said now, unless it says when: the day is one of its terms."""
    return message if message.timestamp is not None else message.with_(timestamp=now)


def storable(term: str) -> bool:
    """Whether a message can have this term. Others need not be looked for, and some cannot be sent."""
    return len(term) <= LONGEST_TERM and term.split() == [term] and term.isprintable()


def rarity(frequencies: Sequence[int], messages: int) -> list[float]:
    """How much each term tells about a message that holds it, as in BM25."""
    return [log(1 + max(messages - n + 0.5, 0.5) / (n + 0.5)) for n in frequencies]


class Plan(NamedTuple):
    """Terms from the rarest to the commonest, each with how many messages hold it and what it weighs."""

    terms: list[str]
    frequencies: list[int]
    weights: list[float]

    def first_try(self, limit: int) -> int:
        """How many of the rarest terms may bring candidates enough."""
        for number, sure in enumerate(accumulate(self.frequencies, max), 1):
            if sure >= limit:
                return number
        return len(self.terms)

    def needed(self, worst: float) -> int:
        """How many of the rarest must bring candidates, so that none is missed that is better than `worst`.

        A message that holds none of them scores less than the others' weights together allow.
        """
        rest = 0.0
        for number in range(len(self.terms), 0, -1):
            rest += self.weights[number - 1] * GREATEST_SHARE
            if rest > worst and not self._too_common(number):
                return number
        return 1

    def _too_common(self, number: int) -> bool:
        return number > 1 and self.frequencies[number - 1] > COMMON


def plan(terms: Sequence[str], frequencies: Sequence[int], messages: int) -> Plan:
    """The terms that occur, rarest first."""
    occurring = sorted(
        (n, term, weight)
        for term, n, weight in zip(terms, frequencies, rarity(frequencies, messages), strict=True)
        if n
    )
    return Plan(
        [term for _, term, _ in occurring], [n for n, _, _ in occurring], [weight for *_, weight in occurring]
    )
