"""Stores that nobody else has, of every kind: a copy takes everything that it finds."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from recollect.contracts import Backend
from recollect.stores.urls import backend_for
from recollect.testing import FixedClock
from tests.properties.worlds import local_url
from tests.servers.postgres import Databases

NewUrl = Callable[[str], str]
NewBackend = Callable[[str], Awaitable[Backend]]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> NewUrl:
    """The URL of an empty store of this kind."""

    def new_url(kind: str) -> str:
        match kind:
            case "redis":
                return f"{request.getfixturevalue('one_redis_url')}?prefix=moving-{secrets.token_hex(6)}"
            case "postgres":
                databases: Databases = request.getfixturevalue("databases")
                return databases.furnished()
            case _:
                folder = tmp_path / secrets.token_hex(6)
                folder.mkdir()
                return local_url(kind, folder)

    return new_url


@pytest.fixture
async def new_backend(new_url: NewUrl, clock: FixedClock) -> AsyncIterator[NewBackend]:
    """An empty store of this kind, open."""
    async with AsyncExitStack() as cleanup:

        async def new_backend(kind: str) -> Backend:
            backend = backend_for(new_url(kind), clock=clock)
            await backend.open()
            cleanup.push_async_callback(backend.close)
            return backend

        yield new_backend
