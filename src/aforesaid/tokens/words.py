"""Text counted word by word, with the counts of words that were met before. Above: `exact`.

An encoding cuts a text into pieces by a pattern, and encodes each by itself. In a line of words with single
spaces between them no piece holds a space but as its first character, so the line has as many tokens as its
words, each with the space before it. Speech repeats itself: nearly every word was met before. To look it up
spares the tables of the encoding, which are too large to stay near the processor, and a moment in which
another thread may take the interpreter.
"""

from collections.abc import Callable

LONGEST_KEPT = 40
MOST_KEPT = 50_000


class Words:
    """Counts lines, and keeps the counts of their words."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._first = _Kept(count)
        self._others = _Kept(lambda word: count(f" {word}"))

    def total(self, line: str) -> int:
        """The count of a line for which `is_line` holds."""
        first, *others = line.split(" ")
        return self._first[first] + sum(map(self._others.__getitem__, others))


class _Kept(dict[str, int]):
    """What words count, the longest of them left out, and not more than so many."""

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, word: str) -> int:
        count = self._count(word)
        if len(word) <= LONGEST_KEPT:
            if len(self) >= MOST_KEPT:
                self.clear()
            self[word] = count
        return count


def is_line(text: str) -> bool:
    """Whether the only white space is single spaces."""
    return text.isprintable() and "  " not in text
