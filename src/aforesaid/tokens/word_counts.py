"""Count text word by word, with cached counts.

An encoding splits a text into pieces by a pattern and encodes each alone. In a line of words separated by
single spaces, only the first character of a piece can be a space. So the line has as many tokens as its
words, each with its preceding space. Most words repeat. A lookup avoids the encoding's tables, which
exceed the processor's cache, and avoids releasing the interpreter lock.
"""

from collections.abc import Callable

LONGEST_CACHED = 40
MOST_CACHED = 50_000


class WordCounter:
    """Counts lines with cached counts of their words."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._first = _CountCache(count)
        self._others = _CountCache(lambda word: count(f" {word}"))

    def total(self, line: str) -> int:
        """Return the count of a line that satisfies `is_plain_line`."""
        first, *others = line.split(" ")
        return self._first[first] + sum(map(self._others.__getitem__, others))


class _CountCache(dict[str, int]):
    """A bounded cache of word counts that skips very long words."""

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, word: str) -> int:
        count = self._count(word)
        if len(word) <= LONGEST_CACHED:
            # Clearing everything is cheaper per lookup than LRU bookkeeping.
            if len(self) >= MOST_CACHED:
                self.clear()
            self[word] = count
        return count


def is_plain_line(text: str) -> bool:
    """Return whether the only white space is single spaces."""
    return text.isprintable() and "  " not in text
