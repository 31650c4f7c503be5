"""Servers for tests: one that is open to this machine, one that wants keys."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.server.running import Running, serving


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    """A server without keys, for programs on this machine."""
    async with serving() as running:
        yield running


@pytest.fixture
async def guarded() -> AsyncIterator[Running]:
    """A server that refuses clients without a key."""
    async with serving(open_without_keys=False) as running:
        yield running
