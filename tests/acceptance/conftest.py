"""Every property on every store, and through a server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import pytest

from tests.builders import PLACES, STORES, World, opened


@pytest.fixture(scope="session")
def worlds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], World]]:
    """Open a store when the first test asks for it; tests of one property use one after the other."""
    with ExitStack() as stack:

        @cache
        def opened_once(store: str) -> World:
            return stack.enter_context(contextmanager(opened)(store, tmp_path_factory.mktemp(store), request))

        yield opened_once


@pytest.fixture(params=PLACES)
def world(request: pytest.FixtureRequest, worlds: Callable[[str], World]) -> World:
    return worlds(request.param)


@pytest.fixture(params=STORES)
def stored_world(request: pytest.FixtureRequest, worlds: Callable[[str], World]) -> World:
    """A memory in this process: some parts need the store itself."""
    return worlds(request.param)
