"""The Redis store is a store, on one server and on a cluster."""

from collections.abc import AsyncIterator

import pytest

from recollect.contracts import Backend
from recollect.stores.redis import RedisBackend
from recollect.testing import FixedClock, StoreContract


class TestRedisStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, redis_url: str) -> AsyncIterator[Backend]:
        backend = RedisBackend(redis_url, clock=clock)
        await backend.open()
        yield backend
        await backend.close()


class TestRedisClusterStore(StoreContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, redis_cluster_url: str) -> AsyncIterator[Backend]:
        backend = RedisBackend(redis_cluster_url, clock=clock)
        await backend.open()
        yield backend
        await backend.close()
