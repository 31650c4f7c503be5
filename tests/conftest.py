"""What all tests share: a blocked event loop is an error."""

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx

# Loaded before any loop runs: importing reads files, once.
import recollect.stores.json_file
import recollect.stores.redis
import recollect.stores.sqlite  # noqa: F401

pytest.register_assert_rewrite("recollect.testing")

pytest_plugins = ["tests.servers.redis"]


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[None]:
    """File and socket work of ours on the event loop's thread is an error: in a voice path it is a pause."""
    with blockbuster_ctx("recollect"):
        yield
