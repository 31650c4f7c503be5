"""Every face on every store: a store joins by its URL in `tests.builders`."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

import aforesaid
from aforesaid.testing import FixedClock
from tests.builders import FEATURE_TARGETS, Target, empty_url, opened
from tests.servers.postgres import Databases
from tests.servers.remote import open_at


@pytest.fixture(params=FEATURE_TARGETS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with nothing in it: on a server that others use too, a part of it, or all of it emptied."""
    if request.param == "postgres":
        return emptied(request.getfixturevalue("faces_postgres_url"))
    return empty_url(request.param, tmp_path, request)


@pytest.fixture(scope="session")
def faces_postgres_url(databases: Databases) -> str:
    return databases.new()


def emptied(url: str) -> str:
    with psycopg.connect(url) as connection:
        if connection.execute("SELECT to_regclass('aforesaid.conversations')").fetchone() != (None,):
            connection.execute("SET LOCAL aforesaid.operator = 'on'")
            connection.execute("DELETE FROM aforesaid.conversations")
    return url


@pytest.fixture
async def memory(url: str, clock: FixedClock) -> AsyncIterator[aforesaid.Memory]:
    async with open_at(url, clock=clock, sweep_every=None) as memory:
        yield memory


@pytest.fixture(scope="module", params=FEATURE_TARGETS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield from opened(request.param, tmp_path_factory.mktemp(request.param), request)
