"""Run the tests of archives through a server."""

from pathlib import Path

import pytest

from tests.builders import url_for
from tests.unit.retention.conftest import memory  # noqa: F401
from tests.unit.retention.test_archives import *  # noqa: F403


@pytest.fixture(params=["server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_for(request.param, tmp_path, request)
