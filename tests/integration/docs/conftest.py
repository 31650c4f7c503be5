"""Servers for the examples that need one."""

from collections.abc import Iterator

import pytest

from tests.servers.redis import running


@pytest.fixture(scope="session")
def example_redis_url() -> Iterator[str]:
    with running() as port:
        yield f"redis://127.0.0.1:{port}/0"
