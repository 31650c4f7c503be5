"""The signs of vectors, one bit per number: find the few rows that can be near a direction.

Rows whose numbers have the same signs as a direction are near it. Counting different bits reads a 32nd of
what comparing the numbers reads. The few rows with the fewest differences are compared exactly afterwards.
"""

from typing import Any

_WORD = 64
# Rows whose signs are taken at once.
_CHUNK = 4_096
# Rows whose differences are counted at once: the counts stay in the processor's cache.
_COUNTED = 65_536


class Signs:
    """The signs of rows, relative to a centre, in the order of the rows."""

    def __init__(self, centre: Any, rows: Any) -> None:
        import numpy

        self._np = numpy
        self._centre = centre
        self._words = -(-len(centre) // _WORD)
        # Word by word, not row by row: each operation works on adjacent numbers.
        self._bits = numpy.zeros((self._words, 0), numpy.uint64)
        self.count = 0
        self.add(rows)

    def add(self, rows: Any) -> None:
        """Add the signs of more rows."""
        np, end = self._np, self.count + len(rows)
        if end > self._bits.shape[1]:
            bits = np.zeros((self._words, max(end, self._bits.shape[1] * 3 // 2)), np.uint64)
            bits[:, : self.count] = self._bits[:, : self.count]
            self._bits = bits
        for start in range(0, len(rows), _CHUNK):
            packed = self._packed(rows[start : start + _CHUNK] > self._centre)
            at = self.count + start
            self._bits[:, at : at + len(packed)] = packed.T
        self.count = end

    def differences(self, direction: Any) -> Any:
        """Return how many signs of each row differ from those of a direction from the centre."""
        np = self._np
        (wanted,) = self._packed((direction > 0)[None])
        counts = np.zeros(self.count, np.uint16)
        for start in range(0, self.count, _COUNTED):
            end = min(start + _COUNTED, self.count)
            for bits, word in zip(self._bits, wanted, strict=True):
                counts[start:end] += np.bitwise_count(bits[start:end] ^ word)
        return counts

    def _packed(self, signs: Any) -> Any:
        np = self._np
        wide = np.zeros((len(signs), self._words * _WORD), bool)
        wide[:, : signs.shape[1]] = signs
        return np.packbits(wide, axis=1).view(np.uint64)
