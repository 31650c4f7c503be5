"""Shared by all tests: fixtures, the guard against blocking calls, and the report at the end of a run."""

import asyncio
import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import certifi
import pytest
from blockbuster import BlockBuster
from litestar.utils.signature import ParsedSignature
from msgspec.structs import replace

# Imported before any event loop runs: importing reads files, which the guard below forbids.
import aforesaid.stores.json_file
import aforesaid.stores.postgres
import aforesaid.stores.redis
import aforesaid.stores.sqlite
from aforesaid.layers import resilient
from aforesaid.settings import ConversationConfig
from aforesaid.tokens import counter_for, ready
from aforesaid.tokens.exact import ENCODINGS
from tests import report
from tests.examples import register_profiles
from tests.local_only import is_excluded

pytest.register_assert_rewrite("aforesaid.testing")
from aforesaid.testing import FixedClock  # noqa: E402  its assertions must be rewritten first

pytest_plugins = [
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.remote",
    "tests.servers.providers",
]

register_profiles()

SHARED_MEMORY = Path("/dev/shm")
NEEDED_MEMORY = 8 * 2**30
"""Bytes that a run may need, mostly for PostgreSQL databases. Folders of passed tests are removed at once."""
STARTED = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    # Collecting makes a million objects that stay, and each collection of garbage visits them all.
    gc.disable()
    _keep_files_in_memory()


def _keep_files_in_memory() -> None:
    """Put temporary files into memory if there is room, unless `TMPDIR` is set.

    A killed process leaves its files there just as on a disk, and no test waits for a disk.
    """
    if "TMPDIR" in os.environ or not SHARED_MEMORY.is_dir():
        return
    if shutil.disk_usage(SHARED_MEMORY).free > NEEDED_MEMORY:
        os.environ["TMPDIR"] = str(SHARED_MEMORY)
        tempfile.tempdir = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop tests that cannot run through a server and, except in the matrix, exhaustive ones."""
    items[:] = [
        item
        for item in items
        if not is_excluded(item.nodeid) and (report.MATRIX or item.get_closest_marker("exhaustive") is None)
    ]


def pytest_collection_finish() -> None:
    """Exempt collected tests from garbage collection: they live until the end of the run.

    A full collection visits half a million objects of libraries, so it is rarer than by default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Write the last lines of a run, after all other sections."""
    yield
    terminalreporter.section("stores", sep="-")
    for line in report.lines(terminalreporter.stats):
        terminalreporter.write_line(line)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(usage.ru_utime + usage.ru_stime for usage in used)
    terminalreporter.write_line(report.time_line(time.monotonic() - STARTED, processor))


# Fixtures of a session are looked up for each test, so what all tests need is one fixture.
@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepare the process for tests, and fail a test that blocks the event loop."""
    with pytest.MonkeyPatch.context() as patch:
        _trust_one_certificate(patch, tmp_path_factory.mktemp("trusted"))
        # Spools and marks of reached stores stay out of the user's home folder.
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        _wait_long_for_stores(patch)
        _wait_long_for_contexts(patch)
        _parse_signatures_once(patch)
        _load_tokenizers()
        # For all tests at once: replacing the blocking functions takes longer than many a test.
        guard = _guard()
        guard.activate()
        yield
        guard.deactivate()


def _trust_one_certificate(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Trust one certificate authority: no test connects to the outside, and loading all of them is slow."""
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----")
    file = folder / "one.pem"
    file.write_text(first + end)
    patch.setenv("SSL_CERT_FILE", str(file))


def _wait_long_for_stores(patch: pytest.MonkeyPatch) -> None:
    """Give a server an hour to answer.

    On a busy machine it may miss the deadlines that a user sets. An event loop that stands still between two
    examples counts that time too.
    """
    patient = replace(
        resilient.DEFAULT_RESILIENCE, read_deadline=3600.0, search_deadline=3600.0, write_deadline=3600.0
    )
    patch.setattr(resilient, "DEFAULT_RESILIENCE", patient)


def _wait_long_for_contexts(patch: pytest.MonkeyPatch) -> None:
    """Give the default deadline of a context an hour: on a busy machine a window would be reduced."""
    stored = ConversationConfig.__dict__["context_deadline"]
    default = ConversationConfig().context_deadline

    def patient(config: ConversationConfig) -> int:
        seconds: int = stored.__get__(config)
        return 3600 if seconds == default else seconds

    patch.setattr(ConversationConfig, "context_deadline", property(patient))


def _parse_signatures_once(patch: pytest.MonkeyPatch) -> None:
    """Parse the signature of a route once: tests create hundreds of applications with the same routes."""
    known: dict[CodeType, ParsedSignature] = {}
    parse = ParsedSignature.from_fn

    def from_fn(function: Any, namespace: dict[str, Any]) -> ParsedSignature:
        code = getattr(function, "__code__", None)
        if code is None:
            return parse(function, namespace)
        return known.get(code) or known.setdefault(code, parse(function, namespace))

    patch.setattr(ParsedSignature, "from_fn", from_fn)


def _load_tokenizers() -> None:
    """Load the tokenizers: until then counts are estimates, and tests compare exact ones."""
    for encoding in ENCODINGS:
        asyncio.run(ready(counter_for(encoding)))


def _guard() -> BlockBuster:
    """Return what raises an error for a blocking call in our code, while active: in a voice assistant such a
    call is an audible pause."""
    guard = BlockBuster("aforesaid")
    for function in guard.functions.values():
        # A Redis client that the caller provides reads its own version from disk at its first connection.
        function.can_block_in("redis/utils.py", "get_lib_version")
        function.can_block_predicate = _or_outside_our_code(function.can_block_predicate)
    return guard


OUR_CODE = str(Path(aforesaid.__file__).parent)
STEP_OF_THE_LOOP = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]


def _or_outside_our_code(may_block: Callable[..., bool]) -> Callable[..., bool]:
    """Look first for our code on the stack: matching each frame with each exception takes much longer."""

    def may_block_here(*args: Any, **kwargs: Any) -> bool:
        return may_block(*args, **kwargs) or not _is_in_our_code(sys._getframe(1))

    return may_block_here


def _is_in_our_code(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not STEP_OF_THE_LOOP:
        if frame.f_code.co_filename.startswith(OUR_CODE):
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def clock() -> FixedClock:
    """A clock that moves only when a test moves it."""
    return FixedClock()
