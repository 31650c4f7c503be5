"""The messages of the benchmarks: the same text for every entrant, numbered.

Above: jobs. Standard library only.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

_QUESTIONS = (
    "Is the front door locked, and did anybody ring while I was out this afternoon?",
    "How warm is it upstairs, and will the heating come on before we are back?",
    "Which lights are still on, and since when has the one in the cellar been burning?",
    "When does the next train leave, and do I still have time to feed the cat before?",
)
_ANSWERS = (
    "It has been locked since five past two. Two people rang: a parcel, and later a neighbour from upstairs.",
    "It is nineteen degrees in the bedroom. The heating starts at half past four, one hour before you come.",
    "The hall and the cellar. The one in the cellar has been on since last night, a little after eleven.",
    "At twelve minutes past six from platform two. The cat has twenty minutes, if you take the bicycle.",
)
_MARK = re.compile(r"^\[(\S+) (asks|answers)\] ")


def turn(name: str, number: int = 0) -> tuple[str, str]:
    """A question and its answer, about 90 and 120 characters."""
    return (
        f"[{name} asks] {_QUESTIONS[number % len(_QUESTIONS)]}",
        f"[{name} answers] {_ANSWERS[number % len(_ANSWERS)]}",
    )


def history(size: int) -> list[str]:
    """So many messages."""
    said = [text for number in range(size // 2) for text in turn(f"h{number}", number)]
    return said[:size]


def marks(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Which turn each message belongs to, and which half of it is."""
    return [(found[1], found[2]) for text in texts if (found := _MARK.match(text))]


def compared(acknowledged: Sequence[str], texts: Sequence[str]) -> dict[str, int]:
    """What became of turns that were acknowledged. Split: one half is there, or others are between."""
    found = marks(texts)
    asks = [name for name, half in found if half == "asks"]
    answers = [name for name, half in found if half == "answers"]
    expected = set(acknowledged)
    whole = {
        name
        for (name, half), (follower, other) in pairwise(found)
        if half == "asks" and other == "answers" and follower == name
    }
    present = set(asks) | set(answers)
    return {
        "acknowledged": len(expected),
        "lost": len(expected - (set(asks) & set(answers))),
        "doubled": len(asks) - len(set(asks)) + len(answers) - len(set(answers)),
        "split": len((present - _setup(present)) - whole),
    }


def _setup(names: set[str]) -> set[str]:
    """The messages that were stored before; they belong to no measured turn."""
    return {name for name in names if re.fullmatch(r"h\d+", name)}
