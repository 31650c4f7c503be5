"""For those who write or test a store: the contract as tests, a clock that stands still, a state machine.

    from aforesaid.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def backend(self, clock):
            backend = MyBackend(clock=clock)
            await backend.open()
            yield backend
            await backend.close()

A store that passes is one. Needs `pip install 'aforesaid[testing]'`.
"""

from aforesaid.testing.clocks import FixedClock
from aforesaid.testing.contract import SearchContract, SnapshotContract, StoreContract
from aforesaid.testing.machine import store_machine

__all__ = ["FixedClock", "SearchContract", "SnapshotContract", "StoreContract", "store_machine"]
