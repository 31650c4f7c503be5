"""The checker: what was acknowledged, against what is read at the end. Present, once, whole, in order.

A conversation has one writer, who counts; turn `n` is two messages that both say `n`. A turn that was
not acknowledged may be there or not, but never in part, twice, or out of order.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct


class Verdict(Struct, kw_only=True):
    """What is wrong with a conversation; all zero when nothing is."""

    acknowledged: int = 0
    stored: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    reordered: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.torn or self.reordered)

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


def judge(acknowledged: set[int], contents: Sequence[int]) -> Verdict:
    """The verdict on one conversation, from the contents of its messages in reading order."""
    turns = list(contents[::2])
    return Verdict(
        acknowledged=len(acknowledged),
        stored=len(turns),
        lost=len(acknowledged - set(turns)),
        doubled=len(turns) - len(set(turns)),
        torn=sum(contents[i : i + 1] != contents[i + 1 : i + 2] for i in range(0, len(contents), 2)),
        reordered=sum(first >= second for first, second in pairwise(turns)),
    )
