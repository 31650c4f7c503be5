"""The index columns of a message. `aforesaid.messages` in the schema describes them. Pure functions."""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any, NamedTuple

from aforesaid.model.messages import Message
from aforesaid.search.analysis import indexed_terms

# The largest storable frequency of a term; higher ones are stored as this.
MAX_FREQUENCY = 16_383
# Bytes of terms per message; the server's limit is about a million. Further terms are not indexed.
MAX_VECTOR_BYTES = 900_000
SAFE_TERM_COUNT = MAX_VECTOR_BYTES // 100


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
