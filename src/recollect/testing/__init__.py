"""For those who write or test a store: the contract as tests, a clock that stands still, a state machine.

    from recollect.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def backend(self, clock):
            backend = MyBackend(clock=clock)
            await backend.open()
            yield backend
            await backend.close()

A store that passes is one. Needs `pip install 'recollect[testing]'`.
"""

from recollect.testing.clocks import FixedClock
from recollect.testing.contract import GlanceContract, SearchContract, StoreContract
from recollect.testing.machine import store_machine

__all__ = ["FixedClock", "GlanceContract", "SearchContract", "StoreContract", "store_machine"]
