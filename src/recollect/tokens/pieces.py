"""Short plain text, counted piece by piece, with the counts of pieces that were met before. Above: `exact`.

An encoding cuts a text into pieces by a pattern and then encodes each by itself, so a text has as many
tokens as its pieces together. Speech repeats itself: nearly every piece was met before, and looking it up
spares both the tables of the encoding, which are too large to stay near the processor, and a moment in
which another thread may take the interpreter.

Only ASCII, where Python's own pattern engine can say what the encoding's pattern says.
"""

import re
from collections.abc import Callable

LONGEST_TEXT = 2_000
"""Characters. In a longer text the encoding's own engine is faster."""
_LONGEST_PIECE = 40
_MOST_KEPT = 50_000

_ASCII_MEMBERS = {
    r"\p{L}": "A-Za-z",
    r"\p{Lu}": "A-Z",
    r"\p{Ll}": "a-z",
    r"\p{Lt}": "",
    r"\p{Lm}": "",
    r"\p{Lo}": "",
    r"\p{M}": "",
    r"\p{N}": "0-9",
}


class Pieces(dict[str, int]):
    """Counts of pieces. `total` is the count of an ASCII text."""

    def __init__(self, pattern: str, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count
        self._split = re.compile(ascii_form(pattern), re.ASCII).findall

    def total(self, text: str) -> int:
        return sum(map(self.__getitem__, self._split(text)))

    def __missing__(self, piece: str) -> int:
        count = self._count(piece)
        if len(piece) <= _LONGEST_PIECE:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[piece] = count
        return count


def ascii_form(pattern: str) -> str:
    """What an encoding's pattern says of ASCII text, for Python's engine. KeyError where that has no form."""
    form = ""
    inside = False
    for part in re.findall(r"\\p\{\w+\}|\\.|.", pattern):
        if part.startswith(r"\p"):
            members = _ASCII_MEMBERS[part]
            form += members if inside else f"[{members}]"
            continue
        if part in "[]":
            inside = part == "["
        # Python's $ matches before a line end as well.
        form += r"\Z" if part == "$" and not inside else part
    return form
