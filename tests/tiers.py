"""How much a run plays: everything, with `--fast` the rules, with `--explore` examples that nobody has seen.

The examples of properties are the same in each run: whoever sees a test fail knows that their change did it.
`make explore` looks for others.

`--fast` is the rules of every package, on memory and SQLite, in under a minute. What is left out lies in
whole files, so that it is not even imported: stores and agents that need a server or a provider, the contract
played once more around a layer, processes that are started and killed, examples of the documentation. Besides
those: every other store, what is reached through a server, and what is marked as slow. And of each property
some examples are played, not all.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from tests import summary

TESTS = Path(__file__).parent
LEFT_OUT = (
    "agents/test_compatible.py",
    "agents/test_providers.py",
    "chaos",
    "cli/test_chat.py",
    "cli/test_commands.py",
    "cli/test_forgetting.py",
    "cli/test_moving.py",
    "cli/test_protection.py",
    "cli/test_served.py",
    "client/test_hostile.py",
    "dialects/test_sdks.py",
    "docs/test_examples.py",
    "forgetting/test_crashes.py",
    "layers/test_*_contract.py",
    "layers/test_audited.py",
    "layers/test_cached.py",
    "layers/test_shutdown.py",
    "moving",
    "performance/test_hot_paths.py",
    "search/test_stores_agree.py",
    "server/live/test_fuzz.py",
    "server/live/test_processes.py",
    "server/live/test_sockets.py",
    "server/live/test_story.py",
    "server/live/test_watching.py",
    "server/test_access.py",
    "server/test_conversations.py",
    "server/test_idempotency.py",
    "server/test_openapi.py",
    "server/test_running.py",
    "stores/test_*_kills.py",
    "stores/test_overload.py",
    "stores/test_postgres*.py",
    "stores/test_redis*.py",
    "telemetry/test_observed.py",
    "telemetry/test_secrets.py",
    "telemetry/test_serving.py",
    "telemetry/test_sharing.py",
    "telemetry/test_tracing.py",
    "tokens/test_exact.py",
    "voice/test_embedded.py",
    "voice/test_story.py",
)
"""Files and folders under `tests`, as patterns."""
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
    within = collection_path.relative_to(TESTS)
    return True if any(within.match(pattern) for pattern in LEFT_OUT) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    if not config.getoption("fast"):
        return
    left_out = [item for item in items if not is_fast(item)]
    items[:] = [item for item in items if is_fast(item)]
    config.hook.pytest_deselected(items=left_out)


def is_fast(item: pytest.Item) -> bool:
    is_marked = item.get_closest_marker("slow") or item.get_closest_marker("server")
    return not is_marked and OTHER_PLACES.isdisjoint(summary.parameters_of(item.nodeid))


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
    if "server" in summary.parameters_of(request.node.nodeid):
        asked = min(asked, THROUGH_A_SERVER)
    return asked * (request.config.getoption("explore") or 1)
