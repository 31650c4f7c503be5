"""A circuit breaker: after enough failures, no call reaches the store until a probe succeeds.

    closed ──failures──► open ──pause over──► half open ──probe succeeded──► closed
                           ▲                      │
                           └──── probe failed ────┘   (the next pause is longer)

The breaker decides only; it performs no I/O and never waits.
"""

from collections.abc import Callable
from typing import Literal

State = Literal["closed", "half_open", "open"]

THRESHOLD = 3
"""Consecutive failed attempts that open the breaker: as many as one call makes."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
"""Seconds before the first probe, and the longest time between probes: short enough to notice a recovered
store soon, long enough not to overload a recovering one."""


class Breaker:
    """One store's breaker. It calls `on_change` after every change of state."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        threshold: int = THRESHOLD,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        on_change: Callable[[State, str], None] = lambda state, reason: None,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._on_change = on_change
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
        """Seconds until the next probe is allowed."""
        if self.state != "open":
            return 0.0
        return max(0.0, self._opened_at + self._pause - self._clock())

    def succeeded(self) -> None:
        """Reset the count of failures. While open, a late answer changes nothing: only a probe closes the
        breaker."""
        if self.state == "closed":
            self._failures = 0

    def failed(self, reason: str) -> None:
        """Count a failed attempt."""
        self._failures += 1
        # Calls that were in progress when the breaker opened still report their failures.
        if self.state == "closed" and self._failures >= self._threshold:
            self._open(reason)

    def trip(self, reason: str) -> None:
        """Open the breaker after a call that used all its attempts or all its time."""
        if self.state == "closed":
            self._open(reason)

    def begin_probe(self) -> bool:
        """Return whether the caller may probe now. It must then report success or failure."""
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
        self._on_change(state, reason)
