"""Run the tests of sessions through a server."""

from pathlib import Path

import pytest

from tests.builders import url_for
from tests.unit.memory.conftest import memory  # noqa: F401
from tests.unit.memory.test_sessions import *  # noqa: F403


@pytest.fixture(params=["server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_for(request.param, tmp_path, request)
