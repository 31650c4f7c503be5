"""Every face on every store: a store joins by its URL in `tests.properties.worlds`."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import recollect
from recollect.testing import FixedClock
from tests.properties.worlds import STORES, World, opened, url_for


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_for(request.param, tmp_path, request)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def memory(url: str, clock: FixedClock) -> AsyncIterator[recollect.Memory]:
    async with recollect.open(url, clock=clock, sweep_every=None) as memory:
        yield memory


@pytest.fixture(scope="module", params=STORES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from opened(request.param, tmp_path_factory.mktemp(request.param), request)
