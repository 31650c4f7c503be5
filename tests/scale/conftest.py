"""The table of all scenarios, and what could not run, are the last lines."""

import pytest

from tests.scale.figures import table
from tests.servers import needs
from tests.servers.postgres import databases, postgres_admin_url

__all__ = ["databases", "postgres_admin_url"]

pytest_runtest_setup = needs.pytest_runtest_setup
_name_missing = needs.summary("caddy", "nginx", "haproxy", "pgbouncer", "redis-server")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in table():
        terminalreporter.write_line(line)
    _name_missing(terminalreporter)
