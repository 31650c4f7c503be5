"""A clock that moves only when it is told to."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


class FixedClock:
    """Call it for the time; `advance` it, `set` it back or forth."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, step: timedelta) -> None:
        self.now += step

    def set(self, now: datetime) -> None:
        self.now = now
