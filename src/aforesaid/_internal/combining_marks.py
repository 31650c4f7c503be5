"""Combining marks: characters that modify the letter before them."""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache


@cache
def marks() -> str:
    """Return every combining mark of the planes with scripts, as the inside of a character class.

    Computed on first use, because iterating over the planes is slow.
    """
    return "".join(_ranges(_is_mark))


def _is_mark(point: int) -> bool:
    return unicodedata.category(chr(point))[0] == "M"


def _ranges(wanted: Callable[[int], bool]) -> Iterable[str]:
    start = None
    for point in range(0x300, 0x20000):
        if wanted(point):
            start = point if start is None else start
        elif start is not None:
            yield f"{chr(start)}-{chr(point - 1)}"
            start = None
