"""What could not run is said in the last lines."""

import pytest

from tests.operations import programs


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, reason in programs.missing().items():
        terminalreporter.write_line(f"NOT RUN: the tests with {name}: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test whose program is missing; the summary names it."""
    missing = programs.missing()
    needed = {mark.args[0] for mark in item.iter_markers("needs")}
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "proxy" in callspec.params:
        needed.add(callspec.params["proxy"])
    for name in needed & missing.keys():
        pytest.skip(f"{name}: {missing[name]}")
