"""The PostgreSQL store is a store."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from aforesaid.contracts import Backend
from aforesaid.stores.postgres import PostgresBackend
from aforesaid.testing import FixedClock, SearchContract, SnapshotContract, StoreContract, store_machine
from tests.examples import examples


class TestPostgresStore(StoreContract, SnapshotContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, postgres_url: str) -> AsyncIterator[Backend]:
        backend = PostgresBackend(postgres_url, clock=clock)
        await backend.open()
        yield backend
        await backend.close()


class TestPostgresSearch(SearchContract):
    @pytest.fixture
    async def backend(self, clock: FixedClock, postgres_url: str) -> AsyncIterator[Backend]:
        backend = PostgresBackend(postgres_url, clock=clock)
        await backend.open()
        yield backend
        await backend.close()


def test_random_operations_answer_as_the_model_does(postgres_url: str) -> None:
    run_state_machine_as_test(
        store_machine(lambda clock: PostgresBackend(postgres_url, clock=clock)),
        settings=settings(examples(100), stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
