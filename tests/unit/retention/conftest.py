"""Every store, with nothing in it but what a test puts there; and a clock that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid.testing import FixedClock
from tests.builders import FEATURE_TARGETS, empty_url
from tests.servers.remote import open_at


@pytest.fixture(params=FEATURE_TARGETS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url(request.param, tmp_path, request)


@pytest.fixture
async def memory(url: str, clock: FixedClock, tmp_path: Path) -> AsyncIterator[aforesaid.Memory]:
    async with open_at(
        url,
        clock=clock,
        sweep_every=None,
        images="blobs",
        blobs=tmp_path / "blobs",
        archives=tmp_path / "archives",
        embedder=None,  # vectors come when they come, and are counted
    ) as memory:
        yield memory
