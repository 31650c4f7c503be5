"""A database for each test that asks for one; what could not run is said in the last lines."""

from collections.abc import Iterator

import pytest

from tests.servers import needs
from tests.servers.postgres import PostgresServer

pytest_runtest_setup = needs.pytest_runtest_setup
pytest_terminal_summary = needs.summary("nginx", "caddy", "prometheus", "promtool")


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    running = PostgresServer()
    running.start()
    yield running
    running.stop()
