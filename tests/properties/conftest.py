"""Every property on every store."""

from collections.abc import Iterator

import pytest

from tests.properties.worlds import STORES, World, opened


@pytest.fixture(scope="module", params=STORES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from opened(request.param, tmp_path_factory.mktemp(request.param), request)
