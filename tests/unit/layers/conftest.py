"""A resilient layer around a store that fails on request, with a controlled clock."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aforesaid.layers.resilient import Resilience, ResilientBackend, resilient
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from aforesaid.testing import FixedClock
from tests.faults import Failing


class Seconds:
    """A monotonic clock that moves when a caller sleeps on it, or on request."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class LayerSetup:
    """The layer, what it wraps, and the times of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FixedClock()
        self.seconds = Seconds()
        self.metrics = Telemetry()
        self.memory = InMemoryBackend(clock=self.clock)
        self.failing = Failing(self.memory)
        self.layer = self.make()

    def make(self, **settings: Any) -> ResilientBackend:
        """A layer as another process would have it, around the same store and folder."""
        return resilient(
            self.failing,
            folder=self.folder,
            resilience=Resilience(**settings),
            metrics=self.metrics,
            clock=self.seconds,
            sleep=self.seconds.sleep,
            background=False,
        )

    async def back(self) -> bool:
        """The store is well again, and enough time has passed for a probe."""
        self.failing.up()
        self.seconds.now += 60
        return await self.layer.recover()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[LayerSetup]:
    setup = LayerSetup(tmp_path / "spool")
    await setup.layer.open()
    yield setup
    await setup.layer.close()
