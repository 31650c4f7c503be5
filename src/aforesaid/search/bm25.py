"""BM25: how well the words of a message match a question, from counts of terms."""

import math

from aforesaid.contracts import Match, Matches

# BM25's k1. In a turn of a dozen words, a repeated word adds little.
SATURATION = 0.9
# BM25's b: how strongly length lowers the score.
LENGTH = 0.4


class Scorer:
    """Compute BM25 for matches of one search."""

    def __init__(self, matches: Matches, terms: int) -> None:
        rarities = [rarity(n, matches.messages) for n in matches.frequencies[:terms]]
        self._maxima = [rare * (SATURATION + 1) for rare in rarities]
        self._average = matches.terms / matches.messages if matches.messages else 1.0
        # Matches share few combinations of counts.
        self._products: dict[tuple[int, ...], list[tuple[float, int]]] = {}

    def __call__(self, match: Match) -> float:
        products = self._products.get(match.counts)
        if products is None:
            counted = zip(self._maxima, match.counts, strict=False)
            products = [(maximum * count, count) for maximum, count in counted if count]
            self._products[match.counts] = products
        damped = damping(match.length, self._average)
        return sum([product / (count + damped) for product, count in products], 0.0)

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
