"""How much a run plays: everything, with `--fast` the rules, with `--explore` examples that nobody has seen.

The examples of properties are the same in each run: whoever sees a test fail knows that their change did it.
`make explore` looks for others.

`--fast` runs the folder `tests/unit` on memory and SQLite, without the tests marked as slow, and with fewer
examples of each property.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from tests import report

TESTS = Path(__file__).parent
OTHER_TIERS = {"contract", "integration", "acceptance", "chaos"}
OTHER_PLACES = {"file", "redis", "postgres", "server"}
"""Where the fast tier does not go: parameters of a test."""
EXAMPLES = 10
"""Of each property."""
THROUGH_A_SERVER = 15
"""A property holds in the store for all its examples; through a socket some of them will do."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="the rules, on memory and SQLite, in under a minute")
    parser.addoption("--explore", type=int, metavar="TIMES", help="new examples, so many times as many")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes says how busy the machine is, and must not decide a test.
    settings.register_profile("aforesaid", deadline=None, derandomize=config.getoption("explore") is None)
    settings.load_profile("aforesaid")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("fast") or not collection_path.is_relative_to(TESTS):
        return None
    folder = collection_path.relative_to(TESTS).parts[:1]
    return True if folder and folder[0] in OTHER_TIERS else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    if not config.getoption("fast"):
        return
    left_out = [item for item in items if not is_fast(item)]
    items[:] = [item for item in items if is_fast(item)]
    config.hook.pytest_deselected(items=left_out)


def is_fast(item: pytest.Item) -> bool:
    is_marked = item.get_closest_marker("slow") or item.get_closest_marker("server")
    return not is_marked and OTHER_PLACES.isdisjoint(report.parameters_of(item.nodeid))


@pytest.fixture(autouse=True)
def some_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer examples of a property than it asks for, where a few will do; or more, to find new ones."""
    asked = getattr(request.function, "_hypothesis_internal_use_settings", None)
    if asked is not None:
        bounded = settings(asked, max_examples=_how_many(asked.max_examples, request))
        function = getattr(request.function, "__func__", request.function)
        monkeypatch.setattr(function, "_hypothesis_internal_use_settings", bounded)


def _how_many(asked: int, request: pytest.FixtureRequest) -> int:
    if request.config.getoption("fast"):
        return min(asked, EXAMPLES)
    if "server" in report.parameters_of(request.node.nodeid):
        asked = min(asked, THROUGH_A_SERVER)
    return asked * (request.config.getoption("explore") or 1)
