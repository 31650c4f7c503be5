"""What the hot paths cost, written down. Set anew when one has become faster, so that the guard holds what
was won: `python -m tests.integration.performance` says what they cost now."""

from msgspec import Struct

from tests.integration.performance.guard import Steps
from tests.integration.performance.paths import Bench

MORE = 1.25
"""How much more than usual is a slip: calls depend a little on the release of Python and on how threads meet,
instructions on that of SQLite; a slip of two is far above."""
SLOWER = 1.6
"""The same for time of the processor: above what a busy machine does to it, below two."""


class Usual(Struct, frozen=True, kw_only=True):
    """What one step costs."""

    ratio: float
    """Time of the processor beside the floor."""
    calls: float
    """Calls of functions."""
    instructions: float
    """Instructions of SQLite's machine."""


USUAL = {
    "turn": Usual(ratio=4.0, calls=214, instructions=284),
    "window": Usual(ratio=18.0, calls=946, instructions=327),
    "same_window": Usual(ratio=4.0, calls=254, instructions=7),
    "search": Usual(ratio=40.0, calls=3_700, instructions=6_140),
}


def steps_of(bench: Bench, path: str) -> tuple[Steps, Steps]:
    """Ours and the floor's."""
    return bench.ours(getattr(bench, path)), bench.bare(getattr(bench, f"bare_{path}"))


def twice(steps: Steps) -> Steps:
    """A copy of a path that has slipped: it does everything two times."""
    return lambda count: steps(2 * count)
