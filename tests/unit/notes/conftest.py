"""Every store, empty, with a clock that stands still; and one owner in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.testing import FixedClock
from tests.builders import FEATURE_TARGETS, empty_url
from tests.servers.remote import open_at


@pytest.fixture(params=FEATURE_TARGETS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


@pytest.fixture
async def memory(url: str, clock: FixedClock, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    async with open_at(
        url, clock=clock, sweep_every=None, archives=tmp_path / "archives", embedder=None
    ) as memory:
        yield memory


@pytest.fixture
def erin(memory: aforesaid.Memory) -> ConversationManager:
    return memory.of("erin")
