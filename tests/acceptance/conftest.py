"""Every property on every store, and through a server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.builders import STORES, TARGETS, Target, opened


@pytest.fixture(scope="session")
def targets(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Target]]:
    """Open a store when the first test asks for it; tests of one property use one after the other."""
    with ExitStack() as stack:

        @cache
        def opened_once(store: str) -> Target:
            return stack.enter_context(contextmanager(opened)(store, tmp_path_factory.mktemp(store), request))

        yield opened_once


@pytest.fixture(params=TARGETS)
def target(
    request: pytest.FixtureRequest, targets: Callable[[str], Target], tmp_path: Path
) -> Iterator[Target]:
    if request.param == "file":
        # A write takes as long as the file is, so no test inherits the data of another.
        yield from opened("file", tmp_path, request)
    else:
        yield targets(request.param)


@pytest.fixture(params=STORES)
def stored_target(request: pytest.FixtureRequest, targets: Callable[[str], Target]) -> Target:
    """A memory in this process: some parts need the store itself."""
    return targets(request.param)
