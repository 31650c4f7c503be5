"""Separate stores of every kind: a copy takes everything that it finds."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aforesaid.contracts import Backend
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock
from tests.builders import empty_url

NewUrl = Callable[[str], str]
NewBackend = Callable[[str], Awaitable[Backend]]


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> NewUrl:
    """The URL of an empty store of this kind."""

    def new_url(kind: str) -> str:
        folder = tmp_path / secrets.token_hex(6)
        folder.mkdir()
        return empty_url(kind, folder, request)

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
