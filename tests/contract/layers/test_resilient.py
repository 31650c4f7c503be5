"""The resilient layer is a store: the contract and the state machine, over stores that are well or shaky."""

import atexit
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from aforesaid.contracts import Backend
from aforesaid.layers import resilient as layer
from aforesaid.layers.resilient import resilient
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import Telemetry
from aforesaid.testing import FixedClock, SnapshotContract, StoreContract, store_machine
from aforesaid.testing.contract.replacing import ConcurrencyContract
from tests.builders import FEATURE_STORES
from tests.encrypted_stores import inner_for
from tests.examples import examples
from tests.faults import Failing, Fault


async def no_sleep(_: float) -> None:
    """Pauses between attempts, without the pauses."""


def around(inner: Backend, folder: Path) -> Backend:
    # In tests the default waits long: on a busy machine, no store misses a deadline.
    return resilient(
        inner, folder=folder, resilience=layer.DEFAULT_RESILIENCE, metrics=Telemetry(), sleep=no_sleep
    )


def fails_twice_of_three() -> Callable[[str], Fault]:
    """Every call succeeds at the third attempt only. What is attempted once does not fail."""
    calls = 0

    def plan(name: str) -> Fault:
        nonlocal calls
        if name in ("open", "rewrite", "replace", "put_document", "delete_document", "next owner"):
            return None
        calls += 1
        return None if calls % 3 == 0 else "before"

    return plan


class TestResilientStore(StoreContract):
    @pytest.fixture(params=FEATURE_STORES)
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        backend = around(inner_for(request.param, tmp_path, request, clock), tmp_path / "spool")
        await backend.open()
        yield backend
        await backend.close()


class TestSnapshotsAroundAStore(SnapshotContract):
    @pytest.fixture(params=["sqlite", "redis"])
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        backend = around(inner_for(request.param, tmp_path, request, clock), tmp_path / "spool")
        await backend.open()
        yield backend
        await backend.close()


class TestConcurrencyAroundServers(ConcurrencyContract):
    @pytest.fixture(params=["redis", "postgres"])
    async def backend(
        self, request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path
    ) -> AsyncIterator[Backend]:
        backend = around(inner_for(request.param, tmp_path, request, clock), tmp_path / "spool")
        await backend.open()
        yield backend
        await backend.close()


def _machine_folder() -> Path:
    """A machine makes many backends and ends none of its folders: they go with the process."""
    folder = mkdtemp(prefix="aforesaid-layer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _shaky(clock: FixedClock) -> Backend:
    failing = Failing(InMemoryBackend(clock=clock))
    failing.plan = fails_twice_of_three()
    return around(failing, _machine_folder())


TestMachineAroundMemory = store_machine(
    lambda clock: around(InMemoryBackend(clock=clock), _machine_folder())
).TestCase
TestMachineAroundShaky = store_machine(_shaky).TestCase
TestMachineAroundMemory.settings = examples(30)
TestMachineAroundShaky.settings = examples(30)
