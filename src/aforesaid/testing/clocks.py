"""A clock for tests."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


class FixedClock:
    """A clock that changes only by `advance` and `set`."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, step: timedelta) -> None:
        self.now += step

    def set(self, now: datetime) -> None:
        self.now = now
