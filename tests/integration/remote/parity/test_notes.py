"""Run the tests of notes through a server."""

from pathlib import Path

import pytest

from tests.builders import url_for
from tests.unit.notes.conftest import erin, memory  # noqa: F401
from tests.unit.notes.test_notes import *  # noqa: F403


@pytest.fixture(params=["server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_for(request.param, tmp_path, request)
