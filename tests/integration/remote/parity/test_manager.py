"""Run the tests of the manager through a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.testing import FixedClock
from tests.builders import url_for
from tests.servers.remote import open_at
from tests.unit.memory.test_manager import (
    TestContexts,
    TestLifetimes,
    TestMessages,
    TestMetadata,
    TestTurns,
    erin,
    kitchen,
)

__all__ = ["TestContexts", "TestLifetimes", "TestMessages", "TestMetadata", "TestTurns", "erin", "kitchen"]


@pytest.fixture(params=["server"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    url = url_for(request.param, tmp_path, request)
    async with open_at(url, clock=FixedClock(), sweep_every=None) as opened:
        yield opened
