"""What all tests share: a blocked event loop is an error, and a run ends with how every store did."""

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import certifi
import pytest
from blockbuster import BlockBuster

# Loaded before any loop runs: importing reads files, once.
import aforesaid.stores.json_file
import aforesaid.stores.postgres
import aforesaid.stores.redis
import aforesaid.stores.sqlite  # noqa: F401
from tests import report
from tests.not_through_server import stays_apart

pytest.register_assert_rewrite("aforesaid.testing")

pytest_plugins = [
    "tests.servers.postgres",
    "tests.servers.providers",
    "tests.servers.redis",
    "tests.servers.remote",
    "tests.tiers",
]


IN_MEMORY = Path("/dev/shm")
ROOM = 8 * 2**30
"""What a run may put into memory: databases of PostgreSQL, mostly. Folders of passed tests go at once."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Files of tests lie in memory where there is room: a process that is killed leaves them as a disk would,
    and nobody waits for a disk. `TMPDIR` names another place."""
    if "TMPDIR" not in os.environ and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look at all of it over and over."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every HTTP client reads whom it trusts. One authority will do: nobody here speaks to the outside."""
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----")
    file = tmp_path_factory.mktemp("trusted") / "one.pem"
    file.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spools, and the marks of stores that were reached, stay out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def guard() -> BlockBuster:
    """What makes our blocking calls errors, while it is active."""
    guard = BlockBuster("aforesaid")
    for function in guard.functions.values():
        # A Redis client that is handed to us looks up its own version on disk at its first connection.
        function.can_block_in("redis/utils.py", "get_lib_version")
    return guard


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop(guard: BlockBuster) -> Iterator[None]:
    """File and socket work of ours on the event loop's thread is an error: in a voice path it is a pause."""
    guard.activate()
    yield
    guard.deactivate()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, and leave out for good what cannot be played through a server of ours."""
    items[:] = [item for item in items if not stays_apart(item.nodeid)]
    for item in items:
        if SERVERS & set(report.stores_of(item.nodeid)):
            item.add_marker("server")


SERVERS = {"redis", "postgres"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """The last lines of a run: after everything else that pytest has to say."""
    yield
    terminalreporter.section("stores", sep="-")
    for line in report.lines(terminalreporter.stats):
        terminalreporter.write_line(line)
