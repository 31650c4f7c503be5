"""What all tests share: a blocked event loop is an error."""

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx

# Loaded before any loop runs: importing reads files, once.
import recollect.stores.json_file
import recollect.stores.postgres
import recollect.stores.redis
import recollect.stores.sqlite  # noqa: F401

pytest.register_assert_rewrite("recollect.testing")

pytest_plugins = ["tests.servers.postgres", "tests.servers.redis"]


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[None]:
    """File and socket work of ours on the event loop's thread is an error: in a voice path it is a pause."""
    with blockbuster_ctx("recollect") as guard:
        for function in guard.functions.values():
            # A Redis client that is handed to us looks up its own version on disk at its first connection.
            function.can_block_in("redis/utils.py", "get_lib_version")
        yield
