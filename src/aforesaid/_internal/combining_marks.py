"""Combining marks: what is written over, under or behind a letter, and belongs to it."""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache


@cache
def marks() -> str:
    """Every combining mark of the planes in which scripts live, as the inside of a character class.

    Made when the first text asks for it: going through the planes takes its time.
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
