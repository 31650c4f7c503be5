"""Every property on every store, and through a server."""

from collections.abc import Iterator

import pytest

from tests.builders import PLACES, World, opened


@pytest.fixture(scope="module", params=PLACES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from opened(request.param, tmp_path_factory.mktemp(request.param), request)
