"""What could not run is said in the last lines."""

from tests.servers import needs

pytest_runtest_setup = needs.pytest_runtest_setup
pytest_terminal_summary = needs.summary("nginx", "caddy", "prometheus", "promtool")
