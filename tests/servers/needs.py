"""Leave out tests whose programs cannot be had here, and name them in the last lines."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.servers import programs


def summary(*names: str) -> Callable[[pytest.TerminalReporter], None]:
    """Return the hook that says which tests could not run."""

    def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
        for name, reason in programs.missing(names).items():
            terminalreporter.write_line(f"NOT RUN: the tests with {name}: {reason}")

    return pytest_terminal_summary


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test whose program is missing; the summary names it."""
    for name, reason in programs.missing(_needed(item)).items():
        pytest.skip(f"{name}: {reason}")


def _needed(item: pytest.Item) -> Sequence[str]:
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    proxy = [parameters["proxy"]] if "proxy" in parameters else []
    return [*(mark.args[0] for mark in item.iter_markers("needs")), *proxy]
