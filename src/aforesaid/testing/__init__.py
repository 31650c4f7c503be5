"""Test tools for authors of stores: the contract as tests, a settable clock, a state machine.

    from aforesaid.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def backend(self, clock):
            backend = MyBackend(clock=clock)
            await backend.open()
            yield backend
            await backend.close()

A store that passes `StoreContract` works with every part of Aforesaid. A store with an optional capability
also passes its contract: `SearchContract` for `Searchable`, `SnapshotContract` for `SnapshotReader`.
Install with `pip install 'aforesaid[testing]'`.
"""

from aforesaid.testing.contract import SearchContract, SnapshotContract, StoreContract
from aforesaid.testing.contract.base import FixedClock
from aforesaid.testing.machine import store_machine

__all__ = ["FixedClock", "SearchContract", "SnapshotContract", "StoreContract", "store_machine"]
