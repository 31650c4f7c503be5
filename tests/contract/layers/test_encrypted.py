"""The encryption layer passes the contract of stores: around SQLite, and with sealed records around memory.

Around Redis and PostgreSQL only concurrent writers are tested: the layer relies on how a server orders them.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from aforesaid.contracts import Backend, Migratable, Searchable, Watchable, capability
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock, SnapshotContract, StoreContract, store_machine
from aforesaid.testing.contract.replacing import ConcurrencyContract
from tests.builders import FEATURE_STORES, STORES, url_for
from tests.encrypted_stores import inner_for, opened, sealed_backend
from tests.examples import examples
from tests.report import MATRIX


class TestEncryptedStore(StoreContract):
    @pytest.fixture(params=FEATURE_STORES)
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        async with opened(sealed_backend(inner_for(request.param, tmp_path, request, clock))) as backend:
            yield backend


class TestGlancesAtWhatIsSealed(SnapshotContract):
    @pytest.fixture
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        async with opened(sealed_backend(inner_for("sqlite", tmp_path, request, clock))) as backend:
            yield backend


class TestConcurrencyAroundServers(ConcurrencyContract):
    @pytest.fixture(params=["redis", "postgres"])
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        async with opened(sealed_backend(inner_for(request.param, tmp_path, request, clock))) as backend:
            yield backend


class TestEncryptedStoreWithRecordsAndItsKeysApart(StoreContract):
    @pytest.fixture(params=STORES if MATRIX else ["memory"])
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        inner = inner_for(request.param, tmp_path, request, clock)
        apart = InMemoryBackend(clock=clock)
        async with opened(sealed_backend(inner, records=True, keyring=apart)) as backend:
            yield backend


@pytest.mark.parametrize("store", STORES if MATRIX else ["memory"])
def test_random_operations_answer_as_the_model_does(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = url_for(store, tmp_path, request)
    made = iter(range(10**6))

    def make(clock: FixedClock) -> Backend:
        # A store in a file starts afresh each time: it would grow, and be read as a whole.
        place = url.replace("memory.db", f"{next(made)}.db").replace("conversations", f"{next(made)}")
        return sealed_backend(backend_for(place, clock=clock), records=True)

    run_state_machine_as_test(
        store_machine(make),
        settings=settings(examples(40), stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )


@pytest.mark.parametrize("store", STORES)
async def test_powers_are_handed_on_but_for_the_search_index(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, clock: FixedClock
) -> None:
    inner = inner_for(store, tmp_path, request, clock)
    backend = sealed_backend(inner)
    assert (capability(backend, Migratable) is None) == (capability(inner, Migratable) is None)
    assert (capability(backend.of("erin"), Watchable) is None) == (
        capability(inner.of("erin"), Watchable) is None
    )
    assert capability(backend.of("erin"), Searchable) is None
