"""Index terms, and the choice of terms that select candidates. Pure functions.

`aforesaid.messages` in the schema describes the column `terms`.
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

MAX_FREQUENCY = 16_383
"""The largest storable frequency of a term; higher ones are stored as this."""
MAX_VECTOR_BYTES = 900_000
"""Bytes of terms per message; the server's limit is about a million. Further terms are not indexed."""
SAFE_TERM_COUNT = MAX_VECTOR_BYTES // 100
COMMON = 10_000
"""A term in more messages than this does not select candidates if a rarer term does."""
MAX_FACTOR = SATURATION + 1
"""The largest factor of a term's weight in a score of `aforesaid.matching_messages`."""


def term_prefix(owner: str) -> str:
    """Return the prefix of all terms of an owner: `aforesaid.term_prefix`."""
    return b64encode(sha256(owner.encode()).digest()[:6]).decode()


class Indexed(NamedTuple):
    """The index columns of a message."""

    vector: str
    term_count: int


def indexed(prefix: str, message: Message) -> Indexed:
    """Return the columns `terms` and `term_count` of a message."""
    terms = indexed_terms(message)
    return Indexed(_vector(prefix, terms), len(terms))


def _vector(prefix: str, terms: Sequence[str]) -> str:
    if len(set(terms)) == len(terms) <= SAFE_TERM_COUNT:
        return " ".join([f"{prefix}{term}:1" for term in terms])  # the usual case, in half the time
    counts = Counter(terms)
    stored = counts.items() if len(counts) <= SAFE_TERM_COUNT else _fitting(prefix, counts)
    return " ".join([f"{prefix}{term}:{_frequency(count)}" for term, count in stored])


def _frequency(count: int) -> str:
    """Return the frequency, with a weight that distinguishes once, twice, three times and more: D, C, B,
    A."""
    return f"{min(count, MAX_FREQUENCY)}{'DCBA'[min(count, 4) - 1]}"


def _fitting(prefix: str, counts: Counter[str]) -> Iterable[tuple[str, int]]:
    overhead = len(prefix) + 8  # a lexeme's position is two numbers of two bytes, aligned
    sizes = accumulate(len(term.encode()) + overhead for term in counts)
    return [item for item, size in zip(counts.items(), sizes, strict=True) if size <= MAX_VECTOR_BYTES]


def index_values(found_by: Sequence[Indexed]) -> dict[str, Any]:
    """Return the index columns as query parameters: text, which the driver sends faster than lists."""
    return {
        "vectors": " | ".join([one.vector for one in found_by]),
        "term_counts": f"{{{','.join([str(one.term_count) for one in found_by])}}}",
    }


def counted_values(found_by: Iterable[Indexed]) -> dict[str, int]:
    """Return the number of searchable messages and of their terms."""
    term_counts = [one.term_count for one in found_by if one.term_count]
    return {"indexed": len(term_counts), "all_terms": sum(term_counts)}


def at_moment(message: Message, now: datetime) -> Message:
    """Return the message with the current time if it has none: the day is one of its terms."""
    return message if message.timestamp is not None else message.with_(timestamp=now)


def storable(term: str) -> bool:
    """Return whether a message can have this term. Some other terms cannot even be sent."""
    return len(term) <= LONGEST_TERM and term.split() == [term] and term.isprintable()


def rarity(frequencies: Sequence[int], messages: int) -> list[float]:
    """Return the BM25 weight of each term."""
    return [log(1 + max(messages - n + 0.5, 0.5) / (n + 0.5)) for n in frequencies]


class Plan(NamedTuple):
    """Terms by ascending frequency, with frequencies and weights."""

    terms: list[str]
    frequencies: list[int]
    weights: list[float]

    def first_try(self, limit: int) -> int:
        """Return how many of the rarest terms may select enough candidates."""
        for number, sure in enumerate(accumulate(self.frequencies, max), 1):
            if sure >= limit:
                return number
        return len(self.terms)

    def needed(self, worst: float) -> int:
        """Return how many of the rarest terms must select candidates, to miss no message better than `worst`.

        A message without any of them scores less than the sum of the other weights.
        """
        rest = 0.0
        for number in range(len(self.terms), 0, -1):
            rest += self.weights[number - 1] * MAX_FACTOR
            if rest > worst and not self._too_common(number):
                return number
        return 1

    def _too_common(self, number: int) -> bool:
        return number > 1 and self.frequencies[number - 1] > COMMON


def plan(terms: Sequence[str], frequencies: Sequence[int], messages: int) -> Plan:
    """Return the occurring terms, rarest first."""
    occurring = sorted(
        (n, term, weight)
        for term, n, weight in zip(terms, frequencies, rarity(frequencies, messages), strict=True)
        if n
    )
    return Plan(
        [term for _, term, _ in occurring], [n for n, _, _ in occurring], [weight for *_, weight in occurring]
    )
