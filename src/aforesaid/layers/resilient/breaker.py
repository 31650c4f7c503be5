"""The breaker: after enough failures nobody asks the store, until a probe has found it well.

    closed ──failures──► open ──pause over──► half open ──probe well──► closed
                           ▲                      │
                           └──── probe failed ────┘   (the next pause is longer)

Pure: the time is asked from the clock it was given, and nothing waits here.
"""

from collections.abc import Callable
from typing import Literal

State = Literal["closed", "half_open", "open"]

THRESHOLD = 3
"""Failed attempts in a row that open it: as many as one call makes."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
"""Seconds before the first probe, and at most between probes: a store that is back is found soon,
and one that struggles to its feet is not knocked over again."""


class Breaker:
    """One store's breaker. `moved` is told of every change of state."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        threshold: int = THRESHOLD,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        moved: Callable[[State, str], None] = lambda state, reason: None,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._moved = moved
        self._failures = 0
        self._pause = first_pause
        self._opened_at = 0.0
        self.state: State = "closed"
        self.reason = ""

    @property
    def closed(self) -> bool:
        return self.state == "closed"

    @property
    def seconds_to_probe(self) -> float:
        """How long until a probe may be made; 0 when one may now."""
        if self.state != "open":
            return 0.0
        return max(0.0, self._opened_at + self._pause - self._clock())

    def succeeded(self) -> None:
        """The store answered. While open this is an echo of before; only a probe closes it."""
        if self.state == "closed":
            self._failures = 0

    def failed(self, reason: str) -> None:
        """One attempt failed."""
        self._failures += 1
        if self.state == "closed" and self._failures >= self._threshold:
            self._open(reason)

    def trip(self, reason: str) -> None:
        """A whole call failed, with all its attempts or all its time."""
        if self.state == "closed":
            self._open(reason)

    def begin_probe(self) -> bool:
        """Whether the caller may make the one probe; it then has to tell how that went."""
        if self.state != "open" or self.seconds_to_probe > 0:
            return False
        self._move("half_open", self.reason)
        return True

    def probe_succeeded(self) -> None:
        self._failures = 0
        self._pause = self._first_pause
        self._move("closed", "")

    def probe_failed(self, reason: str) -> None:
        self._pause = min(self._pause * 2, self._longest_pause)
        self._open(reason)

    def _open(self, reason: str) -> None:
        self._opened_at = self._clock()
        self._move("open", reason)

    def _move(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        self._moved(state, reason)
